//go:build linux

package netboot

import (
	"net"
	"testing"

	"github.com/insomniacslk/dhcp/dhcpv4"

	"ironroot/netboot/route"
)

// A broken or hostile DHCP server of one link does not prevent that the network of another link is reached.
func TestBrokenServerBesideGoodNetwork(t *testing.T) {
	l, inside := inNamespace(t, "dnsmasq")
	if !inside {
		return
	}
	l.Cable("bad", "198.51.100.1/24")
	l.Cable("good", "192.0.2.1/24")
	l.grants("bad", "198.51.100.9/24",
		dhcpv4.WithNetmask(net.CIDRMask(8, 32)), // too wide: a class A network on the cable
		// Nobody answers there, and there is no router.
		dhcpv4.WithOption(dhcpv4.OptDNS(net.IPv4(203, 0, 113, 53))),
		dhcpv4.WithOption(dhcpv4.OptDomainName("; nameserver 203.0.113.1"))) // no domain
	l.Dnsmasq("--interface=peer-good", "--dhcp-range=192.0.2.10,192.0.2.20,1h",
		"--dhcp-option=option:dns-server,192.0.2.53", "--dhcp-option=option:router,192.0.2.1")
	n := l.start()
	links := l.until(n, "both links have leases", leased("bad", "good"))
	for destination, link := range map[string]string{
		"192.0.2.1": "good", "203.0.113.7": "good", "198.51.100.1": "bad",
	} {
		source, err := route.SourceFor(l.Ctx, addr(destination))
		if want := links[link].Lease.Address.Addr(); err != nil || source != want {
			t.Errorf("source towards %s: got %v, %v, want %v of link %s", destination, source, err, want, link)
		}
	}
	l.eventually("the good link's name server is among the three that are asked",
		func() bool { return l.resolves("nameserver 192.0.2.53") })
	if search := links["bad"].Lease.Search; len(search) != 0 {
		t.Errorf("search list: got %q, want none of what is no domain", search)
	}
}
