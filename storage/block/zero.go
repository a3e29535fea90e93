package block

import (
	"errors"
	"fmt"
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
)

// ErrNoZero says that the kernel cannot zero a range of this device or file: zeros have to be written.
var ErrNoZero = errors.New("no zeroing")

// Zero has a range of an open device or file read as zeros. For a device it is BLKZEROOUT, that is WRITE ZEROES where
// the device knows it, else pages of zeros written by the kernel; for a file it is [Punch]. Offset and length are
// multiples of the device's sectors. One call cannot be interrupted. The error wraps [ErrNoZero] where there is no such
// means.
func Zero(f *os.File, off, length int64) error {
	info, err := f.Stat()
	if err != nil {
		return err
	}
	if info.Mode().IsRegular() {
		err = Punch(f, off, length)
	} else {
		args := [2]uint64{uint64(off), uint64(length)}
		if _, _, errno := unix.Syscall(unix.SYS_IOCTL, f.Fd(), unix.BLKZEROOUT, uintptr(unsafe.Pointer(&args))); errno != 0 {
			err = errno
		}
	}
	if errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.ENOTTY) || errors.Is(err, unix.EINVAL) {
		return fmt.Errorf("%w: %w", ErrNoZero, err)
	}
	return err
}

// Punch has a range of an open device or file read as zeros, if that is guaranteed without anything being written: for
// devices the kernel makes of it WRITE ZEROES that may unmap, without falling back to pages of zeros; a file gets a
// hole, but one that has all its blocks keeps them, for they were taken on purpose.
func Punch(f *os.File, off, length int64) error {
	if allocated(f) {
		err := unix.Fallocate(int(f.Fd()), unix.FALLOC_FL_ZERO_RANGE|unix.FALLOC_FL_KEEP_SIZE, off, length)
		if !errors.Is(err, unix.EOPNOTSUPP) {
			return err
		}
	}
	return unix.Fallocate(int(f.Fd()), unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, off, length)
}

// allocated reports whether f is a regular file without holes.
func allocated(f *os.File) bool {
	const unit = 512 // of st_blocks, see stat(3type)
	var stat unix.Stat_t
	err := unix.Fstat(int(f.Fd()), &stat)
	return err == nil && stat.Mode&unix.S_IFMT == unix.S_IFREG && stat.Blocks*unit >= stat.Size
}
