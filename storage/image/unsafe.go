package image

import (
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
)

// addressOf returns where the bytes of p lie, for the alignment that O_DIRECT asks for. The garbage collector does not
// move them.
func addressOf(p []byte) uintptr { return uintptr(unsafe.Pointer(unsafe.SliceData(p))) }

// blkZeroOut asks the kernel for a BLKZEROOUT: WRITE ZEROES where the device knows it, else pages of zeros.
func blkZeroOut(f *os.File, e extent) error {
	args := [2]uint64{uint64(e.off), uint64(e.len)}
	_, _, errno := unix.Syscall(unix.SYS_IOCTL, f.Fd(), unix.BLKZEROOUT, uintptr(unsafe.Pointer(&args)))
	if errno != 0 {
		return errno
	}
	return nil
}
