//go:build !linux

package journal

import (
	"errors"
	"fmt"
)

func kernelLog() ([]byte, error) {
	return nil, fmt.Errorf("read kernel log: %w", errors.ErrUnsupported)
}
