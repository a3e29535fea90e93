//go:build linux

package netboot

import (
	"log/slog"
	"net/netip"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"ironroot/netboot/plan"
	"ironroot/netboot/radv"
	"ironroot/netboot/resolver"
)

// Names of the static data come first, then names of links with static addresses in the order of the data, then names
// of leases in the order of the metrics. On one link static names precede names of DHCPv4, routers and DHCPv6.
func TestNameServersOrder(t *testing.T) {
	servers := func(list ...string) (names resolver.Names) {
		for _, text := range list {
			names.Servers = append(names.Servers, addr(text))
		}
		return names
	}
	s := newShared(Config{Log: slog.New(slog.DiscardHandler)}, nil)
	add := func(index int, change func(*state)) {
		l := newLink(s, index)
		t.Cleanup(l.End)
		l.Change(change)
		s.links.add(l)
	}
	add(1, func(s *state) {
		s.order, s.metric, s.names.dhcp4 = plan.DefaultRole().Order(), 513, servers("192.0.2.4")
	})
	add(2, func(s *state) {
		s.order, s.metric, s.names.dhcp4, s.names.dhcp6 = plan.DefaultRole().Order(), 512, servers("192.0.2.3"),
			servers("2001:db8::2")
		s.names.routers.Learn(&radv.Option{
			Lifetime: time.Hour, Servers: []netip.Addr{addr("2001:db8::1"), addr("fe80::1")},
		}, "eth2")
	})
	add(3, func(s *state) { s.order, s.names.static = 257, servers("192.0.2.2") })
	add(4, func(s *state) { s.order, s.names.static = 256, servers("192.0.2.1") })
	s.names.setCommon(servers("192.0.2.53"))
	var got []string
	for _, source := range s.names.sources() {
		for _, server := range source.Servers {
			got = append(got, server.String())
		}
	}
	want := []string{
		"192.0.2.53", "192.0.2.1", "192.0.2.2", "192.0.2.3", "2001:db8::1", "fe80::1%eth2", "2001:db8::2", "192.0.2.4",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("name servers (-want +got):\n%s", diff)
	}
}
