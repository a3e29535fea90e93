package boot

import (
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
	limit := heapLimit(int64(info.Freeram) * int64(info.Unit))
	debug.SetMemoryLimit(limit)
	b.log.Debug("memory of the process is limited", "bytes", limit)
}

// heapLimit returns how much of the memory that is free at the start the process should stay below, both in bytes.
func heapLimit(free int64) int64 { return free / 3 * 2 }
