//go:build linux

package plan

import (
	"net"
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/vishvananda/netlink"

	"ironroot/netboot/dhcp6"
	"ironroot/netboot/ifconfig"
	"ironroot/netboot/networkdata"
	"ironroot/netboot/resolver"
)

// equal compares values that cmp must not look into.
var equal = cmp.Options{
	cmp.Comparer(func(a, b netip.Addr) bool { return a == b }),
	cmp.Comparer(func(a, b netip.Prefix) bool { return a == b }),
}

// parsed returns the plan of a document without problems.
func parsed(t *testing.T, document string) *Plan {
	t.Helper()
	data, err := networkdata.Parse([]byte(document))
	if err != nil {
		t.Fatal(err)
	}
	for _, problem := range data.Problems {
		t.Errorf("problem of the test's data: %v", problem)
	}
	return New(data)
}

// A link of a document has the role of its networks.
func TestRoleOfNetworks(t *testing.T) {
	const (
		static4 = `{"id": "4", "type": "ipv4", "link": "a", "ip_address": "192.0.2.7", "netmask": "255.255.255.0",
			"routes": [{"network": "0.0.0.0", "netmask": "0.0.0.0", "gateway": "192.0.2.1"}],
			"services": [{"type": "dns", "address": "192.0.2.53"}]}`
		static6   = `{"id": "6", "type": "ipv6", "link": "a", "ip_address": "2001:db8::7/64"}`
		dhcp4     = `{"id": "d4", "type": "ipv4_dhcp", "link": "a"}`
		stateful  = `{"id": "d6", "type": "ipv6_dhcp", "link": "a"}`
		stateless = `{"id": "i6", "type": "ipv6_dhcpv6-stateless", "link": "a"}`
		slaac     = `{"id": "s", "type": "ipv6_slaac", "link": "a"}`
	)
	addresses := func(list ...string) (c ifconfig.Config) {
		for _, text := range list {
			c.Addresses = append(c.Addresses, netip.MustParsePrefix(text))
		}
		return c
	}
	only4 := addresses("192.0.2.7/24")
	only4.Routes = []ifconfig.Route{{
		Destination: netip.MustParsePrefix("0.0.0.0/0"), Gateway: netip.MustParseAddr("192.0.2.1"),
	}}
	names := resolver.Names{Servers: []netip.Addr{netip.MustParseAddr("192.0.2.53")}}
	only6 := addresses("2001:db8::7/64")
	for name, c := range map[string]struct {
		networks string
		want     Role
	}{
		"none":              {"", DefaultRole()},
		"static IPv4":       {static4, Role{Static: only4, Names: names, DHCP6: true}},
		"static IPv6":       {static6, Role{Static: only6, Static6: true}},
		"static and SLAAC":  {static6 + "," + slaac, Role{Static: only6}},
		"static and DHCPv6": {static6 + "," + stateful, Role{Static: only6, DHCP6: true, Ask6: dhcp6.Stateful}},
		"DHCPv4":            {dhcp4, Role{DHCP: true, DHCP6: true}},
		"DHCPv6":            {stateful, Role{DHCP6: true, Ask6: dhcp6.Stateful}},
		"information only":  {stateless, Role{DHCP6: true, Ask6: dhcp6.Stateless}},
		"both of DHCPv6":    {stateful + "," + stateless, Role{DHCP6: true, Ask6: dhcp6.Stateful}},
	} {
		t.Run(name, func(t *testing.T) {
			p := parsed(t, `{"links": [{"id": "a", "type": "phy", "ethernet_mac_address": "02:00:00:00:00:0a"}],
				"networks": [`+c.networks+`]}`)
			c.want.Metric = ifconfig.StaticMetric
			if diff := cmp.Diff(c.want, p.Role("a"), equal); diff != "" {
				t.Errorf("role (-want +got):\n%s", diff)
			}
		})
	}
}

// The networks of a link are joined: the first route to a destination is used. Links with static addresses come first.
func TestRoleOfSeveralNetworks(t *testing.T) {
	prefix, addr := netip.MustParsePrefix, netip.MustParseAddr
	route := func(destination, gateway string) networkdata.Route {
		return networkdata.Route{Destination: prefix(destination), Gateway: addr(gateway)}
	}
	p := New(&networkdata.Data{Links: []networkdata.Link{{ID: "dhcp"}, {ID: "a", Networks: []networkdata.Network{
		{
			Method: networkdata.Static, Address: prefix("192.0.2.7/24"), Search: []string{"a.example"},
			Routes: []networkdata.Route{route("10.1.0.0/16", "192.0.2.1")},
		},
		{
			Method: networkdata.Static, Address: prefix("192.0.2.8/24"), Search: []string{"b.example"},
			Routes: []networkdata.Route{route("10.1.0.0/16", "192.0.2.2"), route("10.2.0.0/16", "192.0.2.2")},
		},
	}}}, DNS: []netip.Addr{addr("192.0.2.53")}})
	want := Role{
		Static: ifconfig.Config{
			Addresses: []netip.Prefix{prefix("192.0.2.7/24"), prefix("192.0.2.8/24")},
			Routes: []ifconfig.Route{
				{Destination: prefix("10.1.0.0/16"), Gateway: addr("192.0.2.1")},
				{Destination: prefix("10.2.0.0/16"), Gateway: addr("192.0.2.2")},
			},
		},
		Names:  resolver.Names{Search: []string{"a.example", "b.example"}},
		Metric: ifconfig.StaticMetric + 1, DHCP6: true,
	}
	got := p.Role("a")
	if diff := cmp.Diff(want, got, equal); diff != "" {
		t.Errorf("role (-want +got):\n%s", diff)
	}
	if dhcp := p.Role("dhcp"); got.Order() != ifconfig.StaticMetric+1 || dhcp.Order() <= got.Order() {
		t.Errorf("got order %d of static addresses, %d of leases, want the former first", got.Order(), dhcp.Order())
	}
	if diff := cmp.Diff(resolver.Names{Servers: []netip.Addr{addr("192.0.2.53")}}, p.Names(), equal); diff != "" {
		t.Errorf("names of no single link (-want +got):\n%s", diff)
	}
	if got := (*Plan)(nil).Names(); got.Servers != nil {
		t.Errorf("no data: got name servers %v, want none", got.Servers)
	}
}

const bondDocument = `{"links": [
	{"id": "a", "type": "phy", "ethernet_mac_address": "02:00:00:00:00:0a"},
	{"id": "b", "type": "phy", "ethernet_mac_address": "02:00:00:00:00:0b"},
	{"id": "storage", "type": "bond", "ethernet_mac_address": "02:00:00:00:00:0c", "bond_links": ["a", "b"],
	 "bond_mode": "active-backup"},
	{"id": "v", "type": "vlan", "vlan_link": "storage", "vlan_id": 7, "vlan_mac_address": "02:00:00:00:00:0d",
	 "mtu": 9000}]}`

// Members have no role but their bond; the bond has VLANs, an MTU for their frames, and no address of its own.
func TestRoleOfBond(t *testing.T) {
	p := parsed(t, bondDocument)
	if got := p.Role("a"); got.Bond != "storage" || got.DHCP || got.DHCP6 {
		t.Errorf("member: got %+v, want only a bond", got)
	}
	bond := p.Role("storage")
	if bond.MTU != 9000 || bond.MAC.String() != "02:00:00:00:00:0c" || bond.DHCP || bond.DHCP6 ||
		len(bond.Tagged) != 1 || bond.Tagged[0].ID != "v" {
		t.Errorf("bond: got %+v, want its MAC address, the MTU and the tag of its VLAN, and no DHCP", bond)
	}
	if got := p.Role("v"); !got.DHCP || got.MTU != 9000 || got.Metric != ifconfig.StaticMetric+3 {
		t.Errorf("VLAN: got %+v, want DHCP, its MTU and its metric", got)
	}
}

// Links of the kernel are found by their MAC addresses, names and parents. Two links never have one id.
func TestID(t *testing.T) {
	p := parsed(t, bondDocument)
	attrs := func(index int, name string, mac byte) netlink.LinkAttrs {
		return netlink.LinkAttrs{Index: index, Name: name, HardwareAddr: net.HardwareAddr{2, 0, 0, 0, 0, mac}}
	}
	child := attrs(5, "storage.7", 0x0d)
	child.ParentIndex = 4
	permanent := attrs(1, "eth0", 0x0c)
	permanent.PermHWAddr = net.HardwareAddr{2, 0, 0, 0, 0, 0x0a}
	used := map[int]string{2: "b", 4: "storage", 9: ""}
	for name, c := range map[string]struct {
		link netlink.Link
		want string
	}{
		"by MAC address":           {&netlink.Device{LinkAttrs: attrs(1, "eth0", 0x0a)}, "a"},
		"by permanent MAC address": {&netlink.Device{LinkAttrs: permanent}, "a"},
		"in use by itself":         {&netlink.Device{LinkAttrs: attrs(2, "eth1", 0x0b)}, "b"},
		"in use by another link":   {&netlink.Device{LinkAttrs: attrs(3, "eth2", 0x0b)}, ""},
		"not in the data":          {&netlink.Device{LinkAttrs: attrs(9, "eth9", 0x99)}, ""},
		"bond":                     {&netlink.Bond{LinkAttrs: attrs(4, "storage", 0x0c)}, "storage"},
		"another bond":             {&netlink.Bond{LinkAttrs: attrs(6, "bond0", 0x0c)}, ""},
		"VLAN":                     {&netlink.Vlan{LinkAttrs: child, VlanId: 7}, "v"},
		"another tag":              {&netlink.Vlan{LinkAttrs: child, VlanId: 8}, ""},
		"VLAN of another parent":   {&netlink.Vlan{LinkAttrs: attrs(5, "x.7", 0x0d), VlanId: 7}, ""},
	} {
		if got := p.ID(c.link, c.link.Attrs().HardwareAddr, used); got != c.want {
			t.Errorf("%s: got %q, want %q", name, got, c.want)
		}
	}
}

// An InfiniBand port is named by the MAC address of its Ethernet mode: the GUID without its two middle bytes, as in
// cloud-init (get_ib_interface_hwaddr).
//
// Parity: F7 (network data)
func TestInfiniBandID(t *testing.T) {
	p := parsed(t, `{"links": [{"id": "ib", "type": "ib_hostdev", "ethernet_mac_address": "00:11:22:33:44:56"}]}`)
	port := func(text string) *netlink.GenericLink {
		mac, err := net.ParseMAC(text)
		if err != nil {
			t.Fatal(err)
		}
		return &netlink.GenericLink{LinkType: "ipoib", LinkAttrs: netlink.LinkAttrs{
			Index: 1, Name: "ib0", HardwareAddr: mac,
		}}
	}
	for address, want := range map[string]string{
		"80:00:00:28:fe:80:00:00:00:00:00:00:00:11:22:03:00:33:44:56": "ib",
		"80:00:00:28:fe:80:00:00:00:00:00:00:00:11:22:03:00:33:44:57": "",
	} {
		link := port(address)
		if got := p.ID(link, link.HardwareAddr, nil); got != want {
			t.Errorf("%s: got %q, want %q", address, got, want)
		}
		link.PermHWAddr, link.HardwareAddr = link.HardwareAddr, port(strings.Repeat("02:", 19)+"02").HardwareAddr
		if got := p.ID(link, link.HardwareAddr, nil); got != want {
			t.Errorf("permanent address %s: got %q, want %q", address, got, want)
		}
	}
}

// Bonds that changed are created anew; those that did not stay.
func TestBondsMissingIn(t *testing.T) {
	before := parsed(t, bondDocument)
	ids := func(links []networkdata.Link) (ids []string) {
		for _, l := range links {
			ids = append(ids, l.ID)
		}
		return ids
	}
	if got := ids(before.BondsMissingIn(parsed(t, bondDocument))); got != nil {
		t.Errorf("the same data: got %v, want none", got)
	}
	if diff := cmp.Diff([]string{"storage"}, ids(before.BondsMissingIn(nil))); diff != "" {
		t.Errorf("no data (-want +got):\n%s", diff)
	}
	if got := ids((*Plan)(nil).BondsMissingIn(before)); got != nil {
		t.Errorf("no data before: got %v, want none", got)
	}
	rest := New(before.Without("storage"))
	if diff := cmp.Diff([]string{"storage"}, ids(before.BondsMissingIn(rest))); diff != "" {
		t.Errorf("without the bond (-want +got):\n%s", diff)
	}
	if got := rest.Role("v"); got.DHCP || got.MTU != 0 {
		t.Errorf("VLAN on top of the omitted bond: got %+v, want no role", got)
	}
}

// A bond has its name if the kernel accepts it, otherwise a free one.
func TestBondNames(t *testing.T) {
	p := parsed(t, `{"links": [
		{"id": "f3b1e1c9-5a53-4a2f-8d0b-1c5a9d1f0a11", "type": "bond", "bond_links": ["a"], "bond_mode": "balance-rr"},
		{"id": "two/2", "type": "bond", "bond_links": ["b"], "bond_mode": "balance-rr"},
		{"id": "fine", "type": "bond", "bond_links": ["c"], "bond_mode": "balance-rr"},
		{"id": "a", "type": "phy", "ethernet_mac_address": "02:00:00:00:00:0a"},
		{"id": "b", "type": "phy", "ethernet_mac_address": "02:00:00:00:00:0b"},
		{"id": "c", "type": "phy", "ethernet_mac_address": "02:00:00:00:00:0c"}]}`)
	for id, want := range map[string]string{
		"f3b1e1c9-5a53-4a2f-8d0b-1c5a9d1f0a11": "bond0", "two/2": "bond1", "fine": "fine",
	} {
		if got := p.BondName(id); got != want {
			t.Errorf("bond %s: got name %q, want %q", id, got, want)
		}
	}
}
