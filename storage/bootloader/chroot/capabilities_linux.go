package chroot

import (
	"slices"

	"golang.org/x/sys/unix"

	"ironroot/internal/confine"
)

// allowed are the capabilities(7) that the program and its children keep, for work on files of any owner. Without the
// others it cannot unmount a file system, create a device node, leave the root, load a module, or read the kernel log.
var allowed = []int{
	unix.CAP_CHOWN, unix.CAP_DAC_OVERRIDE, unix.CAP_FOWNER, unix.CAP_FSETID,
	unix.CAP_KILL, unix.CAP_SETGID, unix.CAP_SETUID,
}

// capabilities leaves the program the allowed capabilities and, if privileged, CAP_SYS_ADMIN.
func capabilities(privileged bool) error {
	return confine.LimitCapabilities(func(c int) bool {
		return slices.Contains(allowed, c) || c == unix.CAP_SYS_ADMIN && privileged
	})
}
