//go:build !linux

package dhcp4

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
)

func (kernelSockets) broadcast(*net.Interface) (net.PacketConn, error) {
	return nil, fmt.Errorf("packet socket: %w", errors.ErrUnsupported)
}

func (kernelSockets) unicast(*net.Interface, netip.Addr) (net.PacketConn, error) {
	return nil, fmt.Errorf("socket of an interface: %w", errors.ErrUnsupported)
}
