//go:build !linux

package clock

import "time"

// Uptime returns 0: the time is not known.
func Uptime() time.Duration { return 0 }
