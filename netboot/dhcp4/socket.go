package dhcp4

import (
	"net"
	"net/netip"
)

// sockets opens the sockets of a client.
type sockets interface {
	// broadcast opens a socket that works without an address.
	broadcast(on *net.Interface) (net.PacketConn, error)
	// unicast opens a socket with the interface's address as its source.
	unicast(on *net.Interface, source netip.Addr) (net.PacketConn, error)
}

// kernelSockets opens sockets of the kernel.
type kernelSockets struct{}
