package scsi

import (
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
)

const ioctlSG = 0x2285 // SG_IO

// control sends a command to a block device.
func control(f *os.File, h *sgHeader) error {
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, f.Fd(), ioctlSG, uintptr(unsafe.Pointer(h))); errno != 0 {
		return errno
	}
	return nil
}
