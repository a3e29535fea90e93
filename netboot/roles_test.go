//go:build linux

package netboot

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"testing"

	"github.com/vishvananda/netlink"

	"ironroot/internal/goroutine"
	"ironroot/internal/test/testenv/nettest"
	"ironroot/netboot/ifconfig"
	"ironroot/netboot/plan"
)

// A link that is gone ends after its role, which still changes the state. One without a role ends at once.
func TestAssignmentEnd(t *testing.T) {
	s := newShared(Config{Log: slog.New(slog.DiscardHandler)}, nil)
	running := goroutine.NewGroup()
	idle := &assignment{link: newLink(s, 1)}
	idle.end(running)
	idle.link.Change(func(s *state) { s.mtu = 1500 })
	if got := idle.link.State().mtu; got != 0 {
		t.Errorf("change after the end: got state %d, want 0", got)
	}

	canceled := false
	busy := &assignment{link: newLink(s, 2), cancel: func() { canceled = true }, ended: make(chan struct{})}
	busy.end(running)
	busy.link.Change(func(s *state) { s.mtu = 1500 })
	if got := busy.link.State().mtu; got != 1500 || !canceled {
		t.Errorf("role that has not ended: got state %d, canceled %v, want 1500, true", got, canceled)
	}
	close(busy.ended)
	if err := running.Wait(); err != nil {
		t.Fatal(err)
	}
	busy.link.Change(func(s *state) { s.mtu = 9000 })
	if got := busy.link.State().mtu; got != 1500 {
		t.Errorf("change after the end: got state %d, want 1500", got)
	}
}

// A link leaves its bond although the next role is replaced before it begins.
func TestLeaveBond(t *testing.T) {
	l, inside := nettest.New(t)
	if !inside {
		return
	}
	log := slog.New(slog.NewTextHandler(io.MultiWriter(t.Output(), &l.Log), nil))
	s := newShared(Config{Log: log, timing: quick}, nil)
	ctx, cancel := context.WithCancel(l.Ctx)
	running := goroutine.NewGroup()
	use := func(index int, name string) *assignment {
		a := &assignment{link: newLink(s, index)}
		a.link.Change(func(s *state) { s.link.Name, s.link.Carrier = name, true })
		s.links.add(a.link)
		return a
	}
	bond := use(l.Bridge("bond0"), "bond0")
	l.Cable("nic0", "")
	nic0 := use(l.Raise("nic0").Index, "nic0")
	master := func() int {
		link, err := netlink.LinkByIndex(nic0.link.index)
		if err != nil {
			t.Fatal(err)
		}
		return link.Attrs().MasterIndex
	}
	done := make(chan struct{})
	defer close(done)
	links, addresses := make(chan netlink.LinkUpdate, 64), make(chan netlink.AddrUpdate, 64)
	if err := errors.Join(netlink.LinkSubscribe(links, done), netlink.AddrSubscribe(addresses, done)); err != nil {
		t.Fatal(err)
	}
	nic0.start(ctx, "member", plan.Role{Bond: "bond0"}, running)
	for master() != bond.link.index {
		select {
		case <-links:
		case <-l.Ctx.Done():
			t.Fatalf("got master %d, want %d", master(), bond.link.index)
		}
	}
	ended, gate := nic0.ended, make(chan struct{}) // the second role waits until the third one has been given
	nic0.ended = gate
	static := ifconfig.Config{Addresses: prefixes("192.0.2.5/24")}
	for _, r := range []plan.Role{{Wait: true}, {Static: static}} {
		nic0.start(ctx, "", r, running)
	}
	<-ended
	close(gate)
	for added := ""; added != "192.0.2.5/24"; {
		select {
		case update := <-addresses:
			added = update.LinkAddress.String()
		case <-l.Ctx.Done():
			t.Fatal("got no static address")
		}
	}
	if got := master(); got != 0 {
		t.Errorf("got master %d after the role has changed, want none", got)
	}
	cancel()
	for _, a := range []*assignment{bond, nic0} {
		a.end(running)
	}
	if err := running.Wait(); err != nil {
		t.Fatal(err)
	}
}
