//go:build !linux

package uevent

import (
	"errors"
	"fmt"
)

func openSocket(int) (int, error) {
	return -1, fmt.Errorf("open uevent socket: %w", errors.ErrUnsupported)
}
