package confine

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// LimitCapabilities removes all capabilities for which keep returns false from the bounding set of the calling thread,
// which limits the capabilities that root gains with the next exec. It also clears the inheritable set, which would add
// to them.
func LimitCapabilities(keep func(c int) bool) error {
	var sets [2]unix.CapUserData
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	if err := unix.Capget(&header, &sets[0]); err != nil {
		return fmt.Errorf("read capabilities: %w", err)
	}
	sets[0].Inheritable, sets[1].Inheritable = 0, 0
	if err := unix.Capset(&header, &sets[0]); err != nil {
		return fmt.Errorf("drop inheritable capabilities: %w", err)
	}
	for c := range 64 {
		if keep(c) {
			continue
		}
		has, err := unix.PrctlRetInt(unix.PR_CAPBSET_READ, uintptr(c), 0, 0, 0)
		if err == unix.EINVAL { //nolint:errorlint // not wrapped
			break // after the last capability of the kernel
		}
		if err == nil && has == 1 {
			err = unix.Prctl(unix.PR_CAPBSET_DROP, uintptr(c), 0, 0, 0)
		}
		if err != nil {
			return fmt.Errorf("drop capability %d: %w", c, err)
		}
	}
	return nil
}
