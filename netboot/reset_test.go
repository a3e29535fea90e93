//go:build linux

package netboot

import (
	"net"
	"net/netip"
	"testing"

	"github.com/vishvananda/netlink"

	"ironroot/internal/test/testenv"
	"ironroot/netboot/listing"
	"ironroot/netboot/server"
	"ironroot/netboot/snapshot"
)

// A link that was moved to another network without a loss of its carrier gets an address there when it is asked again.
// Reset removes everything that a network has left, and the next one starts as on a new machine.
func TestAskAgainAndReset(t *testing.T) {
	l, inside := inNamespace(t, "ip")
	if !inside {
		return
	}
	l.Cable("nic0", "192.0.2.1/24")
	id := mac(t, "nic0")
	d := l.serve(server.DHCPConfig{
		Interface: "peer-nic0", Address: netip.MustParsePrefix("192.0.2.1/24"), Router: addr("192.0.2.1"),
		Fixed: map[string]server.Host{id.String(): {Address: addr("192.0.2.10")}},
	})
	n := l.start()
	l.until(n, "address", leased("nic0"))
	d.SetHost(id, server.Host{Address: addr("192.0.2.77")})
	n.AskAgain()
	l.until(n, "the new network's address", func(links map[string]snapshot.Link) bool {
		return leased("nic0")(links) && has(links["nic0"], "192.0.2.77/24") && !has(links["nic0"], "192.0.2.10/24")
	})
	n.stop()
	<-n.watching
	testenv.Run(t, "ip", "address", "add", "198.51.100.7/24", "dev", "nic0")
	if len(l.routes("nic0")) == 0 {
		t.Fatal("the network has left no route: nothing is shown")
	}
	if err := Reset(); err != nil {
		t.Fatal(err)
	}
	addresses, err := listing.Addresses()
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range addresses {
		if !a.IP.IsLoopback() {
			t.Errorf("address %v is still there", a.IPNet)
		}
	}
	if got := l.routes("nic0"); len(got) > 0 {
		t.Errorf("routes %v are still there", got)
	}
	link, err := netlink.LinkByName("nic0")
	if err != nil || link.Attrs().Flags&net.FlagUp == 0 {
		t.Errorf("got flags %v, %v, want the link still up", link.Attrs().Flags, err)
	}
	n = l.start()
	l.until(n, "address after Reset", leased("nic0"))
}
