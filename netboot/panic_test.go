//go:build linux

package netboot

import (
	"context"
	"log/slog"
	"net"
	"net/netip"
	"sync/atomic"
	"testing"
	"time"

	"ironroot/internal/goroutine"
	"ironroot/internal/test/testenv"
	"ironroot/netboot/networkdata"
	"ironroot/netboot/snapshot"
)

// panicLink returns a link that does not exist in the kernel.
func panicLink(t *testing.T) *link {
	t.Helper()
	s := newShared(Config{Log: slog.New(slog.DiscardHandler), timing: defaultTiming}, nil)
	s.timing.DHCP.First = time.Millisecond
	l := newLink(s, 1)
	t.Cleanup(l.End)
	l.Change(func(s *state) { s.link.MAC = net.HardwareAddr{2, 0, 0, 0, 0, 1} })
	return l
}

// panicOnce is a log handler that panics at the first record with a message.
type panicOnce struct {
	slog.Handler
	message string
	done    atomic.Bool
}

func (h *panicOnce) Handle(ctx context.Context, r slog.Record) error {
	if r.Message == h.message && !h.done.Swap(true) {
		panic("at a link")
	}
	return h.Handler.Handle(ctx, r)
}

// After a panic while links are taken over from static data, the network reads the kernel's state again and uses the
// links that are there and those that appear later.
func TestWatchContainsPanics(t *testing.T) {
	testenv.ExpectPanics(t)
	l, inside := inNamespace(t)
	if !inside {
		return
	}
	l.Cable("eth0", "")
	handler := &panicOnce{Handler: slog.NewTextHandler(l.T.Output(), nil), message: "link found"}
	n, err := Start(l.Ctx, Config{
		Log: slog.New(handler), virtual: true, ResolvConf: l.resolv,
		Data: &networkdata.Data{DNS: []netip.Addr{addr("192.0.2.53")}}, timing: quick,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		n.stop()
		<-n.watching
	})
	l.until(n, "a link that is up", func(links map[string]snapshot.Link) bool { return links["eth0"].Up })
	if !handler.done.Load() {
		t.Error("there was no panic")
	}
	l.Cable("eth1", "")
	l.until(n, "a second link that is up", func(links map[string]snapshot.Link) bool { return links["eth1"].Up })
}

// After a panic while a link waits for its carrier, it requests a lease nevertheless, although its other parts go on.
func TestCarrierContainsPanics(t *testing.T) {
	testenv.ExpectPanics(t)
	l, inside := inNamespace(t)
	if !inside {
		return
	}
	l.Cable("eth0", "")
	l.SetPeer("eth0", false)
	handler := &panicOnce{
		Handler: slog.NewTextHandler(l.T.Output(), nil), message: "no carrier, continuing without it",
	}
	n, err := Start(l.Ctx, Config{
		Log: slog.New(handler), virtual: true, ResolvConf: l.resolv, timing: quick,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		n.stop()
		<-n.watching
	})
	l.until(n, "a request", func(links map[string]snapshot.Link) bool { return links["eth0"].History.DHCP.Sent > 0 })
	if !handler.done.Load() {
		t.Error("there was no panic")
	}
}

// A function that a link runs is called again after a panic.
func TestLinkContainsPanics(t *testing.T) {
	testenv.ExpectPanics(t)
	l := panicLink(t)
	ended := make(chan int)
	goroutine.Go(func() error {
		calls := 0
		l.persist(t.Context(), func() {
			if calls++; calls < 3 {
				panic("oops")
			}
		})
		ended <- calls
		return nil
	}, nil)
	if calls := <-ended; calls != 3 {
		t.Errorf("got %d calls, want 3", calls)
	}
}
