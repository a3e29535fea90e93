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
)

// grants makes a DHCP server on the other end of a cable that gives everybody the address, and says what the modifiers
// make it say, until it is stopped.
func (l *lab) grants(name, address string, modifiers ...dhcpv4.Modifier) (stop func()) {
	l.t.Helper()
	given := netip.MustParsePrefix(address)
	self := given.Masked().Addr().Next().AsSlice()
	var liar *server4.Server
	l.peer(func() (err error) {
		liar, err = server4.NewServer("peer-"+name, nil, func(conn net.PacketConn, peer net.Addr, m *dhcpv4.DHCPv4) {
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
	go func() { _ = liar.Serve() }()
	stop = func() { _ = liar.Close() }
	l.t.Cleanup(stop)
	return stop
}

// Servers that say what cannot be, or what nobody would want: each is named in a warning with its link and the value, and
// what Ironic may stand for is reached all the same, by the one link that leads there.
func TestLyingServers(t *testing.T) {
	l, inside := inNamespace(t)
	if !inside {
		return
	}
	// The other end has all addresses; without this it would answer for each of them on every cable.
	l.peer(func() error { return os.WriteFile("/proc/sys/net/ipv4/conf/all/arp_ignore", []byte("1"), 0) })
	router := func(ip string) dhcpv4.Modifier { return dhcpv4.WithRouter(net.ParseIP(ip)) }
	without := func(code dhcpv4.OptionCode) dhcpv4.Modifier {
		return func(m *dhcpv4.DHCPv4) { m.Options.Del(code) }
	}
	liars := []struct {
		link, address, gives string
		says                 []dhcpv4.Modifier
		warning              string
		either               bool
	}{
		{"nomask", "10.1.0.1/24", "10.1.0.9/24", []dhcpv4.Modifier{dhcpv4.WithNetmask(net.CIDRMask(0, 32))}, `subnet mask 00000000 of address 10\.1\.0\.9`, false},
		{"widemask", "", "198.51.100.9/8", nil, `subnet 198\.0\.0\.0/8 is wide`, false},
		{"norouter", "10.2.0.1/24", "10.2.0.9/24", nil, `no router: nothing but the subnet 10\.2\.0\.0/24`, false},
		{"dns", "10.3.0.1/24", "10.3.0.9/24", []dhcpv4.Modifier{dhcpv4.WithDNS(net.ParseIP("203.0.113.53"))}, `no route leads to name server 203\.0\.113\.53`, false},
		{"farrouter", "10.4.0.1/24", "10.4.0.9/24", []dhcpv4.Modifier{router("10.99.0.1")}, `router 10\.99\.0\.1 is outside the subnet 10\.4\.0\.0/24`, false},
		{"taken", "10.5.0.9/24", "10.5.0.9/24", nil, `address 10\.5\.0\.9 belongs to the machine with MAC address [0-9a-f:]{17} already`, false},
		{"zerotime", "10.6.0.1/24", "10.6.0.9/24", []dhcpv4.Modifier{dhcpv4.WithLeaseTime(0)}, `lease time 0s is shorter than 1s`, false},
		{"notime", "10.7.0.1/24", "10.7.0.9/24", []dhcpv4.Modifier{without(dhcpv4.OptionIPAddressLeaseTime)}, `no lease time, 1h0m0s is assumed`, false},
		{"infinite", "10.8.0.1/24", "10.8.0.9/24", []dhcpv4.Modifier{dhcpv4.WithLeaseTime(infinite)}, `lease time is infinite`, false},
		{"router", "10.9.0.1/24", "10.9.0.9/24", []dhcpv4.Modifier{router("10.9.0.66")}, `default router (10\.9\.0\.66|10\.99\.0\.1) comes (before|after) 10\.9`, true},
		{"samenet", "", "10.9.0.10/24", nil, `subnet 10\.9\.0\.0/24 overlaps 10\.9\.0\.0/24 of link `, true},
	}
	for _, c := range liars {
		l.cable(c.link, c.address)
		l.grants(c.link, c.gives, c.says...)
	}
	n := l.start()
	for _, c := range liars {
		link := c.link
		if c.either { // whichever of the two links comes second
			link = ".*"
		}
		l.told(`level=WARN .*interface=` + link + ` .*` + c.warning)
	}
	l.cable("good", "192.0.2.1/24") // the last one, and so the one whose routes come last
	var ironic net.Listener
	l.peer(func() (err error) {
		link, err := netlink.LinkByName("peer-good")
		if err == nil {
			// Its address is in the wide subnet, and else by default behind the routers that are not there.
			err = netlink.AddrAdd(link, &netlink.Addr{IPNet: ipNet(netip.MustParsePrefix("198.18.0.7/32"))})
		}
		if err == nil {
			ironic, err = net.Listen("tcp", "198.18.0.7:0")
		}
		return err
	})
	t.Cleanup(func() { _ = ironic.Close() })
	l.grants("good", "192.0.2.10/24", router("192.0.2.1"))
	l.until(n, "the good link has a lease", leased("good"))
	conn, err := n.Dial(l.ctx, "tcp", ironic.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	_ = conn.Close()
	if conn, err = (&net.Dialer{}).DialContext(l.ctx, "tcp", ironic.Addr().String()); err != nil {
		t.Fatalf("from then on: %v", err)
	}
	_ = conn.Close()
	if source := conn.LocalAddr().(*net.TCPAddr).AddrPort().Addr().Unmap(); source != addr("192.0.2.10") {
		t.Errorf("from then on: got source %v, want the good link's", source)
	}
	if source, err := SourceFor(l.ctx, addr("198.18.0.7")); err != nil || source != addr("192.0.2.10") {
		t.Errorf("source: got %v, %v, want the good link's", source, err)
	}
}

// A machine whose address has another owner asks for another one.
func TestTakenAddress(t *testing.T) {
	l, inside := inNamespace(t)
	if !inside {
		return
	}
	l.cable("nic0", "192.0.2.10/24")
	l.grants("nic0", "192.0.2.10/24")
	n := l.start()
	l.told(`address is used although another machine seems to have it.*interface=nic0`)
	l.until(n, "an address rather than none", leased("nic0"))
	l.cable("nic1", "192.0.2.1/24")
	l.grants("nic1", "192.0.2.11/24")
	l.until(n, "a free one", leased("nic1"))
	if taken, _ := l.log.matches(`interface=nic1.*belongs to the machine`); taken {
		t.Error("an address that is free is taken for one that is not")
	}
}

// A machine with two cards on one network answers on each for the address of the other: that is nobody else.
func TestTwoCardsOneNetwork(t *testing.T) {
	l, inside := inNamespace(t, "dnsmasq")
	if !inside {
		return
	}
	l.cable("nic0", "")
	l.cable("nic1", "")
	l.peer(func() error {
		bridge := &netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: "br0"}}
		err := netlink.LinkAdd(bridge)
		for _, name := range []string{"peer-nic0", "peer-nic1"} {
			port, found := netlink.LinkByName(name)
			err = errors.Join(err, found, netlink.LinkSetMaster(port, bridge))
		}
		return errors.Join(err, netlink.AddrAdd(bridge, &netlink.Addr{IPNet: ipNet(netip.MustParsePrefix("192.0.2.1/24"))}), netlink.LinkSetUp(bridge))
	})
	l.dnsmasq("--interface=br0", "--dhcp-range=192.0.2.10,192.0.2.20,1h")
	n := l.start()
	l.until(n, "both have leases", leased("nic0", "nic1"))
	for _, name := range []string{"nic0", "nic1"} {
		l.told(`no other owner of the address was heard.*interface=` + name)
	}
	if taken, _ := l.log.matches(`belongs to the machine`); taken {
		t.Error("the machine takes itself for another one")
	}
}

func FuzzParseARP(f *testing.F) {
	f.Add(arpProbe(net.HardwareAddr{2, 0, 0, 0, 0, 1}, addr("192.0.2.1")))
	f.Add([]byte("\xff\xff\xff\xff\xff\xff\x02\x00\x00\x00\x00\x02\x08\x06" + arpHead + "\x00\x02\x02\x00\x00\x00\x00\x02\xc0\x00\x02\x0a\x02\x00\x00\x00\x00\x01\xc0\x00\x02\x01"))
	f.Fuzz(func(t *testing.T, frame []byte) {
		owner, address, ok := parseARP(frame)
		if ok && (len(owner) != macLen || !address.Is4() || address.IsUnspecified() || len(frame) < etherLen+arpLen) {
			t.Errorf("got %v %v", owner, address)
		}
	})
}
