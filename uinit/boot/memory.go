package boot

import (
	"math"
	"runtime/debug"

	"golang.org/x/sys/unix"
)

// limitMemory has the collector work harder before the process takes the memory that the kernel needs for its modules and
// buffers: on a small machine garbage alone could fill it otherwise. The kernel has nobody else to kill then.
func (b *boot) limitMemory() {
	var info unix.Sysinfo_t
	if err := unix.Sysinfo(&info); err != nil {
		b.log.Warn("the free memory is unknown, the process takes what it likes", "err", err)
		return
	}
	limit := heapLimit(info)
	debug.SetMemoryLimit(limit)
	b.log.Debug("memory of the process is limited", "bytes", limit)
}

// heapLimit returns how many bytes the process should stay below: two thirds of the memory that is free at the start. Where
// that is not known, or nothing is free, there is no limit: the collector would never rest below it.
func heapLimit(info unix.Sysinfo_t) int64 {
	third := info.Freeram / 3 // units are at least bytes: multiplied last, nothing overflows
	if third == 0 || info.Unit == 0 || third > math.MaxInt64/2/uint64(info.Unit) {
		return math.MaxInt64
	}
	return int64(third * 2 * uint64(info.Unit))
}
