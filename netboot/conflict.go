package netboot

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"
	"time"

	"github.com/insomniacslk/dhcp/dhcpv4"
	"github.com/mdlayher/packet"
	"golang.org/x/sys/unix"

	"ironroot/internal/goroutine"
)

// conflictError says that another machine has the address of a lease.
type conflictError struct {
	address netip.Addr
	owner   net.HardwareAddr
}

func (e *conflictError) Error() string {
	return fmt.Sprintf("address %s belongs to the machine with MAC address %s already", e.address, e.owner)
}

const (
	probes = 3 // RFC 5227, section 1.1
	// maxDeclines is how often in a row a server may give an address that has another owner. After that it is used all the
	// same: a machine that is in doubt half of the time is better than one that nobody reaches at all.
	maxDeclines = 2
)

// detectConflict asks by ARP who else has an address (RFC 5227) that is used already, because to wait for silence would
// cost every boot seconds. The channel gets the error when somebody answers.
func (l *link) detectConflict(ctx context.Context, address netip.Addr) <-chan error {
	found := make(chan error, 1)
	state := l.snapshot()
	if l.declines >= maxDeclines {
		l.network.log.Warn("address is used although another machine seems to have it", "interface", state.Name, "address", address)
		return found
	}
	if len(state.MAC) != macLen {
		return found
	}
	goroutine.Go(func() error { return probe(ctx, state, address, l.network.timing.first) }, func(err error) {
		var conflict *conflictError
		switch {
		case ctx.Err() != nil:
		case errors.As(err, &conflict):
			found <- err
		default:
			l.network.log.Debug("no other owner of the address was heard", "interface", state.Name, "address", address, "err", err)
		}
	})
	return found
}

// isOwn reports whether this machine has a MAC address. It answers for each of its addresses on every card: on two
// cards of one network it hears itself.
func isOwn(mac net.HardwareAddr) bool {
	all, err := net.Interfaces()
	return err != nil || slices.ContainsFunc(all, func(i net.Interface) bool { return slices.Equal(i.HardwareAddr, mac) })
}

// probe sends the probes, one every interval, and listens as long.
func probe(ctx context.Context, on Link, address netip.Addr, interval time.Duration) error {
	conn, err := packet.Listen(&net.Interface{Index: on.Index}, packet.Raw, unix.ETH_P_ARP, nil)
	if err != nil {
		return fmt.Errorf("open ARP socket: %w", err)
	}
	defer conn.Close() //nolint:errcheck // a socket that is thrown away
	defer goroutine.AfterContext(ctx, func() { _ = conn.Close() })()
	everybody := &packet.Addr{HardwareAddr: net.HardwareAddr{0xff, 0xff, 0xff, 0xff, 0xff, 0xff}}
	frame := make([]byte, 1<<11)
	for range probes {
		if _, err := conn.WriteTo(arpProbe(on.MAC, address), everybody); err != nil {
			return fmt.Errorf("send ARP probe: %w", err)
		}
		if err := conn.SetReadDeadline(time.Now().Add(interval)); err != nil {
			return fmt.Errorf("listen to ARP: %w", err)
		}
		if err := awaitOwner(conn, frame, address); err != nil {
			return err
		}
	}
	return nil
}

// awaitOwner reads frames until the deadline of conn and then returns nil. If a frame shows that another machine has the
// address, it returns a *conflictError. A frame that causes a panic is dropped.
func awaitOwner(conn net.PacketConn, frame []byte, address netip.Addr) error {
	for {
		err := goroutine.Catch(func() error {
			n, _, err := conn.ReadFrom(frame)
			if err != nil {
				return fmt.Errorf("listen to ARP: %w", err)
			}
			if owner, of, ok := parseARP(frame[:n]); ok && of == address && !isOwn(owner) {
				return &conflictError{address, owner}
			}
			return nil
		})
		var caught *goroutine.PanicError
		switch {
		case errors.Is(err, os.ErrDeadlineExceeded):
			return nil
		case err != nil && !errors.As(err, &caught):
			return err
		}
	}
}

const (
	macLen   = 6
	etherLen = 14
	arpLen   = 28 // of Ethernet and IPv4 (RFC 826)
)

// arpHead is hardware Ethernet, protocol IPv4, and the lengths of their addresses.
const arpHead = "\x00\x01\x08\x00\x06\x04"

// arpProbe is a frame that asks who has an address, and says nothing of who asks but the MAC address.
func arpProbe(mac net.HardwareAddr, address netip.Addr) []byte {
	frame := append([]byte("\xff\xff\xff\xff\xff\xff"), mac...)
	frame = binary.BigEndian.AppendUint16(frame, unix.ETH_P_ARP)
	frame = append(append(frame, arpHead+"\x00\x01"...), mac...)
	frame = append(frame, make([]byte, 4+macLen)...)
	return append(frame, address.AsSlice()...)
}

// parseARP reads who says of himself in a frame that he has an address.
func parseARP(frame []byte) (owner net.HardwareAddr, address netip.Addr, ok bool) {
	if len(frame) < etherLen+arpLen || binary.BigEndian.Uint16(frame[12:]) != unix.ETH_P_ARP || string(frame[etherLen:etherLen+len(arpHead)]) != arpHead {
		return nil, netip.Addr{}, false
	}
	sender := frame[etherLen+8:]
	address = netip.AddrFrom4([4]byte(sender[macLen:]))
	return slices.Clone(sender[:macLen]), address, !address.IsUnspecified()
}

// decline tells the server that its address has another owner (RFC 2131, section 4.4.4). There is no answer to that.
func (l *link) decline(lease *Lease) {
	l.declines++
	message, err := newMessage(l.snapshot().MAC, dhcpv4.MessageTypeDecline,
		dhcpv4.WithOption(dhcpv4.OptRequestedIPAddress(lease.Address.Addr().AsSlice())),
		dhcpv4.WithOption(dhcpv4.OptServerIdentifier(lease.Server.AsSlice())))
	if err == nil {
		var conn net.PacketConn
		if conn, err = l.broadcast(); err == nil {
			_, err = conn.WriteTo(message.ToBytes(), &net.UDPAddr{IP: net.IPv4bcast, Port: dhcpv4.ServerPort})
			err = errors.Join(err, conn.Close())
		}
	}
	if err != nil {
		l.network.log.Debug("address not declined", "interface", l.name(), "err", err)
	}
}
