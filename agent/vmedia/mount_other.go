//go:build !linux

package vmedia

import (
	"errors"
	"fmt"
)

// Unmount returns an error.
func Unmount(directory string) error {
	return fmt.Errorf("unmount %s: %w", directory, errors.ErrUnsupported)
}
