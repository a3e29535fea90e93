package arp

import (
	"errors"
	"net"
	"net/netip"
	"os"
	"testing"
	"time"

	"ironroot/internal/test/testenv"
	"ironroot/internal/test/testenv/nettest"
)

func addr(text string) netip.Addr { return netip.MustParseAddr(text) }

func TestDetect(t *testing.T) {
	l, inside := nettest.New(t)
	if !inside {
		return
	}
	l.Cable("nic0", "192.0.2.10/24")
	l.SetPeer("nic0", true)
	nic := l.Raise("nic0")
	l.Active("nic0")
	const interval = 200 * time.Millisecond
	var conflict *ConflictError
	var owner net.HardwareAddr
	l.Peer(func() error {
		peer, err := net.InterfaceByName("peer-nic0")
		if err == nil {
			owner = peer.HardwareAddr
		}
		return err
	})
	err := Detect(l.Ctx, nic, addr("192.0.2.10"), nettest.Timeout) // returns at the first reply
	if !errors.As(err, &conflict) || conflict.Owner.String() != owner.String() ||
		conflict.Address != addr("192.0.2.10") {
		t.Errorf("address of the peer: got %v, want a conflict with %v", err, owner)
	}
	started := time.Now()
	if err := Detect(l.Ctx, nic, addr("192.0.2.11"), interval); err != nil {
		t.Errorf("free address: got %v, want no error", err)
	}
	if took := time.Since(started); took < probeCount*interval {
		t.Errorf("free address: probed for %v, want %v", took, probeCount*interval)
	}
	gone := &net.Interface{Index: 1 << 20, HardwareAddr: nic.HardwareAddr}
	if err := Detect(l.Ctx, gone, addr("192.0.2.11"), interval); err == nil {
		t.Error("missing interface: got no error")
	}
}

// A frame that causes a panic is dropped; the next one shows another owner of the address.
func TestAwaitOwnerContainsPanics(t *testing.T) {
	testenv.ExpectPanics(t)
	address := addr("192.0.2.9")
	claim := newProbe(net.HardwareAddr{2, 0xde, 0xad, 0xbe, 0xef, 1}, address)
	copy(claim[etherLen+8+macLen:], address.AsSlice()) // the sender's address
	broken := func([]byte) (int, error) { panic("in the socket") }
	over := func([]byte) (int, error) { return 0, os.ErrDeadlineExceeded }
	var conflict *ConflictError
	conn := &nettest.Conn{Reads: []func([]byte) (int, error){broken, nettest.Packet(claim)}}
	if err := awaitOwner(conn, make([]byte, 1<<11), address); !errors.As(err, &conflict) {
		t.Errorf("got %v, want the conflict", err)
	}
	conn = &nettest.Conn{Reads: []func([]byte) (int, error){broken, over}}
	if err := awaitOwner(conn, make([]byte, 1<<11), address); err != nil {
		t.Errorf("got %v at the end of the wait, want no error", err)
	}
}

func FuzzParse(f *testing.F) {
	f.Add(newProbe(net.HardwareAddr{2, 0, 0, 0, 0, 1}, addr("192.0.2.1")))
	f.Add([]byte("\xff\xff\xff\xff\xff\xff\x02\x00\x00\x00\x00\x02\x08\x06" + arpHead +
		"\x00\x02\x02\x00\x00\x00\x00\x02\xc0\x00\x02\x0a\x02\x00\x00\x00\x00\x01\xc0\x00\x02\x01"))
	f.Fuzz(func(t *testing.T, frame []byte) {
		owner, address, ok := parse(frame)
		if ok && (len(owner) != macLen || !address.Is4() || address.IsUnspecified() || len(frame) < etherLen+arpLen) {
			t.Errorf("got %v %v", owner, address)
		}
	})
}
