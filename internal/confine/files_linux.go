package confine

import (
	"fmt"
	"math"

	"golang.org/x/sys/unix"
)

// CloseFiles makes the next exec close all files except standard input, output and error, also those that were opened
// without O_CLOEXEC.
func CloseFiles() error {
	if err := unix.CloseRange(3, math.MaxUint32, unix.CLOSE_RANGE_CLOEXEC); err != nil {
		return fmt.Errorf("close files at exec: %w", err)
	}
	return nil
}

// ReplaceStdin replaces standard input by /dev/null of this mount namespace. The inherited one is a node of the
// ramdisk's /dev.
func ReplaceStdin() error {
	fd, err := unix.Open("/dev/null", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("open /dev/null: %w", err)
	}
	defer unix.Close(fd) //nolint:errcheck // the copy is used
	if err := unix.Dup3(fd, 0, 0); err != nil {
		return fmt.Errorf("replace standard input: %w", err)
	}
	return nil
}
