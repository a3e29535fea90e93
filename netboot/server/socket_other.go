//go:build !linux

package server

import (
	"errors"
	"fmt"
	"net"
)

func openSocket(string, int, bool) (*net.UDPConn, error) {
	return nil, fmt.Errorf("socket of an interface: %w", errors.ErrUnsupported)
}

func openRawSocket(string) (net.PacketConn, error) {
	return nil, fmt.Errorf("packet socket: %w", errors.ErrUnsupported)
}
