//go:build !linux

package devmapper

import (
	"errors"
	"fmt"
)

var errUnsupported = fmt.Errorf("device mapper: %w", errors.ErrUnsupported)

// Control cannot be opened.
type Control struct{}

// Open returns an error: only Linux has the device mapper.
func Open() (*Control, error) { return nil, errUnsupported }

// Close returns an error.
func (*Control) Close() error { return errUnsupported }

// Create returns an error.
func (*Control) Create(Map) (string, error) { return "", errUnsupported }

// Reload returns an error.
func (*Control) Reload(string, []Target) error { return errUnsupported }

// Remove returns an error.
func (*Control) Remove(string) error { return errUnsupported }

// Targets returns an error.
func (*Control) Targets(string) ([]Target, error) { return nil, errUnsupported }
