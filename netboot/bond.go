package netboot

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"ironroot/netboot/networkdata"
)

// monitoring is how often a bond looks at its members' carriers, in milliseconds, where nobody says how: without it a dead
// member would stay in use.
const monitoring = 100

// bondOptions says how the kernel takes each option of the bonding driver: its attribute, and the bytes of its number.
var bondOptions = map[string]struct{ attribute, size int }{
	"miimon":            {nl.IFLA_BOND_MIIMON, 4},
	"updelay":           {nl.IFLA_BOND_UPDELAY, 4},
	"downdelay":         {nl.IFLA_BOND_DOWNDELAY, 4},
	"use_carrier":       {nl.IFLA_BOND_USE_CARRIER, 1},
	"arp_interval":      {nl.IFLA_BOND_ARP_INTERVAL, 4},
	"arp_validate":      {nl.IFLA_BOND_ARP_VALIDATE, 4},
	"arp_all_targets":   {nl.IFLA_BOND_ARP_ALL_TARGETS, 4},
	"primary_reselect":  {nl.IFLA_BOND_PRIMARY_RESELECT, 1},
	"fail_over_mac":     {nl.IFLA_BOND_FAIL_OVER_MAC, 1},
	"xmit_hash_policy":  {nl.IFLA_BOND_XMIT_HASH_POLICY, 1},
	"resend_igmp":       {nl.IFLA_BOND_RESEND_IGMP, 4},
	"num_grat_arp":      {nl.IFLA_BOND_NUM_PEER_NOTIF, 1},
	"num_unsol_na":      {nl.IFLA_BOND_NUM_PEER_NOTIF, 1},
	"all_slaves_active": {nl.IFLA_BOND_ALL_SLAVES_ACTIVE, 1},
	"min_links":         {nl.IFLA_BOND_MIN_LINKS, 4},
	"lp_interval":       {nl.IFLA_BOND_LP_INTERVAL, 4},
	"packets_per_slave": {nl.IFLA_BOND_PACKETS_PER_SLAVE, 4},
	"lacp_rate":         {nl.IFLA_BOND_AD_LACP_RATE, 1},
	"ad_select":         {nl.IFLA_BOND_AD_SELECT, 1},
	"ad_actor_sys_prio": {nl.IFLA_BOND_AD_ACTOR_SYS_PRIO, 2},
	"ad_user_port_key":  {nl.IFLA_BOND_AD_USER_PORT_KEY, 2},
	"tlb_dynamic_lb":    {nl.IFLA_BOND_TLB_DYNAMIC_LB, 1},
}

// bondRequest is a bond as the kernel is asked for it.
func bondRequest(l networkdata.Link, name string) linkRequest {
	options := maps.Clone(l.Bond.Options)
	if _, given := options["miimon"]; !given && options["arp_interval"] == 0 {
		options["miimon"] = monitoring
	}
	r := linkRequest{kind: "bond", name: name, data: []linkAttribute{number(nl.IFLA_BOND_MODE, 1, int(l.Bond.Mode))}}
	if l.MAC != nil {
		r.attributes = []linkAttribute{{kind: unix.IFLA_ADDRESS, value: l.MAC}}
	}
	for _, option := range slices.Sorted(maps.Keys(options)) {
		if as, known := bondOptions[option]; known {
			r.data = append(r.data, number(as.attribute, as.size, options[option]))
		}
	}
	if len(l.Bond.ARPTargets) > 0 {
		targets := linkAttribute{kind: nl.IFLA_BOND_ARP_IP_TARGET}
		for i, target := range l.Bond.ARPTargets {
			targets.list = append(targets.list, linkAttribute{kind: i, value: target.AsSlice()})
		}
		r.data = append(r.data, targets)
	}
	if l.Bond.ActorSystem != nil {
		r.data = append(r.data, linkAttribute{kind: nl.IFLA_BOND_AD_ACTOR_SYSTEM, value: l.Bond.ActorSystem})
	}
	return r
}

// makeBond makes a bond's interface, which the members then join. The kernel asks for its module by itself. Options that
// it does not take together are left out: a bond that works is better than one that works well.
func (n *Network) makeBond(ctx context.Context, l networkdata.Link, name string) {
	bond := bondRequest(l, name)
	err := bond.do()
	if err != nil {
		plain := bond
		plain.data = []linkAttribute{number(nl.IFLA_BOND_MODE, 1, int(l.Bond.Mode)), number(nl.IFLA_BOND_MIIMON, 4, monitoring)}
		if plain.do() == nil {
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
	change := linkRequest{index: bond, kind: "bond", data: []linkAttribute{number(nl.IFLA_BOND_PRIMARY, 4, l.index)}}
	if err := change.do(); err != nil {
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
