package clock

import (
	"time"

	"golang.org/x/sys/unix"
)

// Uptime returns the time since the kernel started, including time in suspend.
func Uptime() time.Duration {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &t); err != nil {
		return 0 // every kernel since 2.6.39 has this clock
	}
	return time.Duration(t.Nano())
}
