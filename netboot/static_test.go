//go:build linux

package netboot

import (
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"ironroot/internal/test/testenv/nettest"
	"ironroot/netboot/listing"
	"ironroot/netboot/networkdata"
	"ironroot/netboot/route"
	"ironroot/netboot/snapshot"
)

// data reads network data in which MAC(name) stands for the MAC address of a link.
func (l *lab) data(document string) *networkdata.Data {
	l.T.Helper()
	links, err := listing.Links()
	if err != nil {
		l.T.Fatal(err)
	}
	for _, link := range links {
		document = strings.ReplaceAll(document, "MAC("+link.Attrs().Name+")", link.Attrs().HardwareAddr.String())
	}
	data, err := networkdata.Parse([]byte(document))
	if err != nil {
		l.T.Fatal(err)
	}
	for _, problem := range data.Problems {
		l.T.Errorf("problem of the test's data: %v", problem)
	}
	return data
}

const staticDocument = `{
	"links": [{"id": "one", "type": "phy", "ethernet_mac_address": "MAC(nic0)", "mtu": 1400}],
	"networks": [
		{"id": "n4", "type": "ipv4", "link": "one", "ip_address": "192.0.2.77", "netmask": "255.255.255.0",
		 "routes": [{"network": "0.0.0.0", "netmask": "0.0.0.0", "gateway": "192.0.2.1"},
		            {"network": "10.1.0.0", "netmask": "255.255.0.0", "gateway": "192.0.2.2"}],
		 "services": [{"type": "dns", "address": "192.0.2.53"}]},
		{"id": "n6", "type": "ipv6", "link": "one", "ip_address": "2001:db8:7::77", "netmask": "ffff:ffff:ffff:ffff::",
		 "routes": [{"network": "::0", "netmask": "::0", "gateway": "2001:db8:7::1"}]}],
	"services": [{"type": "dns", "address": "2001:db8:7::53"}]}`

// Static addresses of both families, routes, MTU and name servers on a network without a DHCP server; a link that the
// data does not name gets its address by DHCP, and its routes come second.
func TestStatic(t *testing.T) {
	l, inside := inNamespace(t, "dnsmasq")
	if !inside {
		return
	}
	l.Cable("nic0", "2001:db8:7::1/64")
	l.Cable("nic1", "198.51.100.1/24")
	// A router whose advertisements are not to give the machine other addresses.
	l.Dnsmasq("--interface=peer-nic0", "--enable-ra", "--dhcp-range=2001:db8:7::,ra-stateless",
		"--dhcp-option=option6:dns-server,[2001:db8:7::99]")
	l.AddPeerAddress("nic0", "192.0.2.1/24")
	l.serve(pool("nic1", "198.51.100.1/24"))
	n := l.startWith(l.data(staticDocument), nil)
	links := l.until(n, "static addresses and a lease", func(links map[string]snapshot.Link) bool {
		return has(links["nic0"], "192.0.2.77/24") && has(links["nic0"], "2001:db8:7::77/64") &&
			leased("nic1")(links) && !links["nic0"].History.Router.IsZero()
	})
	if link := links["nic0"]; link.Lease != nil || link.MTU != 1400 || !link.Static || link.Err != nil ||
		link.History.DHCP.Sent != 0 {
		t.Errorf("got %+v, want a static link that asks nobody", link)
	}
	got := l.routes("nic0")
	for _, want := range []string{
		"default via 192.0.2.1 src 192.0.2.77 metric 256", "10.1.0.0/16 via 192.0.2.2 src 192.0.2.77 metric 256",
		"192.0.2.0/24 src 192.0.2.77 metric 256",
	} {
		if !slices.Contains(got, want) {
			t.Errorf("routes: got %q, want %q among them", got, want)
		}
	}
	for dst, want := range map[string]string{"203.0.113.1": "192.0.2.77", "2001:db8:ffff::1": "2001:db8:7::77"} {
		if source, err := route.SourceFor(l.Ctx, addr(dst)); err != nil || source != addr(want) {
			t.Errorf("source towards %s: got %v, %v, want %s", dst, source, err, want)
		}
	}
	if content, err := os.ReadFile(l.resolv); err != nil ||
		!strings.HasPrefix(string(content), "nameserver 2001:db8:7::53\nnameserver 192.0.2.53\n") {
		t.Errorf("resolv.conf: got %q, %v", content, err)
	}
	l.reach("192.0.2.77")
	for _, p := range links["nic0"].Addresses {
		if p.Addr().Is6() && p.Addr().IsGlobalUnicast() && p.Addr() != addr("2001:db8:7::77") {
			t.Errorf("got address %v beside the static one", p)
		}
	}
}

// Network cards of the data that the machine does not have are logged once, others are not.
func TestAbsentCard(t *testing.T) {
	l, inside := inNamespace(t)
	if !inside {
		return
	}
	l.Cable("nic0", "192.0.2.1/24")
	l.startWith(l.data(`{"links": [
		{"id": "one", "type": "phy", "ethernet_mac_address": "MAC(nic0)"},
		{"id": "two", "name": "eth1", "type": "phy", "ethernet_mac_address": "52:54:00:00:00:99"},
		{"id": "seven", "type": "vlan", "vlan_id": 7, "vlan_link": "two"}]}`), nil)
	l.WaitLog(`not found.*link=two name=eth1 mac=52:54:00:00:00:99`)
	time.Sleep(2 * quick.cardWait)
	if taken, _ := l.Log.Matches(`not found.*link=(one|seven)`); taken {
		t.Error("a card that is there, or a VLAN, was logged as not found")
	}
	if again, _ := l.Log.Matches(`(?s)not found.*not found`); again {
		t.Error("the absent card was logged twice")
	}
}

// Data that comes late takes the place of leases; data without a place for a link gives it back to DHCP.
func TestLateData(t *testing.T) {
	l, inside := inNamespace(t)
	if !inside {
		return
	}
	l.Cable("nic0", "192.0.2.1/24")
	l.serve(pool("nic0", "192.0.2.1/24"))
	n := l.startWith(nil, nil)
	l.until(n, "lease", leased("nic0"))
	n.Configure(l.data(staticDocument))
	l.until(n, "static address alone", func(links map[string]snapshot.Link) bool {
		link := links["nic0"]
		return has(link, "192.0.2.77/24") && link.Lease == nil && !within(link, "192.0.2.8/29").IsValid() &&
			link.MTU == 1400
	})
	n.Configure(nil)
	l.until(n, "lease again, and no static address", func(links map[string]snapshot.Link) bool {
		return leased("nic0")(links) && !has(links["nic0"], "192.0.2.77/24")
	})
	routes := l.routes("nic0")
	if slices.ContainsFunc(routes, func(r string) bool { return strings.Contains(r, "metric 256") }) {
		t.Errorf("got routes %q, want none of the static data", routes)
	}
}

// Nothing is asked for while static data may come, but links are raised; then all goes its way.
func TestWaitForData(t *testing.T) {
	l, inside := inNamespace(t)
	if !inside {
		return
	}
	l.Cable("nic0", "192.0.2.1/24")
	l.serve(pool("nic0", "192.0.2.1/24"))
	wait := make(chan struct{})
	n := l.startWith(nil, wait)
	links := l.until(n, "carrier",
		func(links map[string]snapshot.Link) bool { return links["nic0"].Up && links["nic0"].Carrier })
	if sent := links["nic0"].History.DHCP.Sent; sent != 0 {
		t.Errorf("got %d DHCP messages while waiting, want none", sent)
	}
	close(wait)
	l.until(n, "lease", leased("nic0"))
}

// A link that appears after the data was read is configured by it; what the kernel refuses of it is left out.
func TestStaticLinkAppears(t *testing.T) {
	l, inside := inNamespace(t)
	if !inside {
		return
	}
	document := `{"links": [{"id": "late", "type": "phy", "ethernet_mac_address": "02:00:00:00:00:07"}],
		"networks": [{"id": "n", "type": "ipv4", "link": "late", "ip_address": "192.0.2.77/24",
			"routes": [{"network": "10.1.0.0", "netmask": "16", "gateway": "192.0.2.2"}]},
			{"id": "m", "type": "ipv4", "link": "late", "ip_address": "192.0.2.78/24", "gateway": "192.0.2.255"}]}`
	n := l.startWith(l.data(document), nil)
	l.Cable("nic0", "192.0.2.1/24")
	link, err := netlink.LinkByName("nic0")
	if err != nil {
		t.Fatal(err)
	}
	if err := netlink.LinkSetHardwareAddr(link, []byte{2, 0, 0, 0, 0, 7}); err != nil {
		t.Fatal(err)
	}
	l.until(n, "static addresses", func(links map[string]snapshot.Link) bool {
		return has(links["nic0"], "192.0.2.77/24") && has(links["nic0"], "192.0.2.78/24")
	})
	got := fmt.Sprint(l.routes("nic0"))
	if !strings.Contains(got, "10.1.0.0/16 via 192.0.2.2") || strings.Contains(got, "default") {
		t.Errorf("got routes %q, want the one that can be", got)
	}
}

// Without a carrier static addresses are not used: their routes would hide routes of other links.
func TestStaticWithoutCarrier(t *testing.T) {
	l, inside := inNamespace(t)
	if !inside {
		return
	}
	l.Cable("nic0", "192.0.2.1/24")
	l.SetPeer("nic0", false)
	l.Cable("nic1", "198.51.100.1/24")
	l.serve(pool("nic1", "198.51.100.1/24"))
	n := l.startWith(l.data(staticDocument), nil)
	source := func() netip.Addr {
		source, err := route.SourceFor(l.Ctx, addr("203.0.113.1"))
		if err != nil {
			t.Fatal(err)
		}
		return source
	}
	links := l.until(n, "lease", leased("nic1"))
	if got := source(); got != links["nic1"].Lease.Address.Addr() || has(links["nic0"], "192.0.2.77/24") {
		t.Errorf("source without the carrier: got %v, links %+v", got, links)
	}
	l.SetPeer("nic0", true)
	l.until(n, "static address",
		func(links map[string]snapshot.Link) bool { return has(links["nic0"], "192.0.2.77/24") })
	if got := source(); got != addr("192.0.2.77") {
		t.Errorf("source with the carrier: got %v, want the static address", got)
	}
	l.SetPeer("nic0", false)
	l.until(n, "carrier away", func(links map[string]snapshot.Link) bool { return !links["nic0"].Carrier })
	if got := source(); got != links["nic1"].Lease.Address.Addr() {
		t.Errorf("source once the carrier is away: got %v, want the lease's", got)
	}
}

// A bond that the kernel cannot make does not take its members with it.
func TestBondCannotBeMade(t *testing.T) {
	l, inside := inNamespace(t)
	if !inside {
		return
	}
	l.Cable("nic0", "192.0.2.1/24")
	l.serve(pool("nic0", "192.0.2.1/24"))
	// A link of that name is there already.
	data := l.data(`{"links": [{"id": "card", "type": "phy", "ethernet_mac_address": "MAC(nic0)"},
		{"id": "nic0", "type": "bond", "bond_mode": "802.3ad", "bond_links": ["card"]},
		{"id": "tag", "type": "vlan", "vlan_id": 7, "vlan_link": "nic0"}],
		"networks": [{"id": "n", "type": "ipv4", "link": "tag", "ip_address": "192.0.2.77/24"}]}`)
	n := l.startWith(data, nil)
	l.until(n, "lease of the member", leased("nic0"))
}

// reach connects from the peer to an address of the machine.
func (l *lab) reach(address string) {
	l.T.Helper()
	listener, err := (&net.ListenConfig{}).Listen(l.Ctx, "tcp", net.JoinHostPort(address, "0"))
	if err != nil {
		l.T.Fatal(err)
	}
	defer listener.Close()
	l.Peer(func() error {
		conn, err := (&net.Dialer{Timeout: nettest.Timeout}).DialContext(l.Ctx, "tcp", listener.Addr().String())
		if err != nil {
			return err
		}
		return conn.Close()
	})
}
