package vmedia

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// dropBuffers makes the next read of a block device return what the device contains. Regular files are left alone.
func dropBuffers(f *os.File) error {
	err := unix.IoctlSetInt(int(f.Fd()), unix.BLKFLSBUF, 0)
	if err != nil && !errors.Is(err, unix.ENOTTY) {
		return fmt.Errorf("drop buffers: %w", err)
	}
	return nil
}
