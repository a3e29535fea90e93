package netboot

import (
	"net"
	"testing"

	"github.com/insomniacslk/dhcp/dhcpv4"
	"github.com/insomniacslk/dhcp/dhcpv4/server4"
)

// What a broken or hostile DHCP server of one link says does not keep a good server of another one from being reached.
func TestLiarBesideGoodNetwork(t *testing.T) {
	l, inside := inNamespace(t, "dnsmasq")
	if !inside {
		return
	}
	l.cable("bad", "198.51.100.1/24")
	l.cable("good", "192.0.2.1/24")
	good := net.IPv4(198, 51, 100, 1).To4()
	var liar *server4.Server
	l.peer(func() (err error) {
		liar, err = server4.NewServer("peer-bad", nil, func(conn net.PacketConn, peer net.Addr, m *dhcpv4.DHCPv4) {
			kind := dhcpv4.MessageTypeAck
			if m.MessageType() == dhcpv4.MessageTypeDiscover {
				kind = dhcpv4.MessageTypeOffer
			}
			answer, err := dhcpv4.NewReplyFromRequest(m, dhcpv4.WithMessageType(kind), dhcpv4.WithYourIP(net.IPv4(198, 51, 100, 9)),
				dhcpv4.WithOption(dhcpv4.OptServerIdentifier(good)), dhcpv4.WithLeaseTime(600),
				dhcpv4.WithNetmask(net.CIDRMask(8, 32)),                             // too wide: a class A network on the cable
				dhcpv4.WithOption(dhcpv4.OptDNS(net.IPv4(203, 0, 113, 53))),         // nobody answers there, and there is no router
				dhcpv4.WithOption(dhcpv4.OptDomainName("; nameserver 203.0.113.1"))) // no domain
			if err == nil {
				_, _ = conn.WriteTo(answer.ToBytes(), peer)
			}
		})
		return err
	})
	go func() { _ = liar.Serve() }()
	t.Cleanup(func() { _ = liar.Close() })
	l.dnsmasq("--interface=peer-good", "--dhcp-range=192.0.2.10,192.0.2.20,1h", "--dhcp-option=option:dns-server,192.0.2.53",
		"--dhcp-option=option:router,192.0.2.1")
	n := l.start()
	links := l.until(n, "both links have leases", leased("bad", "good"))
	for destination, link := range map[string]string{"192.0.2.1": "good", "203.0.113.7": "good", "198.51.100.1": "bad"} {
		source, err := SourceFor(l.ctx, addr(destination))
		if want := links[link].Lease.Address.Addr(); err != nil || source != want {
			t.Errorf("source towards %s: got %v, %v, want %v of link %s", destination, source, err, want, link)
		}
	}
	l.eventually("the good link's name server is among the three that are asked", func() bool { return l.resolves("nameserver 192.0.2.53") })
	if search := links["bad"].Lease.Search; len(search) != 0 {
		t.Errorf("search list: got %q, want none of what is no domain", search)
	}
}
