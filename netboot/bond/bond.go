//go:build linux

package bond

import (
	"errors"
	"fmt"
	"log/slog"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"ironroot/netboot/ifconfig"
	"ironroot/netboot/networkdata"
)

// monitoring is the default of miimon, in milliseconds: how often a bond checks the carriers of its members. The
// kernel's default is never, and would leave a dead member in use.
const monitoring = 100

// bondOptions sets each option of the bonding driver. Those that are absent have the kernel's defaults.
var bondOptions = map[string]func(bond *netlink.Bond, value int){
	"miimon":            func(b *netlink.Bond, v int) { b.Miimon = v },
	"updelay":           func(b *netlink.Bond, v int) { b.UpDelay = v },
	"downdelay":         func(b *netlink.Bond, v int) { b.DownDelay = v },
	"use_carrier":       func(b *netlink.Bond, v int) { b.UseCarrier = v },
	"arp_interval":      func(b *netlink.Bond, v int) { b.ArpInterval = v },
	"arp_validate":      func(b *netlink.Bond, v int) { b.ArpValidate = netlink.BondArpValidate(v) },
	"arp_all_targets":   func(b *netlink.Bond, v int) { b.ArpAllTargets = netlink.BondArpAllTargets(v) },
	"primary_reselect":  func(b *netlink.Bond, v int) { b.PrimaryReselect = netlink.BondPrimaryReselect(v) },
	"fail_over_mac":     func(b *netlink.Bond, v int) { b.FailOverMac = netlink.BondFailOverMac(v) },
	"xmit_hash_policy":  func(b *netlink.Bond, v int) { b.XmitHashPolicy = netlink.BondXmitHashPolicy(v) },
	"resend_igmp":       func(b *netlink.Bond, v int) { b.ResendIgmp = v },
	"num_grat_arp":      func(b *netlink.Bond, v int) { b.NumPeerNotif = v },
	"num_unsol_na":      func(b *netlink.Bond, v int) { b.NumPeerNotif = v },
	"all_slaves_active": func(b *netlink.Bond, v int) { b.AllSlavesActive = v },
	"min_links":         func(b *netlink.Bond, v int) { b.MinLinks = v },
	"lp_interval":       func(b *netlink.Bond, v int) { b.LpInterval = v },
	"packets_per_slave": func(b *netlink.Bond, v int) { b.PacketsPerSlave = v },
	"lacp_rate":         func(b *netlink.Bond, v int) { b.LacpRate = netlink.BondLacpRate(v) },
	"ad_select":         func(b *netlink.Bond, v int) { b.AdSelect = netlink.BondAdSelect(v) },
	"ad_actor_sys_prio": func(b *netlink.Bond, v int) { b.AdActorSysPrio = v },
	"ad_user_port_key":  func(b *netlink.Bond, v int) { b.AdUserPortKey = v },
	"tlb_dynamic_lb":    func(b *netlink.Bond, v int) { b.TlbDynamicLb = v },
}

// newBond returns a bond with a name and a mode.
func newBond(l networkdata.Link, name string) *netlink.Bond {
	attrs := netlink.NewLinkAttrs()
	attrs.Name, attrs.HardwareAddr = name, l.MAC
	bond := netlink.NewLinkBond(attrs)
	bond.Mode = netlink.BondMode(l.Bond.Mode)
	return bond
}

// kernelBond returns a bond of static data for the kernel.
func kernelBond(l networkdata.Link, name string) *netlink.Bond {
	bond := newBond(l, name)
	for option, value := range l.Bond.Options {
		if set, known := bondOptions[option]; known {
			set(bond, value)
		}
	}
	if _, given := l.Bond.Options["miimon"]; !given && l.Bond.Options["arp_interval"] == 0 {
		bond.Miimon = monitoring
	}
	for _, target := range l.Bond.ARPTargets {
		bond.ArpIpTargets = append(bond.ArpIpTargets, target.AsSlice())
	}
	bond.AdActorSystem = l.Bond.ActorSystem
	return bond
}

// Create creates a bond of static data. Its members join it later. The kernel loads the module by itself. If the kernel
// rejects the options together, the bond gets the defaults, which is logged: it works, if not as well.
func Create(log *slog.Logger, l networkdata.Link, name string) error {
	err := netlink.LinkAdd(kernelBond(l, name))
	if err == nil {
		return nil
	}
	plain := newBond(l, name)
	plain.Miimon = monitoring
	if netlink.LinkAdd(plain) != nil {
		return fmt.Errorf("create bond %s: %w", name, err)
	}
	log.Warn("options of the bond rejected, using defaults", "interface", name, "link", l.ID, "err", err)
	return nil
}

// Remove deletes a bond. Another link with its name stays.
func Remove(name string) error {
	bond, err := netlink.LinkByName(name)
	if err == nil && bond.Type() == "bond" {
		err = netlink.LinkDel(bond)
	}
	return err
}

// Join moves a link into a bond; the bond raises it. Both are kernel indices.
func Join(bond, member int) error {
	// The driver accepts only links that are down.
	if err := netlink.LinkSetDown(ifconfig.ByIndex(member)); err != nil {
		return fmt.Errorf("take down: %w", err)
	}
	if err := netlink.LinkSetMasterByIndex(ifconfig.ByIndex(member), bond); err != nil {
		return errors.Join(fmt.Errorf("join bond: %w", err), netlink.LinkSetUp(ifconfig.ByIndex(member)))
	}
	return nil
}

// Leave removes a link with a kernel index from its bond.
func Leave(member int) error { return netlink.LinkSetNoMaster(ifconfig.ByIndex(member)) }

// IsMember reports whether a link is a member of a bond, so that its MAC address may be the bond's.
func IsMember(attrs *netlink.LinkAttrs) bool { return attrs.RawFlags&unix.IFF_SLAVE != 0 }

// SetPrimary sets the primary member of a bond. Both are kernel indices.
func SetPrimary(bond, member int) error {
	return changeLink(bond, "bond", nl.IFLA_BOND_PRIMARY, uint32(member))
}

// changeLink sets an attribute that only links of one kind have (RTM_NEWLINK of rtnetlink(7)). The library's
// LinkModify always sends the name too: if the bond is up, Linux 6.1 then sets the attribute, but reports an error.
func changeLink(index int, kind string, attribute int, value uint32) error {
	request := nl.NewNetlinkRequest(unix.RTM_NEWLINK, unix.NLM_F_ACK)
	message := nl.NewIfInfomsg(unix.AF_UNSPEC)
	message.Index = int32(index)
	request.AddData(message)
	info := nl.NewRtAttr(unix.IFLA_LINKINFO, nil)
	info.AddRtAttr(nl.IFLA_INFO_KIND, nl.NonZeroTerminated(kind))
	info.AddRtAttr(nl.IFLA_INFO_DATA, nil).AddRtAttr(attribute, nl.Uint32Attr(value))
	request.AddData(info)
	_, err := request.Execute(unix.NETLINK_ROUTE, 0)
	return err
}
