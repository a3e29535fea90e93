//go:build !linux

package dhcp6

import (
	"context"
	"errors"
	"fmt"
	"net"
)

func (kernelTransport) listen(context.Context, string) (net.PacketConn, error) {
	return nil, fmt.Errorf("socket of an interface: %w", errors.ErrUnsupported)
}
