//go:build linux

package netboot

import (
	"errors"
	"net"
	"net/netip"
	"os"
	"testing"

	"github.com/insomniacslk/dhcp/dhcpv4"
	"github.com/insomniacslk/dhcp/dhcpv4/server4"
	"github.com/vishvananda/netlink"

	"ironroot/netboot/dhcp"
	"ironroot/netboot/ifconfig"
	"ironroot/netboot/route"
)

// grants makes a DHCP server on the other end of a cable that gives everybody the address, and says what the modifiers
// make it say, until it is stopped.
func (l *lab) grants(name, address string, modifiers ...dhcpv4.Modifier) (stop func()) {
	l.T.Helper()
	given := netip.MustParsePrefix(address)
	self := given.Masked().Addr().Next().AsSlice()
	var s *server4.Server
	l.Peer(func() (err error) {
		s, err = server4.NewServer("peer-"+name, nil, func(conn net.PacketConn, peer net.Addr, m *dhcpv4.DHCPv4) {
			kind := dhcpv4.MessageTypeAck
			switch m.MessageType() {
			case dhcpv4.MessageTypeDiscover:
				kind = dhcpv4.MessageTypeOffer
			case dhcpv4.MessageTypeRequest:
			default:
				return
			}
			answer, err := dhcpv4.NewReplyFromRequest(m, append([]dhcpv4.Modifier{
				dhcpv4.WithMessageType(kind), dhcpv4.WithYourIP(given.Addr().AsSlice()), dhcpv4.WithLeaseTime(3600),
				dhcpv4.WithOption(dhcpv4.OptServerIdentifier(self)), dhcpv4.WithNetmask(net.CIDRMask(given.Bits(), 32)),
			}, modifiers...)...)
			if err == nil {
				_, _ = conn.WriteTo(answer.ToBytes(), peer)
			}
		})
		return err
	})
	go func() { _ = s.Serve() }()
	stop = func() { _ = s.Close() }
	l.T.Cleanup(stop)
	return stop
}

// Servers that say what cannot be, or what nobody would want: each is named in a warning with its link and the value,
// and what Ironic may stand for is reached all the same, by the one link that leads there.
func TestBrokenServers(t *testing.T) {
	l, inside := inNamespace(t)
	if !inside {
		return
	}
	// The other end has all addresses; without this it would answer for each of them on every cable.
	l.Peer(func() error { return os.WriteFile("/proc/sys/net/ipv4/conf/all/arp_ignore", []byte("1"), 0) })
	router := func(ip string) dhcpv4.Modifier { return dhcpv4.WithRouter(net.ParseIP(ip)) }
	without := func(code dhcpv4.OptionCode) dhcpv4.Modifier {
		return func(m *dhcpv4.DHCPv4) { m.Options.Del(code) }
	}
	servers := []struct {
		link, address, gives string
		says                 []dhcpv4.Modifier
		warning              string
		either               bool
	}{
		{
			"nomask", "10.1.0.1/24", "10.1.0.9/24",
			[]dhcpv4.Modifier{dhcpv4.WithNetmask(net.CIDRMask(0, 32))},
			`subnet mask 00000000 of address 10\.1\.0\.9`, false,
		},
		{"widemask", "", "198.51.100.9/8", nil, `subnet 198\.0\.0\.0/8 is wide`, false},
		{"norouter", "10.2.0.1/24", "10.2.0.9/24", nil, `no router: only subnet 10\.2\.0\.0/24 is reachable`, false},
		{
			"dns", "10.3.0.1/24", "10.3.0.9/24",
			[]dhcpv4.Modifier{dhcpv4.WithDNS(net.ParseIP("203.0.113.53"))},
			`no route to name server 203\.0\.113\.53`, false,
		},
		{
			"farrouter", "10.4.0.1/24", "10.4.0.9/24",
			[]dhcpv4.Modifier{router("10.99.0.1")},
			`router 10\.99\.0\.1 is outside subnet 10\.4\.0\.0/24`, false,
		},
		{
			"taken", "10.5.0.9/24",
			"10.5.0.9/24", nil, `address 10\.5\.0\.9 is in use by MAC address [0-9a-f:]{17}`, false,
		},
		{
			"zerotime", "10.6.0.1/24", "10.6.0.9/24",
			[]dhcpv4.Modifier{dhcpv4.WithLeaseTime(0)},
			`lease time 0s is shorter than 1s`, false,
		},
		{
			"notime", "10.7.0.1/24", "10.7.0.9/24",
			[]dhcpv4.Modifier{without(dhcpv4.OptionIPAddressLeaseTime)},
			`no lease time: assuming 1h0m0s`, false,
		},
		{
			"infinite", "10.8.0.1/24", "10.8.0.9/24",
			[]dhcpv4.Modifier{dhcpv4.WithLeaseTime(dhcp.Infinite)},
			`lease time is infinite`, false,
		},
		{
			"router", "10.9.0.1/24", "10.9.0.9/24",
			[]dhcpv4.Modifier{router("10.9.0.66")},
			`default router (10\.9\.0\.66|10\.99\.0\.1) (precedes|follows) 10\.9`, true,
		},
		{"samenet", "", "10.9.0.10/24", nil, `subnet 10\.9\.0\.0/24 overlaps 10\.9\.0\.0/24 of link `, true},
	}
	for _, c := range servers {
		l.Cable(c.link, c.address)
		l.grants(c.link, c.gives, c.says...)
	}
	n := l.start()
	for _, c := range servers {
		link := c.link
		if c.either { // whichever of the two links comes second
			link = ".*"
		}
		l.WaitLog(`level=WARN .*interface=` + link + ` .*` + c.warning)
	}
	l.Cable("good", "192.0.2.1/24") // the last one, and so the one whose routes come last
	// The address is in the wide subnet, and the default routers do not exist.
	l.AddPeerAddress("good", "198.18.0.7/32")
	ironic := l.Listen("198.18.0.7")
	l.grants("good", "192.0.2.10/24", router("192.0.2.1"))
	l.until(n, "the good link has a lease", leased("good"))
	conn, err := n.DialContext(l.Ctx, "tcp", ironic.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	_ = conn.Close()
	if conn, err = (&net.Dialer{}).DialContext(l.Ctx, "tcp", ironic.Addr().String()); err != nil {
		t.Fatalf("from then on: %v", err)
	}
	_ = conn.Close()
	if source := conn.LocalAddr().(*net.TCPAddr).AddrPort().Addr().Unmap(); source != addr("192.0.2.10") {
		t.Errorf("from then on: got source %v, want the good link's", source)
	}
	if source, err := route.SourceFor(l.Ctx, addr("198.18.0.7")); err != nil || source != addr("192.0.2.10") {
		t.Errorf("source: got %v, %v, want the good link's", source, err)
	}
}

// A machine whose address has another owner asks for another one.
func TestTakenAddress(t *testing.T) {
	l, inside := inNamespace(t)
	if !inside {
		return
	}
	l.Cable("nic0", "192.0.2.10/24")
	l.grants("nic0", "192.0.2.10/24")
	n := l.start()
	l.WaitLog(`address used despite a conflict.*interface=nic0`)
	l.until(n, "an address rather than none", leased("nic0"))
	l.Cable("nic1", "192.0.2.1/24")
	l.grants("nic1", "192.0.2.11/24")
	l.until(n, "a free one", leased("nic1"))
	if taken, _ := l.Log.Matches(`interface=nic1.*is in use by`); taken {
		t.Error("an address that is free is taken for one that is not")
	}
}

// A machine with two cards on one network answers on each for the address of the other: that is nobody else.
func TestTwoCardsOneNetwork(t *testing.T) {
	l, inside := inNamespace(t, "dnsmasq")
	if !inside {
		return
	}
	l.Cable("nic0", "")
	l.Cable("nic1", "")
	l.Peer(func() error {
		bridge := &netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: "br0"}}
		err := netlink.LinkAdd(bridge)
		for _, name := range []string{"peer-nic0", "peer-nic1"} {
			port, found := netlink.LinkByName(name)
			err = errors.Join(err, found, netlink.LinkSetMaster(port, bridge))
		}
		return errors.Join(err,
			netlink.AddrAdd(bridge, &netlink.Addr{IPNet: ifconfig.IPNet(netip.MustParsePrefix("192.0.2.1/24"))}),
			netlink.LinkSetUp(bridge))
	})
	l.Dnsmasq("--interface=br0", "--dhcp-range=192.0.2.10,192.0.2.20,1h")
	n := l.start()
	l.until(n, "both have leases", leased("nic0", "nic1"))
	for _, name := range []string{"nic0", "nic1"} {
		l.WaitLog(`no address conflict detected.*interface=` + name)
	}
	if taken, _ := l.Log.Matches(`is in use by`); taken {
		t.Error("the machine takes itself for another one")
	}
}
