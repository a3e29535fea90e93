//go:build !linux

package burnin

import (
	"errors"
	"fmt"
	"os"
)

func online() ([]int, error) { return nil, fmt.Errorf("processors: %w", errors.ErrUnsupported) }

func pin(int) (release func(), err error) {
	return nil, fmt.Errorf("affinity: %w", errors.ErrUnsupported)
}

func openDisk(string) (*os.File, error) {
	return nil, fmt.Errorf("O_DIRECT: %w", errors.ErrUnsupported)
}
