package server

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"time"

	"github.com/insomniacslk/dhcp/dhcpv4"
	"github.com/insomniacslk/dhcp/iana"

	"ironroot/internal/goroutine"
)

// Other is another DHCP server of a network.
type Other struct {
	Server    netip.Addr // as it identifies itself; invalid if it does not
	Addresses bool       // it assigns addresses; otherwise it is a proxy
	BootFile  string     // what it offers to machines that boot from the network; "" for nothing
}

// probeInterval is the time between two requests of a probe. Servers reply late if they first check that nobody has
// the address: dnsmasq after 3 s.
const probeInterval = 1500 * time.Millisecond

// Probe requests an address on an interface, as PXE firmware does, and returns the servers that offer something within
// the time. It takes none of the addresses. It returns early if ctx ends, without an error.
func Probe(ctx context.Context, name string, limit time.Duration) ([]Other, error) {
	found, err := probe(ctx, name, limit)
	if err != nil {
		return nil, fmt.Errorf("search for other DHCP servers on %s: %w", name, err)
	}
	return found, nil
}

func probe(ctx context.Context, name string, limit time.Duration) ([]Other, error) {
	link, err := net.InterfaceByName(name)
	if err != nil {
		return nil, err
	}
	if len(link.HardwareAddr) != 6 {
		return nil, fmt.Errorf("hardware address %s: want one of Ethernet", link.HardwareAddr)
	}
	conn, err := openRawSocket(name)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	stop := goroutine.AfterContext(ctx, func() { _ = conn.SetReadDeadline(time.Unix(1, 0)) })
	found, err := exchange(ctx, conn, link.HardwareAddr)
	stop()
	return found, errors.Join(err, conn.Close())
}

// exchange sends requests until ctx ends, and collects the offers.
func exchange(ctx context.Context, conn net.PacketConn, mac net.HardwareAddr) ([]Other, error) {
	discover, err := dhcpv4.NewDiscovery(mac, dhcpv4.WithBroadcast(true),
		dhcpv4.WithOption(dhcpv4.OptClassIdentifier(pxeClass+":Arch:00007:UNDI:003016")),
		dhcpv4.WithOption(dhcpv4.OptClientArch(iana.EFI_X86_64)))
	if err != nil {
		return nil, err
	}
	var found []Other
	buffer := make([]byte, maxMessage)
	for next := time.Now(); ; {
		if now := time.Now(); !now.Before(next) {
			to := &net.UDPAddr{IP: net.IPv4bcast, Port: dhcpv4.ServerPort}
			if _, err := conn.WriteTo(discover.ToBytes(), to); err != nil {
				return nil, err
			}
			next = now.Add(probeInterval)
		}
		if err := conn.SetReadDeadline(next); err != nil {
			return nil, err
		}
		select {
		case <-ctx.Done(): // checked after the deadline was set, because the end of ctx changes the deadline
			return found, nil
		default:
		}
		n, _, err := conn.ReadFrom(buffer)
		if errors.Is(err, os.ErrDeadlineExceeded) {
			continue
		}
		if err != nil {
			return nil, err
		}
		if other, ok := offered(buffer[:n], discover.TransactionID); ok {
			found = merge(found, other)
		}
	}
}

// offered returns the server that sent an offer. It reports whether the message is one, in reply to the transaction.
func offered(message []byte, id dhcpv4.TransactionID) (Other, bool) {
	m, err := dhcpv4.FromBytes(message)
	if err != nil || m.OpCode != dhcpv4.OpcodeBootReply || m.TransactionID != id {
		return Other{}, false
	}
	if kind := m.MessageType(); kind != dhcpv4.MessageTypeOffer && kind != dhcpv4.MessageTypeNone {
		return Other{}, false // a message without a type is BOOTP, which assigns addresses, too
	}
	server, _ := netip.AddrFromSlice(m.ServerIdentifier().To4())
	return Other{
		Server: server, Addresses: !m.YourIPAddr.IsUnspecified(), BootFile: bootFile(m),
	}, true
}

// maxOthers limits the number of servers that a probe returns.
const maxOthers = 32

func merge(found []Other, other Other) []Other {
	for i := range found {
		if found[i].Server == other.Server {
			found[i] = other
			return found
		}
	}
	if len(found) == maxOthers {
		return found
	}
	return append(found, other)
}
