//go:build linux

package boot

import (
	"math"
	"runtime/debug"

	"golang.org/x/sys/unix"
)

// limitMemory lets the garbage collector run more often before the process uses the memory that the kernel needs for
// modules and buffers. Otherwise garbage could fill the memory of a small machine, and the kernel has no other
// process to kill.
func (b *boot) limitMemory() {
	var info unix.Sysinfo_t
	if err := unix.Sysinfo(&info); err != nil {
		b.log.Warn("free memory unknown, memory of the process not limited", "err", err)
		return
	}
	limit := heapLimit(info)
	debug.SetMemoryLimit(limit)
	b.log.Debug("memory of the process limited", "bytes", limit)
}

// heapLimit returns the memory limit of the process, in bytes: two thirds of the memory that is free at the start. If
// that is unknown or zero there is no limit, because the collector would run all the time.
func heapLimit(info unix.Sysinfo_t) int64 {
	third := info.Freeram / 3 // in units of at least one byte; the unit is multiplied last, to avoid an overflow
	if third == 0 || info.Unit == 0 || third > math.MaxInt64/2/uint64(info.Unit) {
		return math.MaxInt64
	}
	return int64(third * 2 * uint64(info.Unit))
}
