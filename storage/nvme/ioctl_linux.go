package nvme

import (
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
)

const (
	ioctlAdmin = 0xc0484e41 // NVME_IOCTL_ADMIN_CMD: _IOWR('N', 0x41, 72 bytes)
	ioctlID    = 0x4e40     // NVME_IOCTL_ID: _IO('N', 0x40)
)

// control sends a command. It returns the status of the controller and the error of the kernel.
func control(f *os.File, p *passthru) (status uintptr, errno unix.Errno) {
	status, _, errno = unix.Syscall(unix.SYS_IOCTL, f.Fd(), ioctlAdmin, uintptr(unsafe.Pointer(p)))
	return status, errno
}

func namespaceID(f *os.File) (uint32, error) {
	id, err := unix.IoctlRetInt(int(f.Fd()), ioctlID)
	return uint32(id), err
}
