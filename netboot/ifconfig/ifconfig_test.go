//go:build linux

package ifconfig

import (
	"errors"
	"fmt"
	"io/fs"
	"math"
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"ironroot/internal/test/testenv/nettest"
	"ironroot/netboot/listing"
)

// present returns the addresses and routes of an interface as text, sorted, without IPv6 ones of the kernel itself.
func present(t *testing.T, index int) (lines []string) {
	t.Helper()
	addresses, err := listing.Addresses()
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range addresses {
		if a.LinkIndex == index && !a.IP.IsLinkLocalUnicast() {
			lines = append(lines, "address "+a.IPNet.String())
		}
	}
	routes, err := listing.Whole(func() ([]netlink.Route, error) {
		return netlink.RouteList(ByIndex(index), netlink.FAMILY_ALL)
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range routes {
		if r.Dst.IP.To4() == nil && r.Protocol == unix.RTPROT_KERNEL {
			continue
		}
		lines = append(lines, fmt.Sprintf("route %v via %v src %v metric %d", r.Dst, r.Gw, r.Src, r.Priority))
	}
	slices.Sort(lines)
	return lines
}

// newNIC returns the index of nic0, which is up and has a carrier, in a network namespace of its own. The test must
// return if it is not inside, see [nettest.New].
func newNIC(t *testing.T) (index int, inside bool) {
	t.Helper()
	l, inside := nettest.New(t)
	if !inside {
		return 0, false
	}
	l.Cable("nic0", "")
	return l.Raise("nic0").Index, true
}

// checkPresent fails the test unless an interface has exactly the wanted addresses and routes. what describes the
// state.
func checkPresent(t *testing.T, index int, what string, want ...string) {
	t.Helper()
	if diff := cmp.Diff(want, present(t, index)); diff != "" {
		t.Errorf("%s: addresses and routes (-want +got):\n%s", what, diff)
	}
}

// Each configuration is applied to the one before, and then to itself; both times the interface has exactly what was
// wanted.
func TestApply(t *testing.T) {
	index, inside := newNIC(t)
	if !inside {
		return
	}
	if err := Sysctl("ipv4", "nic0", "promote_secondaries", "1"); err != nil {
		t.Fatal(err)
	}
	prefixes := func(list ...string) (prefixes []netip.Prefix) {
		for _, text := range list {
			prefixes = append(prefixes, netip.MustParsePrefix(text))
		}
		return prefixes
	}
	all := netip.MustParsePrefix("0.0.0.0/0")
	var current Config
	for _, step := range []struct {
		name   string
		wanted Config
		want   []string
		mtu    int
	}{
		{
			"address and default route",
			Config{
				Addresses: prefixes("192.0.2.10/24"), MTU: 1400, Valid: time.Hour,
				Routes: []Route{{all, netip.MustParseAddr("192.0.2.1")}},
			},
			[]string{
				"address 192.0.2.10/24", "route 0.0.0.0/0 via 192.0.2.1 src 192.0.2.10 metric 512",
				"route 192.0.2.0/24 via <nil> src 192.0.2.10 metric 512",
			},
			1400,
		},
		{
			"another address, the former one expires",
			Config{
				Addresses: prefixes("192.0.2.11/24"), Routes: []Route{{all, netip.MustParseAddr("192.0.2.1")}},
				Expiring: []Expiring{{netip.MustParsePrefix("192.0.2.10/24"), time.Now().Add(time.Hour)}},
			},
			[]string{
				"address 192.0.2.10/24", "address 192.0.2.11/24",
				"route 0.0.0.0/0 via 192.0.2.1 src 192.0.2.11 metric 512",
				"route 192.0.2.0/24 via <nil> src 192.0.2.11 metric 512",
			},
			1400,
		},
		{
			"single address, gateway behind a route of the link",
			Config{
				Addresses: prefixes("198.51.100.7/32"),
				Routes: []Route{
					{all, netip.MustParseAddr("203.0.113.1")}, {Destination: netip.MustParsePrefix("203.0.113.1/32")},
				},
			},
			[]string{
				"address 198.51.100.7/32", "route 0.0.0.0/0 via 203.0.113.1 src 198.51.100.7 metric 512",
				"route 198.51.100.7/32 via <nil> src 198.51.100.7 metric 512",
				"route 203.0.113.1/32 via <nil> src 198.51.100.7 metric 512",
			},
			1400,
		},
		{
			"gateway outside of all subnets",
			Config{Addresses: prefixes("198.51.100.7/32"), Routes: []Route{{all, netip.MustParseAddr("203.0.113.1")}}},
			[]string{
				"address 198.51.100.7/32", "route 0.0.0.0/0 via 203.0.113.1 src 198.51.100.7 metric 512",
				"route 198.51.100.7/32 via <nil> src 198.51.100.7 metric 512",
			},
			1400,
		},
		{
			"link-local gateway behind a route of the link that follows",
			Config{
				Addresses: prefixes("198.51.100.7/32"),
				Routes: []Route{
					{all, netip.MustParseAddr("169.254.1.1")}, {Destination: netip.MustParsePrefix("169.254.1.1/32")},
				},
			},
			[]string{
				"address 198.51.100.7/32", "route 0.0.0.0/0 via 169.254.1.1 src 198.51.100.7 metric 512",
				"route 169.254.1.1/32 via <nil> src 198.51.100.7 metric 512",
				"route 198.51.100.7/32 via <nil> src 198.51.100.7 metric 512",
			},
			1400,
		},
		{
			"link-local gateway outside of the subnet",
			Config{Addresses: prefixes("192.0.2.10/24"), Routes: []Route{{all, netip.MustParseAddr("169.254.0.1")}}},
			[]string{
				"address 192.0.2.10/24", "route 0.0.0.0/0 via 169.254.0.1 src 192.0.2.10 metric 512",
				"route 192.0.2.0/24 via <nil> src 192.0.2.10 metric 512",
			},
			1400,
		},
		{
			"IPv6 gateways outside of the subnet",
			Config{
				Addresses: prefixes("2001:db8::5/64"),
				Routes: []Route{
					{netip.MustParsePrefix("2001:db8:2::/48"), netip.MustParseAddr("2001:db8:ffff::1")},
					{netip.MustParsePrefix("2001:db8:3::/48"), netip.MustParseAddr("fe80::1")},
				},
			},
			[]string{
				"address 2001:db8::5/64",
				"route 2001:db8:2::/48 via 2001:db8:ffff::1 src <nil> metric 512",
				"route 2001:db8:3::/48 via fe80::1 src <nil> metric 512",
				"route 2001:db8::/64 via <nil> src <nil> metric 512",
			},
			1400,
		},
		{
			"IPv6, also a single address",
			Config{
				Addresses: prefixes("2001:db8::5/64", "2001:db8:1::7/128"),
				Routes:    []Route{{netip.MustParsePrefix("2001:db8:2::/48"), netip.MustParseAddr("2001:db8::1")}},
			},
			[]string{
				"address 2001:db8:1::7/128", "address 2001:db8::5/64",
				"route 2001:db8:2::/48 via 2001:db8::1 src <nil> metric 512",
				"route 2001:db8::/64 via <nil> src <nil> metric 512",
			},
			1400,
		},
		{
			"another address of the subnet, no route",
			Config{Addresses: prefixes("2001:db8::6/64")},
			[]string{"address 2001:db8::6/64", "route 2001:db8::/64 via <nil> src <nil> metric 512"},
			1400,
		},
		{"nothing", Config{}, nil, 1400},
	} {
		for range 2 {
			if err := apply(index, 512, current, step.wanted); err != nil {
				t.Fatalf("%s: %v", step.name, err)
			}
			current = step.wanted
			checkPresent(t, index, step.name, step.want...)
		}
		if link, err := netlink.LinkByIndex(index); err != nil || link.Attrs().MTU != step.mtu {
			t.Errorf("%s: got %+v, %v, want an MTU of %d", step.name, link, err, step.mtu)
		}
	}
}

// The kernel deletes the other addresses of a subnet with the first one, and the routes by them. They are added again.
func TestFirstAddressOfSubnet(t *testing.T) {
	index, inside := newNIC(t)
	if !inside {
		return
	}
	first, second := netip.MustParsePrefix("192.0.2.10/24"), netip.MustParsePrefix("192.0.2.11/24")
	both, one := Config{Addresses: []netip.Prefix{first, second}}, Config{Addresses: []netip.Prefix{second}}
	if err := apply(index, 512, Config{}, both); err != nil {
		t.Fatal(err)
	}
	if err := apply(index, 512, both, one); err != nil {
		t.Fatal(err)
	}
	checkPresent(t, index, "second address", "address 192.0.2.11/24",
		"route 192.0.2.0/24 via <nil> src 192.0.2.11 metric 512")
}

// An address that stays is not removed for a moment, which would delete the routes by it that something else added.
func TestKeepsAddress(t *testing.T) {
	index, inside := newNIC(t)
	if !inside {
		return
	}
	kept := netip.MustParsePrefix("192.0.2.10/24")
	before := Config{Addresses: []netip.Prefix{kept, netip.MustParsePrefix("203.0.113.10/24")}}
	if err := apply(index, 512, Config{}, before); err != nil {
		t.Fatal(err)
	}
	if err := netlink.RouteAdd(&netlink.Route{
		LinkIndex: index, Dst: IPNet(netip.MustParsePrefix("10.1.0.0/16")), Src: kept.Addr().AsSlice(), Priority: 7,
	}); err != nil {
		t.Fatal(err)
	}
	if err := apply(index, 512, before, Config{Addresses: []netip.Prefix{kept}}); err != nil {
		t.Fatal(err)
	}
	checkPresent(t, index, "address that stays", "address 192.0.2.10/24",
		"route 10.1.0.0/16 via <nil> src 192.0.2.10 metric 7", "route 192.0.2.0/24 via <nil> src 192.0.2.10 metric 512")
}

// The kernel gets the lifetimes of addresses. Those that expire are not for new connections.
func TestLifetimes(t *testing.T) {
	index, inside := newNIC(t)
	if !inside {
		return
	}
	const forever = math.MaxUint32
	prefix := netip.MustParsePrefix("192.0.2.10/24")
	one := []netip.Prefix{prefix}
	expiring := func(until time.Time) Config { return Config{Expiring: []Expiring{{prefix, until}}} }
	for name, c := range map[string]struct {
		config           Config
		valid, preferred int // seconds, which may have begun to pass
	}{
		"forever":                {Config{Addresses: one}, forever, forever},
		"valid":                  {Config{Addresses: one, Valid: time.Hour}, 3600, 3600},
		"preferred":              {Config{Addresses: one, Valid: time.Hour, Preferred: time.Minute}, 3600, 60},
		"expiring":               {expiring(time.Now().Add(time.Hour)), 3600, 0},
		"expiring, without time": {expiring(time.Time{}), math.MaxInt32, 0},
	} {
		if err := apply(index, 512, Config{}, c.config); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		addresses, err := netlink.AddrList(ByIndex(index), netlink.FAMILY_V4)
		if err != nil || len(addresses) != 1 {
			t.Fatalf("%s: got addresses %v, %v, want one", name, addresses, err)
		}
		passed := func(want, got int) bool { return want == forever && got != want || got > want || want-got > 30 }
		if a := addresses[0]; passed(c.valid, a.ValidLft) || passed(c.preferred, a.PreferedLft) {
			t.Errorf("%s: got valid for %d s, preferred for %d s, want %d and %d",
				name, a.ValidLft, a.PreferedLft, c.valid, c.preferred)
		}
		if err := apply(index, 512, c.config, Config{}); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
	}
	if err := apply(index, 512, Config{}, expiring(time.Now().Add(-time.Second))); err != nil {
		t.Fatal(err)
	}
	checkPresent(t, index, "address that has expired")
}

// Router advertisements are used with or without addresses. A link without these settings is no error.
func TestAllowRouters(t *testing.T) {
	l, inside := nettest.New(t)
	if !inside {
		return
	}
	l.Cable("nic0", "")
	for slaac, autoconf := range map[bool]string{false: "0\n", true: "1\n"} {
		if err := AllowRouters("nic0", slaac); err != nil {
			t.Fatal(err)
		}
		for setting, want := range map[string]string{"accept_ra": "2\n", "autoconf": autoconf, "disable_ipv6": "0\n"} {
			got, err := os.ReadFile("/proc/sys/net/ipv6/conf/nic0/" + setting)
			if err != nil || string(got) != want {
				t.Errorf("addresses wanted: %v: %s: got %q, %v, want %q", slaac, setting, got, err, want)
			}
		}
	}
	if err := AllowRouters("gone", true); err != nil {
		t.Errorf("missing link: got %v, want no error", err)
	}
	if err := Sysctl("ipv6", "gone", "accept_ra", "2"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("setting of a missing link: got %v, want %v", err, fs.ErrNotExist)
	}
}

// Parts that the kernel rejects are named; the others are applied.
func TestApplyParts(t *testing.T) {
	index, inside := newNIC(t)
	if !inside {
		return
	}
	wanted := Config{
		Addresses: []netip.Prefix{netip.MustParsePrefix("192.0.2.10/24")},
		Routes: []Route{
			{netip.MustParsePrefix("198.51.100.0/24"), netip.MustParseAddr("224.0.0.1")}, // multicast
			{netip.MustParsePrefix("203.0.113.0/24"), netip.MustParseAddr("192.0.2.1")},
		},
	}
	s := NewSource(index)
	if err := s.Replace(256, wanted); err == nil {
		t.Error("whole configuration: got no error")
	}
	var failed []string
	s.ApplyParts(256, wanted, func(part string, err error) {
		failed = append(failed, part)
		if !strings.HasPrefix(err.Error(), "add route to 198.51.100.0/24: ") {
			t.Errorf("%s: got error %v, want one that names the route", part, err)
		}
	})
	if diff := cmp.Diff([]string{"198.51.100.0/24 by 224.0.0.1"}, failed); diff != "" {
		t.Errorf("rejected parts (-want +got):\n%s", diff)
	}
	if got := s.Config(); len(got.Addresses) != 1 || len(got.Routes) != 1 || got.Routes[0] != wanted.Routes[1] {
		t.Errorf("got %+v, want the address and the second route", got)
	}
	if lines := present(t, index); len(lines) != 3 {
		t.Errorf("got %q, want an address and two routes", lines)
	}
}
