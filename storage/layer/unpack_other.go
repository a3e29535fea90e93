//go:build !linux

package layer

import (
	"context"
	"errors"
	"fmt"
	"io"
)

// Unpacker unpacks layers on Linux.
type Unpacker struct{}

// NewUnpacker returns an error: only Linux has what it needs.
func NewUnpacker(string, Limits) (*Unpacker, error) {
	return nil, fmt.Errorf("unpack layers: %w", errors.ErrUnsupported)
}

// Close returns nil.
func (u *Unpacker) Close() error { return nil }

// Unpack returns an error.
func (u *Unpacker) Unpack(context.Context, io.Reader) error {
	return fmt.Errorf("unpack layer: %w", errors.ErrUnsupported)
}
