package admission

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// spare is the number of file descriptors that stay for disks, downloads and sysfs.
const spare = 512

// Fit returns limits that leave enough of the process's file descriptors for other uses.
func (l Limits) Fit(descriptors int) Limits {
	available := max(descriptors-spare, descriptors/2)
	if total := l.Strangers + l.Trusted + overlap; total > available {
		l.Strangers = max(1, (available-overlap)*l.Strangers/(l.Strangers+l.Trusted))
		l.Trusted = max(1, available-overlap-l.Strangers)
	}
	l.StrangerPerPeer = min(l.StrangerPerPeer, l.Strangers)
	l.TrustedPerPeer = min(l.TrustedPerPeer, l.Trusted)
	return l
}

// Descriptors returns the limit of file descriptors of this process.
func Descriptors() (int, error) {
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		return 0, fmt.Errorf("get limit of file descriptors: %w", err)
	}
	return int(min(limit.Cur, 1<<20)), nil
}
