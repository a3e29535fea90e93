//go:build !linux

package kmod

import (
	"errors"
	"fmt"
)

func insert([]byte, string) error { return fmt.Errorf("kernel modules: %w", errors.ErrUnsupported) }

func insertFile(string, string) error { return fmt.Errorf("kernel modules: %w", errors.ErrUnsupported) }
