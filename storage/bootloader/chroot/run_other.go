//go:build !linux

package chroot

import (
	"context"
	"errors"
	"fmt"
)

// Run returns an error: only Linux has what it needs.
func Run(context.Context, System, []string, ...string) error {
	return fmt.Errorf("run a program of the image: %w", errors.ErrUnsupported)
}

// Child returns: no process is started to enter a root.
func Child() {}
