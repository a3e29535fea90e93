//go:build linux

package network

import (
	"encoding/json"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"ironroot/lab/e2e/rig"
	"ironroot/lab/qemu"
	"ironroot/netboot/server"
)

// TestLeases boots a machine with four cards: one on the network of Ironic, whose DHCP server assigns another address
// on renewal, and three on networks of dnsmasq with IPv4, stateful IPv6, and addresses from router advertisements.
func TestLeases(t *testing.T) {
	t.Parallel()
	macs := []string{"52:54:00:e2:e0:21", "52:54:00:e2:e0:22", "52:54:00:e2:e0:23", "52:54:00:e2:e0:24"}
	s := rig.NewSite(t)
	var nics []qemu.NIC
	for i, address := range []string{"192.0.2.1/24", "198.51.100.1/24", "2001:db8:a::1/64", "2001:db8:b::1/64"} {
		nics = append(nics,
			qemu.NIC{MAC: macs[i], Netdev: s.Tap([]string{"scripted", "four", "stateful", "slaac"}[i], address)})
	}
	s.Dnsmasq("--interface=four", "--interface=stateful", "--interface=slaac", "--enable-ra",
		"--dhcp-range=198.51.100.10,198.51.100.20,1h", "--dhcp-range=2001:db8:a::10,2001:db8:a::20,64,1h",
		"--dhcp-range=2001:db8:b::,ra-only")
	const lease = 2 * time.Minute // half of it is the time to reach the agent at an address that is not renewed
	var dhcp *server.DHCP
	if err := s.NS.Do(func() (err error) {
		dhcp, err = server.ListenDHCP(t.Context(), server.DHCPConfig{
			Interface: "scripted", Address: netip.MustParsePrefix("192.0.2.1/24"), Lease: lease,
			Fixed: map[string]server.Host{macs[0]: {Address: netip.MustParseAddr("192.0.2.10")}},
		})
		return err
	}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = dhcp.Close() })
	s.StartIronic(netip.MustParseAddr("192.0.2.1"), macs[0], 5*time.Second)
	boot(s, "", nics...)
	s.WaitAgent(t)
	t.Run("two families", func(t *testing.T) { twoFamilies(t, s) })
	mac, err := net.ParseMAC(macs[0])
	if err != nil {
		t.Fatal(err)
	}
	dhcp.SetHost(mac, server.Host{Address: netip.MustParseAddr("192.0.2.11")})
	t.Run("another address", func(t *testing.T) { anotherAddress(t, s) })
}

// twoFamilies checks that all cards have addresses of their networks.
//
// Parity: R1
func twoFamilies(t *testing.T, s *rig.Site) {
	want := map[string]string{"eth0": "192.0.2.", "eth1": "198.51.100.", "eth2": "2001:db8:a::", "eth3": "2001:db8:b:"}
	ctx := rig.Soon(t)
	for {
		record, err := s.Node.Command(ctx, "poll.get_hardware_info", nil, true)
		if err != nil {
			t.Fatal(err)
		}
		var inventory struct {
			Interfaces []struct {
				Name string
				IPv4 string `json:"ipv4_address"`
				IPv6 string `json:"ipv6_address"`
			}
		}
		if err := json.Unmarshal(record.Result, &inventory); err != nil {
			t.Fatal(err)
		}
		missing := len(want)
		for _, i := range inventory.Interfaces {
			prefix := want[i.Name]
			if prefix != "" && (strings.HasPrefix(i.IPv4, prefix) || strings.HasPrefix(i.IPv6, prefix)) {
				missing--
			}
		}
		if missing == 0 {
			return
		}
		// Addresses cause no event; the agent's next heartbeat is the signal to read them again.
		if err := s.Node.WaitHeartbeat(ctx); err != nil {
			t.Fatalf("%v; addresses: got %+v, want those of %v", err, inventory.Interfaces, want)
		}
	}
}

// anotherAddress checks that heartbeats continue after the address has changed, with the old callback URL, because
// Ironic would reject another one. The agent is reachable at both addresses.
//
// Parity: B18
func anotherAddress(t *testing.T, s *rig.Site) {
	s.Follow(t, `lease renewed.*interface=eth0.*192\.0\.2\.11`)
	answers(t, s) // first, because the first address expires half a lease later
	if err := s.Node.WaitHeartbeat(rig.Soon(t)); err != nil {
		t.Fatal(err)
	}
	if url, _ := s.Node.Callback(); url != "https://192.0.2.10:9999" {
		t.Errorf("callback URL: got %s, want that of the first address", url)
	}
	connects(t, s, "192.0.2.11:9999")
}

// TestIPv6Ironic boots a machine on a network without IPv4. Its address comes from router advertisements and is part
// of the callback URL.
//
// Parity: B12 (IPv6)
func TestIPv6Ironic(t *testing.T) {
	t.Parallel()
	const mac = "52:54:00:e2:e0:25"
	s := rig.NewSite(t)
	netdev := s.Tap("six", "2001:db8:c::1/64")
	s.Dnsmasq("--interface=six", "--enable-ra", "--dhcp-range=2001:db8:c::,ra-only")
	s.StartIronic(netip.MustParseAddr("2001:db8:c::1"), mac, time.Minute)
	boot(s, "", qemu.NIC{MAC: mac, Netdev: netdev})
	s.WaitAgent(t)
	url, _ := s.Node.Callback()
	host, found := strings.CutPrefix(url, "https://[")
	host, port, _ := strings.Cut(host, "]")
	address, err := netip.ParseAddr(host)
	if !found || err != nil || port != ":9999" || !netip.MustParsePrefix("2001:db8:c::/64").Contains(address) {
		t.Errorf("callback URL: got %s, want https://[2001:db8:c:...]:9999", url)
	}
	answers(t, s)
}
