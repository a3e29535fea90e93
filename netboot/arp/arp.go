// Package arp detects conflicts of IPv4 addresses with ARP probes (RFC 826, RFC 5227) on Ethernet.
//
// Unlike RFC 5227 demands, callers use the address while it is probed: to wait for silence first would delay each boot
// by seconds.
package arp

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

	"github.com/mdlayher/packet"

	"ironroot/internal/goroutine"
)

// ConflictError reports that another machine uses an address.
type ConflictError struct {
	Address netip.Addr
	Owner   net.HardwareAddr
}

func (e *ConflictError) Error() string {
	return fmt.Sprintf("address %s is in use by MAC address %s", e.Address, e.Owner)
}

// etherType is the type of ARP frames.
const etherType = 0x0806

// probeCount is PROBE_NUM of RFC 5227, section 1.1.
const probeCount = 3

// Detect probes the address on an Ethernet interface: see Probe.
func Detect(ctx context.Context, on *net.Interface, address netip.Addr, interval time.Duration) error {
	conn, err := packet.Listen(on, packet.Raw, etherType, nil)
	if err != nil {
		return fmt.Errorf("open ARP socket: %w", err)
	}
	defer conn.Close() //nolint:errcheck // the socket is no longer used
	return Probe(ctx, conn, on.HardwareAddr, address, interval)
}

// Probe sends three probes for the address, one per interval, and reads ARP frames until one interval after the last
// probe. A frame that shows that another machine has the address is a *ConflictError. Frames of this machine are no
// conflict, whichever of its interfaces sent them. Probe closes conn when ctx ends.
func Probe(
	ctx context.Context, conn net.PacketConn, mac net.HardwareAddr, address netip.Addr, interval time.Duration,
) error {
	defer goroutine.AfterContext(ctx, func() { _ = conn.Close() })()
	broadcast := &packet.Addr{HardwareAddr: net.HardwareAddr{0xff, 0xff, 0xff, 0xff, 0xff, 0xff}}
	buffer := make([]byte, 1<<11)
	for range probeCount {
		if _, err := conn.WriteTo(newProbe(mac, address), broadcast); err != nil {
			return fmt.Errorf("send ARP probe: %w", err)
		}
		if err := conn.SetReadDeadline(time.Now().Add(interval)); err != nil {
			return fmt.Errorf("set deadline of ARP socket: %w", err)
		}
		if err := awaitOwner(conn, buffer, address); err != nil {
			return err
		}
	}
	return nil
}

// awaitOwner reads frames until the deadline of conn and then returns nil. If a frame shows that another machine has
// the address, it returns a *ConflictError. A frame that causes a panic is dropped.
func awaitOwner(conn net.PacketConn, buffer []byte, address netip.Addr) error {
	for {
		err := goroutine.Catch(func() error {
			n, _, err := conn.ReadFrom(buffer)
			if err != nil {
				return fmt.Errorf("read ARP frame: %w", err)
			}
			if owner, claimed, ok := parse(buffer[:n]); ok && claimed == address && !isOwn(owner) {
				return &ConflictError{address, owner}
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

// isOwn reports whether mac belongs to this machine. Linux answers on each interface for the addresses of all of them:
// if two interfaces are on one network, the machine receives its own answers.
func isOwn(mac net.HardwareAddr) bool {
	all, err := net.Interfaces()
	return err != nil ||
		slices.ContainsFunc(all, func(i net.Interface) bool { return slices.Equal(i.HardwareAddr, mac) })
}

const (
	macLen   = 6
	etherLen = 14
	arpLen   = 28 // of Ethernet and IPv4 (RFC 826)
)

// arpHead is hardware type Ethernet, protocol type IPv4, and the lengths of their addresses.
const arpHead = "\x00\x01\x08\x00\x06\x04"

// newProbe returns a frame that asks for the owner of an address. Its sender address is zero (RFC 5227, section 1.1).
func newProbe(mac net.HardwareAddr, address netip.Addr) []byte {
	frame := append([]byte("\xff\xff\xff\xff\xff\xff"), mac...)
	frame = binary.BigEndian.AppendUint16(frame, etherType)
	frame = append(append(frame, arpHead+"\x00\x01"...), mac...)
	frame = append(frame, make([]byte, 4+macLen)...)
	return append(frame, address.AsSlice()...)
}

// parse returns the sender of a frame and the address that the sender claims. ok is false without such a claim.
func parse(frame []byte) (owner net.HardwareAddr, address netip.Addr, ok bool) {
	if len(frame) < etherLen+arpLen || binary.BigEndian.Uint16(frame[12:]) != etherType ||
		string(frame[etherLen:etherLen+len(arpHead)]) != arpHead {
		return nil, netip.Addr{}, false
	}
	sender := frame[etherLen+8:]
	address = netip.AddrFrom4([4]byte(sender[macLen:]))
	return slices.Clone(sender[:macLen]), address, !address.IsUnspecified()
}
