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
