//go:build !linux

package device

import (
	"errors"
	"fmt"
	"os"
)

func preferHugePages([]byte) {}

// openDirect returns an error: everything is written through the page cache.
func openDirect(string) (*os.File, error) {
	return nil, fmt.Errorf("O_DIRECT: %w", errors.ErrUnsupported)
}

func dropBuffers(*os.File) error { return fmt.Errorf("block devices: %w", errors.ErrUnsupported) }
