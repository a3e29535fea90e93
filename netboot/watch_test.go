//go:build linux

package netboot

import (
	"context"
	"net"
	"net/netip"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"ironroot/internal/goroutine"
	"ironroot/netboot/plan"
)

// Addresses count while the kernel has them and they are unique. The DHCPv6 client hears of duplicates of its own
// addresses only. Addresses of links that are not in use yet are remembered.
func TestHandleAddress(t *testing.T) {
	l := panicLink(t)
	w := &watcher{
		shared: l.shared, used: map[int]*assignment{l.index: {link: l}}, addresses: map[int][]netip.Prefix{},
	}
	l.Change(func(s *state) { s.granted = prefixes("2001:db8::10/128") })
	for _, c := range []struct {
		event     string
		index     int
		address   string
		added     bool
		flags     int
		want      []netip.Prefix
		duplicate bool
	}{
		{"another link", 7, "198.51.100.5/24", true, 0, nil, false},
		{"IPv4 address", 1, "192.0.2.5/24", true, unix.IFA_F_PERMANENT, prefixes("192.0.2.5/24"), false},
		{"the same again", 1, "192.0.2.5/24", true, 0, prefixes("192.0.2.5/24"), false},
		{"tentative", 1, "2001:db8::10/128", true, unix.IFA_F_TENTATIVE, prefixes("192.0.2.5/24"), false},
		{"unique", 1, "2001:db8::10/128", true, 0, prefixes("192.0.2.5/24", "2001:db8::10/128"), false},
		{"duplicate", 1, "2001:db8::10/128", true, unix.IFA_F_DADFAILED, prefixes("192.0.2.5/24"), true},
		{
			"duplicate of a router's subnet", 1, "2001:db8::77/64", true, unix.IFA_F_DADFAILED,
			prefixes("192.0.2.5/24"), false,
		},
		{"removed", 1, "192.0.2.5/24", false, 0, nil, false},
	} {
		ip, subnet, err := net.ParseCIDR(c.address)
		if err != nil {
			t.Fatal(err)
		}
		w.handleAddress(netlink.AddrUpdate{
			LinkIndex: c.index, LinkAddress: net.IPNet{IP: ip, Mask: subnet.Mask}, NewAddr: c.added, Flags: c.flags,
		})
		now := l.State()
		if diff := cmp.Diff(c.want, now.addresses.published(), comparePrefixes); diff != "" {
			t.Errorf("%s: addresses (-want +got):\n%s", c.event, diff)
		}
		if got := len(l.duplicate) == 1; got != c.duplicate {
			t.Errorf("%s: client informed: got %v, want %v", c.event, got, c.duplicate)
		}
		l.duplicate.clear()
	}
	if diff := cmp.Diff(prefixes("198.51.100.5/24"), w.addresses[7], comparePrefixes); diff != "" {
		t.Errorf("link that is not in use (-want +got):\n%s", diff)
	}
}

// An event that is older than the present state of a link gives it neither a role nor a MAC address, whether the link
// is in use already or not. An event of a link that is gone is ignored.
func TestOldEvent(t *testing.T) {
	l, inside := inNamespace(t)
	if !inside {
		return
	}
	l.Cable("nic0", "192.0.2.1/24")
	current, err := netlink.LinkByName("nic0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(l.Ctx)
	w := &watcher{
		shared: panicLink(t).shared, virtual: true, running: goroutine.NewGroup(),
		used: map[int]*assignment{}, addresses: map[int][]netip.Prefix{},
		plan: plan.New(l.data(`{"links": [{"id": "old", "type": "phy", "ethernet_mac_address": "02:00:00:00:00:07"},
			{"id": "present", "type": "phy", "ethernet_mac_address": "MAC(nic0)"}]}`)),
	}
	defer w.end()
	defer cancel()
	old := &netlink.Veth{LinkAttrs: *current.Attrs()}
	old.HardwareAddr = net.HardwareAddr{2, 0, 0, 0, 0, 7}
	for _, event := range []string{"first event", "later event"} {
		w.handleLink(ctx, old)
		a := w.used[old.Index]
		if a.id != "present" {
			t.Errorf("%s: got role of %q, want that of the link with the present MAC address", event, a.id)
		}
		got, want := a.link.State().link.MAC, current.Attrs().HardwareAddr
		if !slices.Equal(got, want) || !slices.Equal(a.card, want) {
			t.Errorf("%s: got MAC address %v and card %v, want %v", event, got, a.card, want)
		}
	}
	gone := &netlink.Veth{LinkAttrs: *current.Attrs()}
	gone.Index = 1 << 20
	w.handleLink(ctx, gone)
	if len(w.used) != 1 {
		t.Errorf("got %d links in use, want no link that is gone", len(w.used))
	}
}
