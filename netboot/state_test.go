//go:build linux

package netboot

import (
	"context"
	"errors"
	"log/slog"
	"net/netip"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"ironroot/internal/goroutine"
	"ironroot/internal/pause"
	"ironroot/netboot/dhcp4"
	"ironroot/netboot/dhcp6"
	"ironroot/netboot/ifconfig"
	"ironroot/netboot/resolver"
	"ironroot/netboot/snapshot"
)

func addr(text string) netip.Addr { return netip.MustParseAddr(text) }

func prefixes(list ...string) []netip.Prefix {
	var prefixes []netip.Prefix
	for _, text := range list {
		prefixes = append(prefixes, netip.MustParsePrefix(text))
	}
	return prefixes
}

var comparePrefixes = cmp.Comparer(func(a, b netip.Prefix) bool { return a == b })

// An address that the kernel has before its routes is not published; only global addresses make a family usable.
func TestAddresses(t *testing.T) {
	var a addresses
	check := func(want []netip.Prefix, want4, want6 bool) {
		t.Helper()
		if diff := cmp.Diff(want, a.published(), comparePrefixes); diff != "" {
			t.Errorf("published addresses (-want +got):\n%s", diff)
		}
		if has4, has6 := a.families(); has4 != want4 || has6 != want6 {
			t.Errorf("families: got IPv4 %v, IPv6 %v, want %v, %v", has4, has6, want4, want6)
		}
	}
	check(nil, false, false)
	a.present = prefixes("fe80::5/64")
	a.hold(prefixes("192.0.2.5/24", "192.0.2.6/24")...)
	check(prefixes("fe80::5/64"), false, false)
	a.present = with(a.present, netip.MustParsePrefix("192.0.2.6/24"))
	a.present = with(a.present, netip.MustParsePrefix("192.0.2.5/24"))
	earlier := a
	a.release(prefixes("192.0.2.5/24")...)
	check(prefixes("192.0.2.5/24", "fe80::5/64"), true, false)
	a.present = with(with(a.present, netip.MustParsePrefix("2001:db8::5/64")), netip.MustParsePrefix("192.0.2.5/24"))
	check(prefixes("192.0.2.5/24", "2001:db8::5/64", "fe80::5/64"), true, true)
	a.present = without(a.present, prefixes("192.0.2.5/24")...)
	check(prefixes("2001:db8::5/64", "fe80::5/64"), false, true)
	a.release(prefixes("192.0.2.6/24")...)
	check(prefixes("192.0.2.6/24", "2001:db8::5/64", "fe80::5/64"), true, true)
	a = earlier
	check(prefixes("fe80::5/64"), false, false)
}

// A failure of one family's protocol counts unless the link has an address of the other family.
func TestFailures(t *testing.T) {
	down, four, six := errors.New("down"), errors.New("no lease"), errors.New("no lease of DHCPv6")
	for name, c := range map[string]struct {
		failures   failures
		has4, has6 bool
		want       error
	}{
		"none":                    {},
		"interface":               {failures{down, four, six}, true, true, down},
		"DHCPv4":                  {failures{nil, four, nil}, true, false, four},
		"DHCPv4, IPv6 address":    {failures{nil, four, nil}, false, true, nil},
		"DHCPv6":                  {failures{nil, nil, six}, false, true, six},
		"DHCPv6, IPv4 address":    {failures{nil, nil, six}, true, false, nil},
		"both, no address":        {failures{nil, four, six}, false, false, four},
		"both, IPv6 address":      {failures{nil, four, six}, false, true, six},
		"both, both have address": {failures{nil, four, six}, true, true, nil},
	} {
		t.Run(name, func(t *testing.T) {
			if got := c.failures.effective(c.has4, c.has6); !errors.Is(got, c.want) {
				t.Errorf("got %v, want %v", got, c.want)
			}
		})
	}
}

// Changes that are requested concurrently are made one at a time. Each one is published before Change returns.
func TestConcurrentChanges(t *testing.T) {
	const changes = 100
	l := panicLink(t)
	group := goroutine.NewGroup()
	for range changes {
		group.Go(func() error {
			var mine int
			l.Change(func(s *state) {
				s.mtu++
				mine = s.mtu
			})
			if got := l.State().mtu; got < mine {
				t.Errorf("got state %d after change %d returned", got, mine)
			}
			return nil
		})
	}
	if err := group.Wait(); err != nil {
		t.Fatal(err)
	}
	if got := l.State().mtu; got != changes {
		t.Errorf("got state %d, want %d", got, changes)
	}
}

// A panic of a change reaches the one who requested it. The change has no effect, and later ones are made. Each change
// that has an effect wakes the waiters.
func TestChangePanics(t *testing.T) {
	l := panicLink(t)
	changed, oops := l.links.next(), errors.New("oops")
	err := goroutine.Catch(func() error {
		l.Change(func(s *state) {
			s.mtu = 1
			panic(oops)
		})
		return nil
	})
	if got := l.State().mtu; !errors.Is(err, oops) || got != 0 || pause.Closed(changed) {
		t.Errorf("got %v and state %d, waiters woken %t, want the panic alone", err, got, pause.Closed(changed))
	}
	l.Change(func(s *state) { s.mtu = 2 })
	if got := l.State().mtu; got != 2 || !pause.Closed(changed) {
		t.Errorf("next change: got state %d, waiters woken %t, want 2 and true", got, pause.Closed(changed))
	}
}

// A published copy does not change with the state of its link.
func TestPublishedIsIndependent(t *testing.T) {
	l := panicLink(t)
	l.Change(func(s *state) {
		s.addresses.present = prefixes("192.0.2.5/24")
		s.names.static = resolver.Names{Search: []string{"a.example"}}
		s.fail(partDHCP, errors.New("no lease"))
	})
	before := l.State()
	link := before.published()
	link.MAC[0], link.Addresses[0] = 0xff, netip.Prefix{}
	l.Change(func(s *state) {
		s.addresses.hold(prefixes("192.0.2.5/24")...)
		s.fail(partDHCP, nil)
	})
	link = before.published()
	if link.MAC[0] != 2 || len(link.Addresses) != 1 || !link.Addresses[0].IsValid() || link.Err == nil {
		t.Errorf("earlier state: got %+v, want it unchanged", link)
	}
	now := l.State()
	if link := now.published(); len(link.Addresses) != 0 || link.Err != nil || link.History.LastErr == nil {
		t.Errorf("later state: got %+v, want no address, no error, and the latest failure", link)
	}
}

// A lease contradicts leases of other links whose subnets overlap and whose default routers differ.
func TestContradictions(t *testing.T) {
	lease := func(address, router string) *dhcp4.Lease {
		return &dhcp4.Lease{Address: netip.MustParsePrefix(address), Routes: []dhcp4.Route{
			{Destination: netip.MustParsePrefix("0.0.0.0/0"), Gateway: addr(router)},
		}}
	}
	on := func(index, metric int, name string, lease *dhcp4.Lease) state {
		return state{link: snapshot.Link{Index: index, Name: name, Lease: lease}, metric: metric}
	}
	own := on(2, 513, "eth1", lease("192.0.2.5/24", "192.0.2.1"))
	got := contradictions(own, own.link.Lease, []state{
		on(1, 512, "eth0", lease("192.0.2.77/25", "192.0.2.2")), own,
		on(3, 514, "eth2", lease("198.51.100.5/24", "198.51.100.1")), on(4, 0, "eth3", nil),
		on(5, 515, "eth4", lease("203.0.113.5/24", "192.0.2.1")),
	})
	want := []string{
		"default router 192.0.2.1 follows 192.0.2.2 of link eth0",
		"default router 192.0.2.1 precedes 198.51.100.1 of link eth2",
		"subnet 192.0.2.0/24 overlaps 192.0.2.0/25 of link eth0",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("contradictions (-want +got):\n%s", diff)
	}
}

// logHook calls a function at each record with a message.
type logHook struct {
	slog.Handler
	message string
	call    func()
}

func (h logHook) Handle(ctx context.Context, r slog.Record) error {
	if r.Message == h.message {
		h.call()
	}
	return h.Handler.Handle(ctx, r)
}

// The addresses of a DHCPv6 lease are known before the kernel gets them, which may report at once that another machine
// has one.
func TestDHCPv6AddressesAreKnownFirst(t *testing.T) {
	if _, inside := inNamespace(t); !inside {
		return
	}
	l := panicLink(t)
	l.lease6.source = ifconfig.NewSource(1 << 20) // no link
	granted := ifconfig.Config{Addresses: prefixes("2001:db8::10/128")}
	if err := l.lease6.source.Replace(0, granted); err == nil {
		t.Error("former lease on a link that does not exist: got no error")
	}
	l.Change(func(s *state) {
		s.granted = granted.Addresses
		s.link.Lease6 = &dhcp6.Lease{Obtained: time.Now(), Duration: time.Hour}
	})
	var known []netip.Prefix
	l.log = slog.New(logHook{
		slog.NewTextHandler(t.Output(), nil), "address replaced on renewal", func() { known = l.State().granted },
	})
	lease := &dhcp6.Lease{Addresses: []netip.Addr{addr("2001:db8::11")}, Obtained: time.Now(), Duration: time.Hour}
	if err := l.lease6.Use(lease); err == nil {
		t.Error("link that does not exist: got no error")
	}
	if diff := cmp.Diff(prefixes("2001:db8::10/128", "2001:db8::11/128"), known, comparePrefixes); diff != "" {
		t.Errorf("addresses before the kernel gets them (-want +got):\n%s", diff)
	}
}
