//go:build linux

package netboot

import (
	"net"
	"net/netip"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/insomniacslk/dhcp/dhcpv4"
	"github.com/insomniacslk/dhcp/dhcpv4/server4"
	"github.com/vishvananda/netlink"

	"ironroot/internal/test/testenv/nettest"
	"ironroot/netboot/dhcp"
	"ironroot/netboot/listing"
	"ironroot/netboot/route"
	"ironroot/netboot/server"
	"ironroot/netboot/snapshot"
)

func (l *lab) serve(config server.DHCPConfig) *server.DHCP {
	l.T.Helper()
	var d *server.DHCP
	l.Peer(func() (err error) {
		d, err = server.ListenDHCP(l.Ctx, config)
		return err
	})
	l.T.Cleanup(func() {
		if err := d.Close(); err != nil {
			l.T.Error(err)
		}
	})
	return d
}

// pool is a server on the other end of a cable, at the given address, which is the router too: it has ten addresses.
func pool(link, address string) server.DHCPConfig {
	own := netip.MustParsePrefix(address)
	host := func(n byte) netip.Addr {
		bytes := own.Addr().As4()
		bytes[3] = n
		return netip.AddrFrom4(bytes)
	}
	return server.DHCPConfig{
		Interface: "peer-" + link, Address: own, Router: own.Addr(), First: host(10), Last: host(20),
	}
}

// Two links and an independent DHCP server: both get addresses, default routes coexist and name servers are joined.
//
// Parity: R1 (IPv4)
func TestTwoLinks(t *testing.T) {
	l, inside := inNamespace(t, "dnsmasq")
	if !inside {
		return
	}
	l.Cable("nic0", "192.0.2.1/24")
	l.Cable("nic1", "198.51.100.1/24")
	l.Dnsmasq("--interface=peer-nic0", "--interface=peer-nic1",
		"--dhcp-range=set:a,192.0.2.10,192.0.2.20,1h", "--dhcp-range=set:b,198.51.100.10,198.51.100.20,1h",
		"--dhcp-option=tag:a,option:dns-server,192.0.2.53,192.0.2.54",
		"--dhcp-option=tag:b,option:dns-server,198.51.100.53", "--dhcp-option=tag:b,option:domain-name,example.com",
		"--dhcp-option=tag:b,option:mtu,1400")
	n := l.start()
	if err := n.WaitAddress(l.Ctx); err != nil {
		t.Fatal(err)
	}
	links := l.until(n, "both links have leases", leased("nic0", "nic1"))
	for name, subnet := range map[string]string{"nic0": "192.0.2.0/24", "nic1": "198.51.100.0/24"} {
		if got := links[name].Lease.Address; !netip.MustParsePrefix(subnet).Contains(got.Addr()) || got.Bits() != 24 {
			t.Errorf("%s: got %v, want an address of %s", name, got, subnet)
		}
		if !links[name].Up || !links[name].Carrier || links[name].Err != nil {
			t.Errorf("%s: got %+v, want a link that works", name, links[name])
		}
		source, err := route.SourceFor(l.Ctx, netip.MustParsePrefix(subnet).Addr().Next())
		if err != nil || source != links[name].Lease.Address.Addr() {
			t.Errorf("%s: source towards its server: got %v, %v, want %v", name, source, err, links[name].Lease.Address)
		}
	}
	l.until(n, "the MTU of the lease is used",
		func(links map[string]snapshot.Link) bool { return links["nic1"].MTU == 1400 })
	var defaults int
	for _, name := range []string{"nic0", "nic1"} {
		if slices.ContainsFunc(l.routes(name), func(r string) bool { return r[:7] == "default" }) {
			defaults++
		}
	}
	if defaults != 2 {
		t.Errorf("default routes: got %d, want 2: %v %v", defaults, l.routes("nic0"), l.routes("nic1"))
	}
	content, err := os.ReadFile(l.resolv)
	if err != nil {
		t.Fatal(err)
	}
	first := "nameserver 192.0.2.53\nnameserver 198.51.100.53\nnameserver 192.0.2.54\nsearch example.com\n"
	second := "nameserver 198.51.100.53\nnameserver 192.0.2.53\nnameserver 192.0.2.54\nsearch example.com\n"
	if got := string(content); got != first && got != second {
		t.Errorf("resolv.conf: got %q, want %q", got, first)
	}
}

// A link whose server is silent, and one without a carrier, do not delay the one that works.
func TestDeadLinkDelaysNobody(t *testing.T) {
	l, inside := inNamespace(t)
	if !inside {
		return
	}
	l.Cable("dead", "")
	l.Cable("unplugged", "")
	l.SetPeer("unplugged", false)
	l.Cable("nic0", "192.0.2.1/24")
	l.serve(pool("nic0", "192.0.2.1/24"))
	started := time.Now()
	n := l.start()
	if err := n.WaitAddress(l.Ctx); err != nil {
		t.Fatal(err)
	}
	t.Logf("address after %v", time.Since(started))
	links := l.until(n, "the live link has a lease", leased("nic0"))
	for _, name := range []string{"dead", "unplugged"} {
		if links[name].Lease != nil {
			t.Errorf("%s: got lease %v, want none", name, links[name].Lease)
		}
	}
	l.until(n, "the dead link says what it lacks",
		func(links map[string]snapshot.Link) bool { return links["dead"].Err != nil })
	// The unplugged link is configured as soon as its cable is in.
	l.serve(server.DHCPConfig{
		Interface: "peer-unplugged", Address: netip.MustParsePrefix("198.51.100.1/24"), Fixed: map[string]server.Host{
			mac(t, "unplugged").String(): {Address: addr("198.51.100.7")},
		},
	})
	l.SetPeer("unplugged", true)
	l.until(n, "the plugged link has a lease", leased("unplugged"))
}

func TestRenewalTakesAnotherAddress(t *testing.T) {
	l, inside := inNamespace(t)
	if !inside {
		return
	}
	l.Cable("nic0", "192.0.2.1/24")
	id := mac(t, "nic0")
	d := l.serve(server.DHCPConfig{
		Interface: "peer-nic0", Address: netip.MustParsePrefix("192.0.2.1/24"), Router: addr("192.0.2.1"),
		Lease: 16 * time.Second, // both addresses exist for half of it
		Fixed: map[string]server.Host{id.String(): {Address: addr("192.0.2.10")}},
	})
	n := l.start()
	l.until(n, "first address",
		func(links map[string]snapshot.Link) bool { return has(links["nic0"], "192.0.2.10/24") })
	d.SetHost(id, server.Host{Address: addr("192.0.2.11")})
	downs := l.countDowns("nic0")
	// Whoever knows the machine by its first address reaches it for as long as it was granted; nothing new begins from
	// it.
	l.until(n, "both addresses", func(links map[string]snapshot.Link) bool {
		return has(links["nic0"], "192.0.2.10/24") && has(links["nic0"], "192.0.2.11/24")
	})
	if source, err := route.SourceFor(l.Ctx, addr("203.0.113.1")); err != nil || source != addr("192.0.2.11") {
		t.Errorf("source of new connections: got %v, %v, want the second address", source, err)
	}
	l.until(n, "second address alone", func(links map[string]snapshot.Link) bool {
		return leased("nic0")(links) && has(links["nic0"], "192.0.2.11/24") && !has(links["nic0"], "192.0.2.10/24")
	})
	if got := downs(); got != 0 {
		t.Errorf("link went down %d times during the renewal, want 0", got)
	}
	want := []string{"default via 192.0.2.1 src 192.0.2.11 metric 512", "192.0.2.0/24 src 192.0.2.11 metric 512"}
	if diff := cmp.Diff(want, l.routes("nic0")); diff != "" {
		t.Errorf("routes (-want +got):\n%s", diff)
	}
	// The same address again: renewals go on beyond the first lease's end.
	before := l.until(n, "lease", leased("nic0"))["nic0"].Lease.Obtained
	l.until(n, "renewed twice", func(links map[string]snapshot.Link) bool {
		return links["nic0"].Lease != nil && links["nic0"].Lease.Obtained.Sub(before) > 2*time.Second
	})
}

// countDowns counts from now on how often the kernel reports a link down.
func (l *lab) countDowns(name string) func() int {
	updates := make(chan netlink.LinkUpdate)
	done := make(chan struct{})
	if err := netlink.LinkSubscribe(updates, done); err != nil {
		l.T.Fatal(err)
	}
	count := make(chan int)
	go func() {
		downs := 0
		for {
			select {
			case u := <-updates:
				if u.Attrs().Name == name && u.Attrs().Flags&net.FlagUp == 0 {
					downs++
				}
			case count <- downs:
				close(done)
				return
			}
		}
	}()
	return func() int { return <-count }
}

// When the server that gave the lease is gone, any other one may carry it on (REBINDING).
func TestRebind(t *testing.T) {
	l, inside := inNamespace(t)
	if !inside {
		return
	}
	l.Cable("nic0", "192.0.2.2/24") // nobody is at the first server's address, 192.0.2.1
	// The second server has all the time that is left of the lease after T2.
	stop := l.grants("nic0", "192.0.2.10/24", dhcpv4.WithLeaseTime(20), seconds(dhcpv4.OptionRenewTimeValue, 1),
		seconds(dhcpv4.OptionRebindingTimeValue, 2))
	n := l.start()
	l.until(n, "address", leased("nic0"))
	stop()
	l.serve(server.DHCPConfig{
		Interface: "peer-nic0", Address: netip.MustParsePrefix("192.0.2.2/24"),
		Fixed: map[string]server.Host{mac(t, "nic0").String(): {Address: addr("192.0.2.10")}},
	})
	lost := false
	l.until(n, "lease of the second server", func(links map[string]snapshot.Link) bool {
		lost = lost || links["nic0"].Lease == nil
		return links["nic0"].Lease != nil && links["nic0"].Lease.Server == addr("192.0.2.2")
	})
	if lost {
		t.Error("the address was given up in between")
	}
}

// seconds sets one of the times of a lease.
func seconds(code dhcpv4.OptionCode, n time.Duration) dhcpv4.Modifier {
	return dhcpv4.WithOption(dhcpv4.Option{Code: code, Value: dhcpv4.Duration(n * time.Second)})
}

// A lease that nobody renews ends: the address is not used beyond it.
func TestExpiry(t *testing.T) {
	l, inside := inNamespace(t)
	if !inside {
		return
	}
	l.Cable("nic0", "192.0.2.1/24")
	d := l.serve(server.DHCPConfig{
		Interface: "peer-nic0", Address: netip.MustParsePrefix("192.0.2.1/24"), Lease: 2 * time.Second,
		DNS: []netip.Addr{addr("192.0.2.1")}, MTU: 1400,
		Fixed: map[string]server.Host{mac(t, "nic0").String(): {Address: addr("192.0.2.10")}},
	})
	n := l.start()
	l.until(n, "address and MTU", func(links map[string]snapshot.Link) bool {
		return leased("nic0")(links) && links["nic0"].MTU == 1400
	})
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	l.until(n, "no address, and the old MTU", func(links map[string]snapshot.Link) bool {
		return links["nic0"].Lease == nil && !has(links["nic0"], "192.0.2.10/24") && links["nic0"].MTU == 1500
	})
	if got := l.routes("nic0"); len(got) != 0 {
		t.Errorf("routes: got %v, want none", got)
	}
}

// A lease or static data with an MTU below the minimum of IPv6, 1280 bytes (RFC 8200, section 5), leaves IPv6 on.
func TestSmallMTU(t *testing.T) {
	l, inside := inNamespace(t)
	if !inside {
		return
	}
	l.Cable("nic0", "192.0.2.1/24")
	l.Cable("nic1", "2001:db8:7::1/64")
	config := pool("nic0", "192.0.2.1/24")
	config.MTU = 576
	l.serve(config)
	n := l.startWith(l.data(`{
		"links": [{"id": "one", "type": "phy", "ethernet_mac_address": "MAC(nic1)", "mtu": 1000}],
		"networks": [{"id": "n6", "type": "ipv6", "link": "one", "ip_address": "2001:db8:7::77/64"}]}`), nil)
	linkLocal := func(link snapshot.Link) bool { return within(link, "fe80::/10").IsValid() }
	l.until(n, "addresses of IPv6 and the smallest MTU for it", func(links map[string]snapshot.Link) bool {
		leased, static := links["nic0"], links["nic1"]
		return leased.Lease != nil && leased.MTU == 1280 && linkLocal(leased) &&
			static.MTU == 1280 && has(static, "2001:db8:7::77/64") && linkLocal(static)
	})
}

// A carrier that comes back may belong to another network: the server is asked at once, and its refusal obeyed.
func TestCarrierLossAndRefusal(t *testing.T) {
	l, inside := inNamespace(t)
	if !inside {
		return
	}
	l.Cable("nic0", "192.0.2.1/24")
	id := mac(t, "nic0")
	d := l.serve(server.DHCPConfig{
		Interface: "peer-nic0", Address: netip.MustParsePrefix("192.0.2.1/24"),
		Fixed: map[string]server.Host{id.String(): {Address: addr("192.0.2.10")}},
	})
	n := l.start()
	l.until(n, "address", leased("nic0"))
	d.SetHost(id, server.Host{Address: addr("192.0.2.77")})
	l.SetPeer("nic0", false)
	l.until(n, "carrier lost, address kept", func(links map[string]snapshot.Link) bool {
		return !links["nic0"].Carrier && links["nic0"].Lease != nil
	})
	l.SetPeer("nic0", true)
	l.until(n, "the new network's address", func(links map[string]snapshot.Link) bool {
		return has(links["nic0"], "192.0.2.77/24") && !has(links["nic0"], "192.0.2.10/24")
	})
}

func TestLateLink(t *testing.T) {
	l, inside := inNamespace(t)
	if !inside {
		return
	}
	n := l.start()
	result := make(chan error, 1)
	go func() { result <- n.WaitAddress(l.Ctx) }()
	l.Cable("late", "192.0.2.1/24")
	l.serve(pool("late", "192.0.2.1/24"))
	select {
	case err := <-result:
		if err != nil {
			t.Fatal(err)
		}
	case <-time.After(nettest.Timeout):
		t.Fatalf("no address after %v", nettest.Timeout)
	}
	link, err := netlink.LinkByName("late")
	if err != nil {
		t.Fatal(err)
	}
	if err := netlink.LinkDel(link); err != nil {
		t.Fatal(err)
	}
	l.until(n, "the removed link is forgotten", func(links map[string]snapshot.Link) bool { return len(links) == 0 })
}

func TestClasslessRoutes(t *testing.T) {
	l, inside := inNamespace(t, "dnsmasq")
	if !inside {
		return
	}
	l.Cable("nic0", "192.0.2.1/24")
	l.Dnsmasq("--interface=peer-nic0", "--dhcp-range=192.0.2.10,192.0.2.10,1h", "--dhcp-option=option:router,192.0.2.9",
		"--dhcp-option=121,0.0.0.0/0,192.0.2.1,203.0.113.0/25,192.0.2.2,169.254.169.254/32,192.0.2.3,"+
			"198.51.100.0/24,0.0.0.0")
	n := l.start()
	l.until(n, "address", leased("nic0"))
	got := l.routes("nic0")
	slices.Sort(got)
	want := []string{
		"169.254.169.254/32 via 192.0.2.3 src 192.0.2.10 metric 512",
		"192.0.2.0/24 src 192.0.2.10 metric 512",
		"198.51.100.0/24 src 192.0.2.10 metric 512",
		"203.0.113.0/25 via 192.0.2.2 src 192.0.2.10 metric 512",
		"default via 192.0.2.1 src 192.0.2.10 metric 512",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("routes (-want +got):\n%s", diff)
	}
}

func TestDown(t *testing.T) {
	l, inside := inNamespace(t)
	if !inside {
		return
	}
	l.Cable("nic0", "192.0.2.1/24")
	l.serve(pool("nic0", "192.0.2.1/24"))
	l.Cable("silent", "")
	n := l.start()
	l.until(n, "address", leased("nic0"))
	if err := n.Down(l.Ctx); err != nil {
		t.Fatal(err)
	}
	l.Cable("late", "198.51.100.1/24")
	links, err := listing.Links()
	if err != nil {
		t.Fatal(err)
	}
	up := map[string]bool{}
	for _, link := range links {
		up[link.Attrs().Name] = link.Attrs().Flags&net.FlagUp != 0
	}
	want := map[string]bool{"lo": true, "nic0": false, "silent": false, "late": false}
	if diff := cmp.Diff(want, up); diff != "" {
		t.Errorf("links that are up (-want +got):\n%s", diff)
	}
	if err := n.WaitAddress(l.Ctx); err == nil {
		t.Error("WaitAddress after Down: got no error, want one")
	}
}

// A server that answers first with nonsense does not keep a good offer from being taken.
func TestBrokenOffers(t *testing.T) {
	l, inside := inNamespace(t)
	if !inside {
		return
	}
	l.Cable("nic0", "192.0.2.1/24")
	reply := func(m *dhcpv4.DHCPv4, kind dhcpv4.MessageType, ip, serverID net.IP, mask net.IPMask) []byte {
		answer, err := dhcpv4.NewReplyFromRequest(m, dhcpv4.WithMessageType(kind), dhcpv4.WithYourIP(ip),
			dhcpv4.WithOption(dhcpv4.OptServerIdentifier(serverID)), dhcpv4.WithNetmask(mask),
			dhcpv4.WithLeaseTime(600), dhcpv4.WithOption(dhcpv4.OptRouter(net.IPv4(224, 0, 0, 1))),
			dhcpv4.WithOption(dhcpv4.OptDNS(net.IPv4(127, 0, 0, 1))),
			dhcpv4.WithOption(dhcpv4.OptDomainName("x\nnameserver 203.0.113.66")))
		if err != nil {
			panic(err)
		}
		return answer.ToBytes()
	}
	good, bad := net.IPv4(192, 0, 2, 1).To4(), net.IPv4(192, 0, 2, 66).To4()
	var s *server4.Server
	l.Peer(func() (err error) {
		s, err = server4.NewServer("peer-nic0", nil, func(conn net.PacketConn, peer net.Addr, m *dhcpv4.DHCPv4) {
			kind, offer := dhcpv4.MessageTypeAck, m.MessageType() == dhcpv4.MessageTypeDiscover
			if offer {
				kind = dhcpv4.MessageTypeOffer
			}
			mask := net.CIDRMask(24, 32)
			for _, packet := range [][]byte{
				{1, 2, 3},
				reply(m, kind, net.IPv4(127, 0, 0, 1), bad, mask),
				reply(m, kind, net.IPv4(192, 0, 2, 255), bad, mask),
				reply(m, kind, net.IPv4(192, 0, 2, 5), bad, net.CIDRMask(0, 32)),
				reply(m, kind, net.IPv4(192, 0, 2, 5), bad, net.IPv4Mask(255, 0, 255, 0)),
				reply(m, kind, net.IPv4(192, 0, 2, 5), net.IPv4(127, 0, 0, 1), mask),
				reply(m, kind, net.IPv4(192, 0, 2, 10), good, mask),
			} {
				if _, err := conn.WriteTo(packet, peer); err != nil {
					return
				}
			}
		})
		return err
	})
	go func() { _ = s.Serve() }()
	t.Cleanup(func() { _ = s.Close() })
	n := l.start()
	links := l.until(n, "the good server's address", leased("nic0"))
	lease := links["nic0"].Lease
	if got, want := lease.Address.String(), "192.0.2.10/24"; got != want {
		t.Errorf("address: got %s, want %s", got, want)
	}
	if len(lease.Routes) != 0 || len(lease.DNS) != 0 || len(lease.Search) != 0 {
		t.Errorf("values that cannot be: got routes %v, name servers %v, search %q, want none",
			lease.Routes, lease.DNS, lease.Search)
	}
}

// Only an infinite lease never expires: the zero time.
func TestExpiryTime(t *testing.T) {
	now := time.Now()
	if got := expiry(now, time.Hour); !got.Equal(now.Add(time.Hour)) {
		t.Errorf("an hour: got %v, want %v", got, now.Add(time.Hour))
	}
	if got := expiry(now, dhcp.Forever); !got.IsZero() {
		t.Errorf("infinite: got %v, want the zero time", got)
	}
}

// All physical Ethernet links are used, and InfiniBand links of the card's own partition.
func TestIsUsed(t *testing.T) {
	ether := netlink.LinkAttrs{EncapType: "ether"}
	for name, c := range map[string]struct {
		link netlink.Link
		want bool
	}{
		"card":         {&netlink.Device{LinkAttrs: ether}, true},
		"not Ethernet": {&netlink.Device{LinkAttrs: netlink.LinkAttrs{EncapType: "sit"}}, false},
		"loopback": {
			&netlink.Device{LinkAttrs: netlink.LinkAttrs{EncapType: "ether", Flags: net.FlagLoopback}}, false,
		},
		"bridge":            {&netlink.Bridge{LinkAttrs: ether}, false},
		"InfiniBand":        {&netlink.IPoIB{LinkAttrs: netlink.LinkAttrs{Index: 4, ParentIndex: 4}}, true},
		"another partition": {&netlink.IPoIB{LinkAttrs: netlink.LinkAttrs{Index: 5, ParentIndex: 4}}, false},
	} {
		if got := isUsed(c.link, false); got != c.want {
			t.Errorf("%s: got %t, want %t", name, got, c.want)
		}
	}
}
