//go:build !linux

package mounted

import (
	"errors"
	"fmt"
	"os"
)

func mount(string, string, bool) (int, error) {
	return -1, fmt.Errorf("mount by file descriptors: %w", errors.ErrUnsupported)
}

func openBelow(int, string, int, os.FileMode) (int, error) {
	return -1, fmt.Errorf("open inside a root: %w", errors.ErrUnsupported)
}

func syncFS(*os.File) error { return fmt.Errorf("sync of a file system: %w", errors.ErrUnsupported) }
