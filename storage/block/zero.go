package block

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// ErrNoZero is returned if the kernel cannot zero a range of a device or file. Callers write zeros instead.
var ErrNoZero = errors.New("zeroing not supported")

// Zero makes a range of an open device or file read as zeros. For a device it uses BLKZEROOUT: WRITE ZEROES if the
// device supports it, otherwise the kernel writes pages of zeros. For a file it uses [Punch]. off and length must be
// multiples of the device's sector size. A call cannot be interrupted. The error wraps [ErrNoZero] if neither is
// supported.
func Zero(f *os.File, off, length int64) error {
	info, err := f.Stat()
	if err != nil {
		return err
	}
	if info.Mode().IsRegular() {
		err = Punch(f, off, length)
	} else {
		err = zeroDevice(f, off, length)
	}
	if errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.ENOTTY) || errors.Is(err, unix.EINVAL) {
		return fmt.Errorf("%w: %w", ErrNoZero, err)
	}
	return err
}

// Punch makes a range of an open device or file read as zeros, if that is guaranteed without writing zeros. For
// devices the kernel sends WRITE ZEROES that may unmap, and does not fall back to writing pages. A file gets a hole; a
// file without holes stays fully allocated, because it was preallocated on purpose.
func Punch(f *os.File, off, length int64) error {
	if allocated(f) {
		err := zeroRange(f, off, length)
		if !errors.Is(err, unix.EOPNOTSUPP) {
			return err
		}
	}
	return punchHole(f, off, length)
}

// allocated reports whether f is a regular file without holes.
func allocated(f *os.File) bool {
	const unit = 512 // bytes, of st_blocks; see stat(3type)
	var stat unix.Stat_t
	err := unix.Fstat(int(f.Fd()), &stat)
	return err == nil && stat.Mode&unix.S_IFMT == unix.S_IFREG && stat.Blocks*unit >= stat.Size
}
