package pxe

import (
	"os"
	"testing"

	"github.com/vishvananda/netlink"

	"ironroot/internal/test/testenv/nettest"
)

// The test's network is a bridge with this machine's address. The link dhcp0 is another machine on it.
const (
	bridge    = "br0"
	own       = "192.0.2.1"
	otherLink = "dhcp0"
	other     = "192.0.2.2"
)

// network creates the network in the namespace of the test.
func network(t *testing.T) {
	t.Helper()
	// Otherwise dhcp0, which is in the same namespace, answers ARP requests for the address of the bridge, too.
	if err := os.WriteFile("/proc/sys/net/ipv4/conf/all/arp_ignore", []byte("1"), 0o600); err != nil {
		t.Fatal(err)
	}
	br := &netlink.Bridge{LinkAttrs: attrs(bridge)}
	port := &netlink.Veth{LinkAttrs: attrs("port0"), PeerName: otherLink}
	for _, link := range []netlink.Link{br, port} {
		if err := netlink.LinkAdd(link); err != nil {
			t.Fatal(err)
		}
	}
	attach(t, port)
	nettest.Configure(t, bridge, own+"/24")
	nettest.Configure(t, otherLink, other+"/24")
	nettest.Configure(t, "lo")
}

func attrs(name string) netlink.LinkAttrs {
	a := netlink.NewLinkAttrs()
	a.Name = name
	return a
}

// attach makes a link a port of the bridge and sets it up.
func attach(t *testing.T, link netlink.Link) {
	t.Helper()
	master, err := netlink.LinkByName(bridge)
	if err == nil {
		err = netlink.LinkSetMaster(link, master)
	}
	if err == nil {
		err = netlink.LinkSetUp(link)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// dnsmasq starts an independent DHCP server on a link.
func dnsmasq(t *testing.T, link string, args ...string) {
	t.Helper()
	nettest.Dnsmasq(t, append([]string{"--interface=" + link, "--dhcp-range=192.0.2.100,192.0.2.150,1h"}, args...)...)
}
