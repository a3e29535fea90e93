//go:build linux

package events

import (
	"context"
	"io"
	"log/slog"
	"net/netip"
	"strings"
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

// Without enough file descriptors each subscription fails with its name, and what was subscribed to before is closed.
// Resubscribe logs that until its context ends.
func TestErrors(t *testing.T) {
	l, inside := nettest.New(t)
	if !inside {
		return
	}
	subscribe := func() error {
		s, err := Subscribe()
		if err == nil {
			s.Close()
		}
		return err
	}
	if err := subscribe(); err != nil {
		t.Fatal(err)
	}
	var usual unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &usual); err != nil {
		t.Fatal(err)
	}
	limit := func(descriptors uint64) {
		t.Helper()
		if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: descriptors, Max: usual.Max}); err != nil {
			t.Fatal(err)
		}
	}
	defer limit(usual.Cur)
	// Often enough for sockets that stay open to use up the descriptors.
	missing := map[string]int{"watch links: ": 8, "watch addresses: ": 8, "watch router advertisements: ": 8}
	ctx, cancel := context.WithTimeout(l.Ctx, nettest.Timeout)
	defer cancel()
	for n := uint64(0); len(missing) > 0; n = (n + 1) % 32 { // sockets are closed some time after Close
		if ctx.Err() != nil {
			t.Fatalf("errors that did not occur: %v", missing)
		}
		limit(n)
		err := subscribe()
		for text := range missing {
			if err == nil || !strings.HasPrefix(err.Error(), text) {
				continue
			}
			if missing[text]--; missing[text] == 0 {
				delete(missing, text)
			}
		}
	}
	limit(0)
	cancel()
	if s := Resubscribe(ctx, slog.New(slog.NewTextHandler(io.MultiWriter(t.Output(), &l.Log), nil))); s != nil {
		t.Error("context that has ended: got a subscription")
	}
	l.WaitLog(`level=WARN msg="link events were lost" err="watch links: .*too many open files"`)
}
