//go:build !linux

package kmod

import (
	"errors"
	"fmt"
)

func (hostKernel) insert([]byte, string) error {
	return fmt.Errorf("kernel modules: %w", errors.ErrUnsupported)
}

func (hostKernel) insertFile(string, string) error {
	return fmt.Errorf("kernel modules: %w", errors.ErrUnsupported)
}
