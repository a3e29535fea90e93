//go:build linux

package bond

import (
	"log/slog"
	"net"
	"net/netip"
	"reflect"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"ironroot/internal/test/testenv/nettest"
	"ironroot/netboot/networkdata"
)

// Options of static data become options of the kernel; all others stay unset.
func TestKernelBond(t *testing.T) {
	for name, c := range map[string]struct {
		link networkdata.Link
		want func(*netlink.Bond)
	}{
		"LACP": {
			networkdata.Link{
				MAC: net.HardwareAddr{2, 0, 0, 0, 0, 2},
				Bond: &networkdata.Bond{
					Mode:        networkdata.LACP,
					Options:     map[string]int{"lacp_rate": 1, "xmit_hash_policy": 1, "ad_actor_sys_prio": 7},
					ActorSystem: net.HardwareAddr{2, 0, 0, 0, 0, 1},
				},
			},
			func(b *netlink.Bond) {
				b.HardwareAddr = net.HardwareAddr{2, 0, 0, 0, 0, 2}
				b.Mode, b.LacpRate, b.XmitHashPolicy, b.AdActorSysPrio, b.Miimon = 4, 1, 1, 7, 100
				b.AdActorSystem = net.HardwareAddr{2, 0, 0, 0, 0, 1}
			},
		},
		"ARP monitoring": {
			networkdata.Link{Bond: &networkdata.Bond{
				Mode: networkdata.ActiveBackup, Options: map[string]int{"arp_interval": 200, "nonsense": 1},
				ARPTargets: []netip.Addr{netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("192.0.2.2")},
			}},
			func(b *netlink.Bond) {
				b.Mode, b.ArpInterval, b.ArpIpTargets = 1, 200, []net.IP{{192, 0, 2, 1}, {192, 0, 2, 2}}
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			attrs := netlink.NewLinkAttrs()
			attrs.Name = "bond0"
			want := netlink.NewLinkBond(attrs)
			c.want(want)
			if diff := cmp.Diff(want, kernelBond(c.link, "bond0")); diff != "" {
				t.Errorf("bond (-want +got):\n%s", diff)
			}
		})
	}
}

// Each option sets one field, and no two options the same one, except the two names of num_peer_notif.
func TestBondOptions(t *testing.T) {
	unset := reflect.ValueOf(*netlink.NewLinkBond(netlink.LinkAttrs{}))
	options := map[string][]string{} // by field
	for option, set := range bondOptions {
		bond := netlink.NewLinkBond(netlink.LinkAttrs{})
		set(bond, 7)
		for i := range unset.NumField() {
			if !reflect.DeepEqual(unset.Field(i).Interface(), reflect.ValueOf(*bond).Field(i).Interface()) {
				field := unset.Type().Field(i).Name
				options[field] = append(options[field], option)
			}
		}
	}
	if got := len(options["NumPeerNotif"]); got != 2 || len(options) != len(bondOptions)-1 {
		t.Errorf("got %v, want one field for each of the %d options, and two options for NumPeerNotif",
			options, len(bondOptions))
	}
}

// A missing bond is an error.
func TestPrimaryOfMissingBond(t *testing.T) {
	if _, inside := nettest.New(t); !inside {
		return
	}
	if err := SetPrimary(1<<20, 1); err == nil {
		t.Error("primary member: got no error")
	}
}

// A bond that cannot be created is an error that names it. A link of another kind is not removed.
func TestErrors(t *testing.T) {
	if _, inside := nettest.New(t); !inside {
		return
	}
	log := slog.New(slog.NewTextHandler(t.Output(), nil))
	err := Create(log, networkdata.Link{Bond: &networkdata.Bond{}}, "no/name")
	if err == nil || !strings.HasPrefix(err.Error(), "create bond no/name: ") {
		t.Errorf("got %v, want an error that names the bond", err)
	}
	if err := Remove("lo"); err != nil {
		t.Errorf("link of another kind: got %v, want no error", err)
	}
	if err := Remove("bond7"); err == nil {
		t.Error("missing bond: got no error when it is removed")
	}
	if err := Join(1, 1<<20); err == nil || !strings.HasPrefix(err.Error(), "take down: ") {
		t.Errorf("missing member: got %v, want an error", err)
	}
	if err := Leave(1 << 20); err == nil {
		t.Error("missing member: got no error when it leaves")
	}
	if IsMember(&netlink.LinkAttrs{RawFlags: unix.IFF_UP}) || !IsMember(&netlink.LinkAttrs{RawFlags: unix.IFF_SLAVE}) {
		t.Error("only a link with the flag of a member is one")
	}
}

// A link that joins is down. If it cannot join, it is raised again.
func TestJoin(t *testing.T) {
	l, inside := nettest.New(t)
	if !inside {
		return
	}
	bridge := l.Bridge("br0")
	l.Cable("nic0", "")
	nic0 := l.Raise("nic0").Index
	check := func(when string, up bool, master int) {
		t.Helper()
		link, err := netlink.LinkByIndex(nic0)
		if err != nil {
			t.Fatal(err)
		}
		if a := link.Attrs(); a.Flags&net.FlagUp != 0 != up || a.MasterIndex != master {
			t.Errorf("%s: got flags %v and master %d, want up %v and master %d",
				when, a.Flags, a.MasterIndex, up, master)
		}
	}
	if err := Join(1<<20, nic0); err == nil || !strings.HasPrefix(err.Error(), "join bond: ") {
		t.Errorf("missing bond: got %v, want an error", err)
	}
	check("missing bond", true, 0)
	if err := Join(bridge, nic0); err != nil {
		t.Fatal(err)
	}
	check("member", false, bridge)
	if err := Leave(nic0); err != nil {
		t.Fatal(err)
	}
	check("left", false, 0)
}

// An attribute of a link that is up is changed.
func TestChangeLink(t *testing.T) {
	l, inside := nettest.New(t)
	if !inside {
		return
	}
	index := l.Bridge("br0")
	l.Raise("br0")
	const age = 4500 // hundredths of a second
	if err := changeLink(index, "bridge", nl.IFLA_BR_AGEING_TIME, age); err != nil {
		t.Fatal(err)
	}
	bridge, err := netlink.LinkByIndex(index)
	changed, ok := bridge.(*netlink.Bridge)
	if err != nil || !ok || changed.AgeingTime == nil || *changed.AgeingTime != age {
		t.Errorf("got %+v, %v, want an ageing time of %d", bridge, err, age)
	}
	if err := changeLink(index, "nonsense", nl.IFLA_BR_AGEING_TIME, age); err == nil {
		t.Error("unknown kind: got no error")
	}
}
