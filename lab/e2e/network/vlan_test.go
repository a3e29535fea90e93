//go:build linux

package network

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"ironroot/lab/e2e/rig"
	"ironroot/lab/qemu"
)

// TestVLANs boots a machine whose three cables carry only tagged frames: one VLAN is configured by interface and id,
// one by MAC address and id, and two are learnt from the switch. Ironic is on one of these two.
//
// Parity: R3
func TestVLANs(t *testing.T) {
	t.Parallel()
	macs := []string{"52:54:00:e2:e0:11", "52:54:00:e2:e0:12", "52:54:00:e2:e0:13"}
	s := rig.NewSite(t)
	trunks := []*trunk{
		newTrunk(t, s.NS, "a", map[uint16]string{100: "198.51.100.1/24"}),
		newTrunk(t, s.NS, "b", map[uint16]string{200: "203.0.113.1/24"}),
		newTrunk(t, s.NS, "c", map[uint16]string{300: "192.0.2.1/24"}),
	}
	trunks[2].announce = lldpFrame("leaf", 300, 301)
	s.Dnsmasq("--interface=c.300", "--dhcp-range=192.0.2.10,192.0.2.10,1h")
	s.StartIronic(netip.MustParseAddr("192.0.2.1"), macs[2], time.Minute)
	var nics []qemu.NIC
	for i, p := range trunks {
		nics = append(nics, qemu.NIC{MAC: macs[i], Netdev: p.netdev()})
	}
	boot(s, "ipa-enable-vlan-interfaces=eth0.100,52:54:00:E2:E0:12.200,eth2", nics...)
	s.WaitAgent(t)
	if url, _ := s.Node.Callback(); url != "https://192.0.2.10:9999" {
		t.Errorf("callback URL: got %s, want the address on the VLAN that Ironic is on", url)
	}
	answers(t, s)
	// The others answer later: Ironic would be reachable from there too, by the router of the lease.
	s.Dnsmasq("--interface=a.100", "--interface=b.200",
		"--dhcp-range=198.51.100.10,198.51.100.10,1h", "--dhcp-range=203.0.113.10,203.0.113.10,1h")
	for _, name := range []string{"eth0.100", "eth1.200"} {
		s.Follow(t, "lease obtained.*interface="+name)
	}
	record, err := s.Node.Command(rig.Soon(t), "poll.get_hardware_info", nil, true)
	if err != nil {
		t.Fatal(err)
	}
	var inventory struct {
		Interfaces []struct {
			Name string
			MAC  string `json:"mac_address"`
			IPv4 string `json:"ipv4_address"`
		}
	}
	if err := json.Unmarshal(record.Result, &inventory); err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	for _, i := range inventory.Interfaces {
		got[i.Name] = i.MAC + " " + i.IPv4
	}
	want := map[string]string{
		"eth0.100": macs[0] + " 198.51.100.10", "eth1.200": macs[1] + " 203.0.113.10",
		"eth2.300": macs[2] + " 192.0.2.10",
		"eth2.301": macs[2] + " ", // announced, without any server
	}
	for i, mac := range macs {
		want[fmt.Sprintf("eth%d", i)] = mac + " "
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("interfaces (-want +got):\n%s", diff)
	}
}
