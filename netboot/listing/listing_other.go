//go:build !linux

package listing

import (
	"errors"
	"fmt"

	"github.com/vishvananda/netlink"
)

// Whole calls list once.
func Whole[T any](list func() ([]T, error)) ([]T, error) { return list() }

// Links returns an error.
func Links() ([]netlink.Link, error) { return nil, fmt.Errorf("list links: %w", errors.ErrUnsupported) }

// Addresses returns an error.
func Addresses() ([]netlink.Addr, error) {
	return nil, fmt.Errorf("list addresses: %w", errors.ErrUnsupported)
}
