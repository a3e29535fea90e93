//go:build !linux

package nvidia

import (
	"errors"
	"fmt"
	"os"
)

func memoryFile() (*os.File, error) {
	return nil, fmt.Errorf("create file in memory: %w", errors.ErrUnsupported)
}

func seal(*os.File) error { return fmt.Errorf("seal file in memory: %w", errors.ErrUnsupported) }
