//go:build !linux

package server

import (
	"errors"
	"fmt"
	"net"
	"syscall"
)

func openSocket(string, int, bool) (*net.UDPConn, error) {
	return nil, fmt.Errorf("socket of an interface: %w", errors.ErrUnsupported)
}

func releasePort(syscall.Conn, string) {}

func onInterface(name string) func(network, address string, raw syscall.RawConn) error {
	if name == "" {
		return nil
	}
	return func(string, string, syscall.RawConn) error {
		return fmt.Errorf("bind to interface %s: %w", name, errors.ErrUnsupported)
	}
}

func openRawSocket(string) (net.PacketConn, error) {
	return nil, fmt.Errorf("packet socket: %w", errors.ErrUnsupported)
}
