//go:build linux

package events

import (
	"context"
	"io"
	"log/slog"
	"net/netip"
	"testing"
	"testing/synctest"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"ironroot/internal/test/testenv/nettest"
	"ironroot/netboot/ifconfig"
	"ironroot/netboot/radv"
)

// Links that appear and disappear and their addresses are reported. After Close the channels are emptied and closed.
func TestEvents(t *testing.T) {
	l, inside := nettest.New(t)
	if !inside {
		return
	}
	s := Resubscribe(l.Ctx, slog.New(slog.NewTextHandler(t.Output(), nil)))
	timeout := time.After(nettest.Timeout)
	link := func(kind uint16) {
		t.Helper()
		for {
			select {
			case event := <-s.Links:
				if event.Header.Type == kind && event.Attrs().Name == "nic0" {
					return
				}
			case <-timeout:
				t.Fatalf("no event of type %d of nic0", kind)
			}
		}
	}
	l.Cable("nic0", "")
	link(unix.RTM_NEWLINK)
	nic0 := ifconfig.ByIndex(l.Raise("nic0").Index)
	address := netip.MustParsePrefix("192.0.2.5/24")
	if err := netlink.AddrAdd(nic0, &netlink.Addr{IPNet: ifconfig.IPNet(address)}); err != nil {
		t.Fatal(err)
	}
	for found := false; !found; {
		select {
		case event := <-s.Addresses:
			found = event.NewAddr && event.LinkAddress.String() == address.String()
		case <-timeout:
			t.Fatal("no event of the address")
		}
	}
	if err := netlink.LinkDel(nic0); err != nil {
		t.Fatal(err)
	}
	link(unix.RTM_DELLINK)
	s.Close()
	for open := true; open; {
		select {
		case _, open = <-s.Links:
		case <-timeout:
			t.Fatal("links not closed")
		}
	}
}

// Close lets the readers end that wait to send an event. A channel that was not subscribed to is ignored. Goroutines
// that do not end fail the test.
func TestClose(t *testing.T) {
	synctest.Test(t, func(*testing.T) {
		s := &Subscription{done: make(chan struct{})}
		s.Links = sending[netlink.LinkUpdate](s.done)
		s.Addresses = sending[netlink.AddrUpdate](s.done)
		s.Routers = sending[radv.Advertisement](s.done)
		synctest.Wait()
		s.Close()
	})
	synctest.Test(t, func(*testing.T) {
		s := &Subscription{done: make(chan struct{})}
		s.Close()
	})
}

// sending returns a channel that is closed when done is closed and two values have been received.
func sending[T any](done <-chan struct{}) <-chan T {
	events := make(chan T)
	go func() {
		defer close(events)
		for range 2 {
			events <- *new(T)
		}
		<-done
	}()
	return events
}

// Resubscribe logs the error of a subscription until its context ends.
func TestErrors(t *testing.T) {
	l, inside := nettest.New(t)
	if !inside {
		return
	}
	var usual unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &usual); err != nil {
		t.Fatal(err)
	}
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Max: usual.Max}); err != nil {
		t.Fatal(err)
	}
	defer unix.Setrlimit(unix.RLIMIT_NOFILE, &usual) //nolint:errcheck // the process ends
	ctx, cancel := context.WithCancel(l.Ctx)
	cancel()
	if s := Resubscribe(ctx, slog.New(slog.NewTextHandler(io.MultiWriter(t.Output(), &l.Log), nil))); s != nil {
		t.Error("context that has ended: got a subscription")
	}
	l.WaitLog(`level=WARN msg="link events were lost" err="watch links: .*too many open files"`)
}
