package burnin

import (
	"ironroot/storage/sysfs"
)

const (
	// minReserve is the memory in bytes that is left to the agent and the kernel. If it runs out, the kernel panics.
	minReserve = 64 << 20
	// reserveDivisor is the divisor of all memory for the part that is left at least.
	reserveDivisor = 100
)

// reserveOf returns how much of the memory a test leaves to the agent and the kernel, in bytes.
func reserveOf(total int64) int64 { return max(minReserve, total/reserveDivisor) }

// memoryInfo returns the size of the memory and how much of it is available, in bytes.
func memoryInfo(sys sysfs.Root) (total, available int64, err error) {
	text, err := sys.Files.Read(sys.Proc("meminfo"))
	if err != nil {
		return 0, 0, err
	}
	total, err = sysfs.ParseMeminfo(text, "MemTotal")
	if err != nil {
		return 0, 0, err
	}
	available, err = sysfs.ParseMeminfo(text, "MemAvailable")
	return total, available, err
}
