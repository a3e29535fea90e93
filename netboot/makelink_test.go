package netboot

import (
	"encoding/binary"
	"errors"
	"net"
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"ironroot/netboot/networkdata"
)

// The kernel that tests run on has bridges, if neither VLANs nor bonds; their numbers are of several sizes, too.
func TestMakeLink(t *testing.T) {
	_, inside := inNamespace(t)
	if !inside {
		return
	}
	const ageing, priority, filtering = 4, 6, 7 // IFLA_BR_AGEING_TIME, _PRIORITY, _VLAN_FILTERING
	mac := net.HardwareAddr{2, 0, 0, 0, 0, 7}
	bridge := linkRequest{
		kind: "bridge", name: "br0", attributes: []linkAttribute{{kind: unix.IFLA_ADDRESS, value: mac}},
		data: []linkAttribute{number(ageing, 4, 12300), number(priority, 2, 0x1234)},
	}
	if err := bridge.do(); err != nil {
		t.Fatal(err)
	}
	link, err := netlink.LinkByName("br0")
	if err != nil {
		t.Fatal(err)
	}
	made, ok := link.(*netlink.Bridge)
	if !ok || made.HardwareAddr.String() != mac.String() || made.AgeingTime == nil || *made.AgeingTime != 12300 {
		t.Errorf("got %+v, want the bridge that was asked for", link)
	}
	if err := bridge.do(); !errors.Is(err, unix.EEXIST) {
		t.Errorf("once more: got %v, want %v", err, unix.EEXIST)
	}
	change := linkRequest{index: made.Index, kind: "bridge", data: []linkAttribute{number(ageing, 4, 4500)}}
	if err := change.do(); err != nil {
		t.Fatal(err)
	}
	if link, err = netlink.LinkByName("br0"); err != nil || *link.(*netlink.Bridge).AgeingTime != 4500 {
		t.Errorf("changed: got %+v, %v, want the new time", link, err)
	}
	if err := (linkRequest{kind: "nonsense", name: "x"}).do(); err == nil {
		t.Error("an unknown kind: got no error")
	}
}

// What a bond is asked for with, by the numbers of the kernel's if_link.h.
func TestBondRequest(t *testing.T) {
	for name, c := range map[string]struct {
		bond networkdata.Bond
		want []linkAttribute
	}{
		"LACP": {
			networkdata.Bond{Mode: networkdata.LACP, Options: map[string]int{"lacp_rate": 1, "xmit_hash_policy": 1, "ad_actor_sys_prio": 7}, ActorSystem: net.HardwareAddr{2, 0, 0, 0, 0, 1}},
			[]linkAttribute{
				{kind: 1, value: []byte{4}},
				{kind: 24, value: binary.NativeEndian.AppendUint16(nil, 7)},
				{kind: 21, value: []byte{1}},
				{kind: 3, value: binary.NativeEndian.AppendUint32(nil, monitoring)},
				{kind: 14, value: []byte{1}},
				{kind: 26, value: []byte{2, 0, 0, 0, 0, 1}},
			},
		},
		"by ARP": {
			networkdata.Bond{Mode: networkdata.ActiveBackup, Options: map[string]int{"arp_interval": 200}, ARPTargets: []netip.Addr{addr("192.0.2.1"), addr("192.0.2.2")}},
			[]linkAttribute{
				{kind: 1, value: []byte{1}},
				{kind: 7, value: binary.NativeEndian.AppendUint32(nil, 200)},
				{kind: 8, list: []linkAttribute{{kind: 0, value: []byte{192, 0, 2, 1}}, {kind: 1, value: []byte{192, 0, 2, 2}}}},
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			got := bondRequest(networkdata.Link{Bond: &c.bond}, "bond0")
			if diff := cmp.Diff(c.want, got.data, cmp.AllowUnexported(linkAttribute{})); diff != "" {
				t.Errorf("attributes (-want +got):\n%s", diff)
			}
		})
	}
}
