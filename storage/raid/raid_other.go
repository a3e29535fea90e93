//go:build !linux

package raid

import (
	"context"
	"errors"
	"fmt"

	"ironroot/storage/sysfs"
)

var errUnsupported = fmt.Errorf("software RAID: %w", errors.ErrUnsupported)

// Create returns an error: only Linux has md arrays.
func Create(context.Context, sysfs.Root, Options) (string, error) { return "", errUnsupported }

// Stop returns an error.
func Stop(context.Context, string) error { return errUnsupported }

// Assemble returns an error.
func Assemble(context.Context, sysfs.Root, int, string, []string) (string, error) {
	return "", errUnsupported
}

// Resync returns an error.
func Resync(string) error { return errUnsupported }
