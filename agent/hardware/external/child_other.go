//go:build !linux

package external

import (
	"errors"
	"fmt"
	"syscall"
)

// Child returns: no process is started for an executable.
func Child() {}

func (program) start() (*process, error) {
	return nil, fmt.Errorf("run external hardware manager: %w", errors.ErrUnsupported)
}

func checkExecutable(string) error {
	return fmt.Errorf("external hardware managers: %w", errors.ErrUnsupported)
}

func checkOrigin(string) error {
	return fmt.Errorf("external hardware managers: %w", errors.ErrUnsupported)
}

func attributes(uintptr) *syscall.SysProcAttr { return nil }
