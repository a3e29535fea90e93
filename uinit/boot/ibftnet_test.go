//go:build linux

package boot

import (
	"net"
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"

	"ironroot/netboot/dhcp4"
	"ironroot/netboot/networkdata"
	"ironroot/netboot/snapshot"
	"ironroot/storage/ibft"
	"ironroot/storage/iscsi"
)

var sameAddress = cmp.Options{
	cmp.Comparer(func(a, b netip.Addr) bool { return a == b }),
	cmp.Comparer(func(a, b netip.Prefix) bool { return a == b }),
}

// The iBFT becomes static network data: the addresses of cards in use, with router, name servers and VLAN.
func TestIBFTData(t *testing.T) {
	plain := ibft.NIC{
		Name: "ethernet0", MAC: net.HardwareAddr{2, 0, 0, 0, 0, 1}, Address: netip.MustParsePrefix("192.0.2.7/24"),
		Gateway: netip.MustParseAddr("192.0.2.1"), DNS: []netip.Addr{netip.MustParseAddr("192.0.2.53")},
	}
	tagged := ibft.NIC{
		Name: "ethernet1", MAC: net.HardwareAddr{2, 0, 0, 0, 0, 2}, Address: netip.MustParsePrefix("2001:db8::7/64"),
		Gateway: netip.MustParseAddr("2001:db8::1"), VLAN: 7,
	}
	other := ibft.NIC{Name: "ethernet2", MAC: net.HardwareAddr{2, 0, 0, 0, 0, 3}, Address: plain.Address}
	table := &ibft.Table{NICs: []ibft.NIC{plain, tagged, other}}
	for _, address := range []string{
		"192.0.2.9:3260", "198.51.100.9:3260", "198.51.100.9:860", "[2001:db8:9::9]:3260",
	} {
		table.Targets = append(table.Targets, iscsi.Target{Address: netip.MustParseAddrPort(address)})
	}
	route := func(to string, by netip.Addr) []networkdata.Route {
		return []networkdata.Route{{Destination: netip.MustParsePrefix(to), Gateway: by}}
	}
	for isDefault, routes := range map[bool][]networkdata.Route{
		true: route("0.0.0.0/0", plain.Gateway), false: route("198.51.100.9/32", plain.Gateway),
	} {
		got := ibftData(table, map[string]bool{"ethernet0": true, "ethernet1": true}, isDefault)
		want := &networkdata.Data{Links: []networkdata.Link{
			{ID: "ethernet0", MAC: plain.MAC, Networks: []networkdata.Network{{
				ID: "ethernet0", Address: plain.Address, DNS: plain.DNS, Routes: routes,
			}}},
			{
				ID: "ethernet1", MAC: tagged.MAC,
				Networks: []networkdata.Network{{ID: "ethernet1-dhcp", Method: networkdata.DHCP4}},
			},
			{
				ID: "ethernet1-vlan", Kind: networkdata.Tagged, Parent: "ethernet1", VLAN: 7,
				Networks: []networkdata.Network{{
					ID: "ethernet1", Address: tagged.Address, Routes: route("2001:db8:9::9/128", tagged.Gateway),
				}},
			},
		}}
		if diff := cmp.Diff(want, got, sameAddress); diff != "" {
			t.Errorf("default router %t: data (-want +got):\n%s", isDefault, diff)
		}
	}
	tagged.Gateway = plain.Gateway
	if got := ibftRoutes(tagged, table.Targets, true); got != nil {
		t.Errorf("router of another family: got routes %v, want none", got)
	}
}

// A card gets the address of the iBFT only if it has a carrier and DHCP does not answer.
func TestUnanswered(t *testing.T) {
	card := ibft.NIC{MAC: net.HardwareAddr{2, 0, 0, 0, 0, 1}}
	asked := snapshot.History{DHCP: snapshot.Attempts{Sent: unansweredRequests}}
	for name, c := range map[string]struct {
		link snapshot.Link
		want bool
	}{
		"no answer":    {snapshot.Link{MAC: card.MAC, Carrier: true, History: asked}, true},
		"lease":        {snapshot.Link{MAC: card.MAC, Carrier: true, History: asked, Lease: &dhcp4.Lease{}}, false},
		"just asked":   {snapshot.Link{MAC: card.MAC, Carrier: true}, false},
		"no carrier":   {snapshot.Link{MAC: card.MAC, History: asked}, false},
		"another card": {snapshot.Link{MAC: net.HardwareAddr{2, 0, 0, 0, 0, 9}, Carrier: true, History: asked}, false},
	} {
		if got := unanswered([]snapshot.Link{c.link}, card); got != c.want {
			t.Errorf("%s: got %t, want %t", name, got, c.want)
		}
	}
}
