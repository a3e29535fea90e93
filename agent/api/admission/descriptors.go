package admission

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// reservedDescriptors is the number of file descriptors reserved for disks, downloads and sysfs.
const reservedDescriptors = 512

// Fit returns limits that leave enough of the process's file descriptors for other uses.
func (l Limits) Fit(descriptors int) Limits {
	available := max(descriptors-reservedDescriptors, descriptors/2)
	if total := l.Untrusted + l.Trusted + maxUnclosed; total > available {
		l.Untrusted = max(1, (available-maxUnclosed)*l.Untrusted/(l.Untrusted+l.Trusted))
		l.Trusted = max(1, available-maxUnclosed-l.Untrusted)
	}
	l.UntrustedPerPeer = min(l.UntrustedPerPeer, l.Untrusted)
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
