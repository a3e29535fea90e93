package snapshot

import (
	"errors"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"ironroot/netboot/dhcp4"
	"ironroot/netboot/lldp"
)

func TestReport(t *testing.T) {
	now := time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)
	before := func(d time.Duration) time.Time { return now.Add(-d) }
	mac := net.HardwareAddr{0x52, 0x54, 0, 0x12, 0x34, 0x56}
	asked := Attempts{Since: before(31 * time.Second), Sent: 5}
	rejected := asked
	rejected.Rejected = "subnet mask 00000000 of address 192.0.2.5 is not plausible"
	refused := errors.New("no answer from a DHCP server")
	for name, c := range map[string]struct {
		link Link
		want string
	}{
		"down": {
			Link{History: History{Found: before(time.Minute)}},
			"eth0 (52:54:00:12:34:56): down for 1m0s|DHCP: not asked yet",
		},
		"no cable": {
			Link{Up: true, History: History{Carrier: before(2 * time.Second), DHCP: asked}},
			"eth0 (52:54:00:12:34:56): no carrier for 2s; check the cable and the switch's port|DHCP: asked 5 times " +
				"in 31s, no answer",
		},
		"no server": {
			Link{Up: true, Carrier: true, History: History{
				Carrier: before(40 * time.Second), DHCP: asked,
				Neighbour: lldp.Neighbour{System: "leaf1", Port: "swp7"},
				LastErr:   refused, LastErrAt: before(3 * time.Second),
			}},
			"eth0 (52:54:00:12:34:56): carrier for 40s, neighbour leaf1, port swp7|DHCP: asked 5 times in 31s, no " +
				"answer|IPv6: no router heard|latest failure, 3s ago: no answer from a DHCP server",
		},
		"lying server": {
			Link{Up: true, Carrier: true, History: History{
				DHCP: rejected, DHCP6: Attempts{Since: before(time.Second), Sent: 1}, Router: now,
			}},
			"eth0 (52:54:00:12:34:56): carrier, no LLDP neighbour heard|" +
				"DHCP: asked 5 times in 31s, latest answer rejected: subnet mask 00000000 of address 192.0.2.5 is " +
				"not plausible|" +
				"DHCPv6: asked 1 time in 1s, no answer",
		},
		"leased": {
			Link{
				Up: true, Carrier: true,
				Addresses: []netip.Prefix{netip.MustParsePrefix("2001:db8::5/64"), netip.MustParsePrefix("fe80::5/64")},
				Lease: &dhcp4.Lease{
					Address: netip.MustParsePrefix("192.0.2.5/24"), Server: addr("192.0.2.1"),
					Routes: []dhcp4.Route{
						{Destination: netip.MustParsePrefix("0.0.0.0/0"), Gateway: addr("192.0.2.254")},
					},
				},
			},
			"eth0 (52:54:00:12:34:56): carrier, no LLDP neighbour heard|DHCP: 192.0.2.5/24 of server 192.0.2.1, " +
				"router 192.0.2.254|IPv6: 2001:db8::5/64",
		},
		"router without addresses": {
			Link{
				Up: true, Carrier: true,
				Lease:   &dhcp4.Lease{Address: netip.MustParsePrefix("192.0.2.5/24"), Server: addr("192.0.2.1")},
				History: History{Router: now},
			},
			"eth0 (52:54:00:12:34:56): carrier, no LLDP neighbour heard|DHCP: 192.0.2.5/24 of server 192.0.2.1, no " +
				"router|IPv6: router heard, but it offers no address",
		},
		"implausible lease": {
			Link{
				Up: true, Carrier: true,
				Lease:   &dhcp4.Lease{Address: netip.MustParsePrefix("198.51.100.9/8"), Server: addr("192.0.2.1")},
				History: History{Implausible: []string{"subnet 198.0.0.0/8 is wide"}},
			},
			"eth0 (52:54:00:12:34:56): carrier, no LLDP neighbour heard|DHCP: 198.51.100.9/8 of server 192.0.2.1, no " +
				"router|implausible: subnet 198.0.0.0/8 is wide|IPv6: no router heard",
		},
		"static": {
			Link{
				Up: true, Carrier: true, Static: true,
				Addresses: []netip.Prefix{
					netip.MustParsePrefix("192.0.2.5/24"), netip.MustParsePrefix("198.51.100.5/24"),
					netip.MustParsePrefix("2001:db8::5/64"),
				},
			},
			"eth0 (52:54:00:12:34:56): carrier, no LLDP neighbour heard|static: 192.0.2.5/24, 198.51.100.5/24|" +
				"IPv6: 2001:db8::5/64",
		},
		"static without an IPv4 address": {
			Link{Static: true, Addresses: []netip.Prefix{netip.MustParsePrefix("2001:db8::5/64")}},
			"eth0 (52:54:00:12:34:56): down|static network data, no DHCP|IPv6: 2001:db8::5/64",
		},
		"static and asking for a lease": {
			Link{Static: true, History: History{DHCP: asked}},
			"eth0 (52:54:00:12:34:56): down|DHCP: asked 5 times in 31s, no answer",
		},
	} {
		t.Run(name, func(t *testing.T) {
			c.link.Name, c.link.MAC = "eth0", mac
			got := Report([]Link{c.link}, now)
			if diff := cmp.Diff(strings.Split(c.want, "|"), unindented(got)); diff != "" {
				t.Errorf("lines (-want +got):\n%s", diff)
			}
		})
	}
	if got := Report(nil, now); len(got) != 1 {
		t.Errorf("no links: got %q, want one line", got)
	}
}

// unindented takes the indentation off all lines but the first, which has to have none.
func unindented(lines []string) []string {
	for i := range lines[1:] {
		lines[i+1] = strings.TrimPrefix(lines[i+1], "  ")
	}
	return lines
}

func addr(text string) netip.Addr { return netip.MustParseAddr(text) }

// The messages of an exchange are counted; a new exchange begins at 1 and without the rejection of the one before.
func TestAttemptsCount(t *testing.T) {
	first := time.Now()
	second := first.Add(time.Second)
	var a Attempts
	a.Count(first)
	a.Count(first)
	a.Rejected = "no server identifier"
	if want := (Attempts{Since: first, Sent: 2, Rejected: "no server identifier"}); a != want {
		t.Errorf("got %+v, want %+v", a, want)
	}
	a.Count(second)
	if want := (Attempts{Since: second, Sent: 1}); a != want {
		t.Errorf("got %+v, want %+v", a, want)
	}
}

// The first cause that applies is named for each link.
func TestNoAddress(t *testing.T) {
	links := []Link{
		{Name: "eth0", Err: errors.New("no such device"), Up: true, Carrier: true},
		{Name: "eth1", Carrier: true},
		{Name: "eth2", Up: true, Bond: "bond0"},
		{Name: "eth3", Up: true, Carrier: true, Bond: "bond0"},
		{Name: "eth4", Up: true, Carrier: true},
		{Name: "eth5", Up: true, Carrier: true, History: History{DHCP: Attempts{Rejected: "no server"}}},
	}
	want := "eth0: no such device, eth1: down, eth2: no carrier, eth3: member of bond0, " +
		"eth4: no answer from a DHCP server, eth5: DHCP answer rejected: no server"
	if got := NoAddress(links); got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if got := NoAddress(nil); got != "no link found" {
		t.Errorf("no links: got %q", got)
	}
}

// A link has an address if one of them is global.
func TestHasAddress(t *testing.T) {
	local, global := netip.MustParsePrefix("fe80::5/64"), netip.MustParsePrefix("192.0.2.5/24")
	if (Link{}).HasAddress() || (Link{Addresses: []netip.Prefix{local}}).HasAddress() {
		t.Error("without a global address: got true")
	}
	if !(Link{Addresses: []netip.Prefix{local, global}}).HasAddress() {
		t.Error("with a global address: got false")
	}
}
