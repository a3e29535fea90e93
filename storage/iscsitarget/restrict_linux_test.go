package iscsitarget

import (
	"errors"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"ironroot/internal/test/testenv"
	"ironroot/internal/test/testenv/nettest"
)

// Only the peer's address can connect to the restricted port. The other ports, the machine itself, and everybody after
// the restriction are not affected.
func TestRestrict(t *testing.T) {
	l, inside := nettest.New(t)
	if !inside {
		return
	}
	l.Cable("eth0", "192.0.2.1/24")
	l.AddPeerAddress("eth0", "192.0.2.2/24")
	l.AddPeerAddress("eth0", "2001:db8::1/64")
	l.AddPeerAddress("eth0", "2001:db8::2/64")
	nettest.Configure(t, "eth0", "192.0.2.7/24", "2001:db8::7/64")
	nettest.Configure(t, "lo")
	for _, c := range []struct{ local, peer, other string }{
		{"192.0.2.7", "192.0.2.1", "192.0.2.2"},
		{"2001:db8::7", "2001:db8::1", "2001:db8::2"},
	} {
		listen := func() netip.AddrPort {
			listener, err := net.Listen("tcp", net.JoinHostPort(c.local, "0"))
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = listener.Close() })
			return listener.Addr().(*net.TCPAddr).AddrPort()
		}
		portal, open := listen(), listen()
		dial := func(from string, to netip.AddrPort, limit time.Duration) error {
			d := net.Dialer{Timeout: limit}
			if from != "" {
				d.LocalAddr = &net.TCPAddr{IP: net.ParseIP(from)}
			}
			conn, err := d.Dial("tcp", to.String())
			if err == nil {
				_ = conn.Close()
			}
			return err
		}
		// reach connects from the other machine.
		reach := func(from string, to netip.AddrPort, limit time.Duration) (err error) {
			l.Peer(func() error {
				err = dial(from, to, limit)
				return nil
			})
			return err
		}
		access, err := systemKernel{}.restrict(portal, netip.MustParseAddr(c.peer))
		if err != nil {
			t.Fatal(err)
		}
		if err := reach(c.peer, portal, nettest.Timeout); err != nil {
			t.Errorf("peer: %v", err)
		}
		var timeout net.Error
		if err := reach(c.other, portal, 3*time.Second); !errors.As(err, &timeout) || !timeout.Timeout() {
			t.Errorf("another address: got %v, want a timeout", err)
		}
		if err := reach(c.other, open, nettest.Timeout); err != nil {
			t.Errorf("another port: %v", err)
		}
		if err := dial("", portal, nettest.Timeout); err != nil {
			t.Errorf("the machine itself: %v", err)
		}
		if _, err := (systemKernel{}).restrict(portal, netip.MustParseAddr(c.peer)); !errors.Is(err, unix.EEXIST) {
			t.Errorf("twice: got %v, want %v", err, unix.EEXIST)
		}
		if err := access.lift(); err != nil {
			t.Error(err)
		}
		if err := reach(c.other, portal, nettest.Timeout); err != nil {
			t.Errorf("another address after the restriction: %v", err)
		}
	}
}

// A device that is in use is not free.
func TestCheckFree(t *testing.T) {
	path := filepath.Join(t.TempDir(), "disk")
	if err := os.WriteFile(path, make([]byte, 1<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	device := testenv.Loop(t, path, 512)
	if err := (systemKernel{}).checkFree(t.Context(), device); err != nil {
		t.Errorf("free: got %v", err)
	}
	holder, err := os.OpenFile(device, os.O_RDWR|unix.O_EXCL, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer holder.Close()
	if err := (systemKernel{}).checkFree(t.Context(), device); !errors.Is(err, unix.EBUSY) {
		t.Errorf("in use: got %v, want %v", err, unix.EBUSY)
	}
}
