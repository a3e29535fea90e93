package netboot

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"

	"github.com/vishvananda/netlink"

	"ironroot/netboot/networkdata"
)

// monitoring is how often a bond looks at its members' carriers, in milliseconds, where nobody says how: without it a dead
// member would stay in use.
const monitoring = 100

// bondSetters put an option of the bonding driver into the library's form.
var bondSetters = map[string]func(*netlink.Bond, int){
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

// kernelBond is a bond as the kernel is asked for it.
func kernelBond(l networkdata.Link, name string) *netlink.Bond {
	attrs := netlink.NewLinkAttrs()
	attrs.Name, attrs.HardwareAddr = name, l.MAC
	bond := netlink.NewLinkBond(attrs)
	bond.Mode = netlink.BondMode(l.Bond.Mode)
	options := maps.Clone(l.Bond.Options)
	if _, given := options["miimon"]; !given && options["arp_interval"] == 0 {
		options["miimon"] = monitoring
	}
	for option, value := range options {
		if set, known := bondSetters[option]; known {
			set(bond, value)
		}
	}
	for _, target := range l.Bond.ARPTargets {
		bond.ArpIpTargets = append(bond.ArpIpTargets, net.IP(target.AsSlice()))
	}
	bond.AdActorSystem = l.Bond.ActorSystem
	return bond
}

// makeBond makes a bond's interface, which the members then join. The kernel asks for its module by itself. Options that
// it does not take together are left out: a bond that works is better than one that works well.
func (n *Network) makeBond(ctx context.Context, l networkdata.Link, name string) {
	bond := kernelBond(l, name)
	err := netlink.LinkAdd(bond)
	if err != nil {
		attrs := bond.LinkAttrs
		plain := netlink.NewLinkBond(attrs)
		plain.Mode, plain.Miimon = bond.Mode, monitoring
		if netlink.LinkAdd(plain) == nil {
			n.log.Warn("the kernel does not take the bond's options, it has its own", "interface", name, "link", l.ID, "err", err)
			err = nil
		}
	}
	if err != nil && ctx.Err() == nil {
		n.giveUp(ctx, l.ID, fmt.Errorf("bond %s: %w", name, err))
	}
}

// join makes the link a member of its bond and keeps it raised until ctx ends.
func (l *link) join(ctx context.Context, r role) {
	n := l.network
	delay := n.timing.first
	for ctx.Err() == nil {
		bond, err := n.awaitInterface(ctx, r.bond)
		if err != nil {
			return
		}
		if err = l.enslave(bond, r.primary); err == nil {
			l.fail(partLink, "", nil)
			n.log.Info("member of a bond", "interface", l.name(), "bond", r.bond)
			if l.awaitCarrier(ctx) {
				n.settle(l)
			}
			<-ctx.Done()
			return
		}
		l.fail(partLink, "link does not become a member of its bond", err)
		l.pause(ctx, delay)
		delay = min(2*delay, n.timing.longest)
	}
}

// enslave moves the link into a bond; the bond raises it.
func (l *link) enslave(bond int, primary bool) error {
	// The driver takes links that are down only.
	if err := netlink.LinkSetDown(byIndex(l.index)); err != nil {
		return fmt.Errorf("take down: %w", err)
	}
	if err := netlink.LinkSetMasterByIndex(byIndex(l.index), bond); err != nil {
		return errors.Join(fmt.Errorf("join bond: %w", err), netlink.LinkSetUp(byIndex(l.index)))
	}
	if !primary {
		return nil
	}
	attrs := netlink.NewLinkAttrs()
	attrs.Index = bond
	change := netlink.NewLinkBond(attrs)
	change.Primary = l.index
	if err := netlink.LinkModify(change); err != nil {
		l.network.log.Warn("link is not made the primary one of its bond", "interface", l.name(), "err", err)
	}
	return nil
}

// awaitInterface waits until a link is there and returns its index.
func (n *Network) awaitInterface(ctx context.Context, name string) (int, error) {
	for {
		changed := n.Changed()
		for _, l := range n.Links() {
			if l.Name == name {
				return l.Index, nil
			}
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return 0, ctx.Err()
		}
	}
}
