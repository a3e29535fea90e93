package erase

import (
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
)

// kernelDiscard implements [discarder] by the kernel.
type kernelDiscard struct{}

func (kernelDiscard) discard(f *os.File, offset, length int64, secure bool) error {
	request := uintptr(unix.BLKDISCARD)
	if secure {
		request = unix.BLKSECDISCARD
	}
	args := [2]uint64{uint64(offset), uint64(length)}
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, f.Fd(), request, uintptr(unsafe.Pointer(&args))); errno != 0 {
		return errno
	}
	return nil
}
