package erase

import (
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
)

// directIO is the flag of open(2) for direct I/O.
const directIO = unix.O_DIRECT

// deviceNumber returns the number of a device node.
func deviceNumber(node *unix.Stat_t) uint64 { return node.Rdev }

// namespaceID returns the identifier of an NVMe namespace.
func namespaceID(f *os.File) (int, error) { return unix.IoctlRetInt(int(f.Fd()), ioctlID) }

// sendAdmin sends an admin command. It returns the status of the controller and the error of the kernel.
func sendAdmin(f *os.File, c *adminCommand) (status uintptr, errno unix.Errno) {
	status, _, errno = unix.Syscall(unix.SYS_IOCTL, f.Fd(), ioctlAdmin, uintptr(unsafe.Pointer(c)))
	return status, errno
}

// isDirect reports whether a file is open for direct I/O.
func isDirect(f *os.File) bool {
	flags, err := unix.FcntlInt(f.Fd(), unix.F_GETFL, 0)
	return err == nil && flags&directIO != 0
}
