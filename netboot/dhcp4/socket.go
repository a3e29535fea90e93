package dhcp4

import (
	"context"
	"net"
	"net/netip"
	"time"

	"ironroot/netboot/arp"
)

// sockets opens the sockets of a client.
type sockets interface {
	// broadcast opens a socket that works without an address.
	broadcast(on *net.Interface) (net.PacketConn, error)
	// unicast opens a socket with the interface's address as its source.
	unicast(on *net.Interface, source netip.Addr) (net.PacketConn, error)
	// detect returns an *arp.ConflictError if another machine has the address.
	detect(ctx context.Context, on *net.Interface, address netip.Addr, interval time.Duration) error
}

// kernelSockets opens sockets of the kernel.
type kernelSockets struct{}

func (kernelSockets) detect(
	ctx context.Context, on *net.Interface, address netip.Addr, interval time.Duration,
) error {
	return arp.Detect(ctx, on, address, interval)
}
