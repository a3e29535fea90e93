//go:build !linux

package route

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
)

// SourceFor returns an error.
func SourceFor(_ context.Context, dst netip.Addr) (netip.Addr, error) {
	return netip.Addr{}, fmt.Errorf("route to %s: %w", dst, errors.ErrUnsupported)
}
