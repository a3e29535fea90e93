//go:build !linux

package burnin

import (
	"errors"
	"fmt"
)

func online() ([]int, error) { return nil, fmt.Errorf("processors: %w", errors.ErrUnsupported) }

func pin(int) (release func(), err error) {
	return nil, fmt.Errorf("affinity: %w", errors.ErrUnsupported)
}
