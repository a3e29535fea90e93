package netboot

import (
	"context"
	"fmt"
	"slices"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"ironroot/netboot/networkdata"
)

// useStatic gives the link its static addresses, as soon as there is a carrier: routes through a cable that leads nowhere
// would hide those that lead somewhere. What the kernel refuses is left out.
func (l *link) useStatic(ctx context.Context, r role) {
	n := l.network
	if len(r.static.addresses) == 0 && len(r.static.dns) == 0 && len(r.static.search) == 0 {
		return
	}
	for _, family := range []string{"ipv4", "ipv6"} {
		if err := setKernel(family, l.name(), "ignore_routes_with_linkdown", "1"); err != nil {
			n.log.Debug("routes stay when the carrier goes", "interface", l.name(), "err", err)
		}
	}
	if !l.awaitStaticCarrier(ctx) {
		return
	}
	n.mu.Lock()
	l.staticNames = r.static
	l.coming = append(l.coming, r.static.addresses...)
	n.mu.Unlock()
	n.writeResolver()
	config := r.static
	if err := config.apply(l.index, r.metric, linkConfig{}); err != nil && ctx.Err() == nil {
		n.log.Warn("static configuration not used as a whole", "interface", l.name(), "err", err)
		config = l.salvage(r.static, r.metric)
	}
	n.update(func() {
		l.static, l.staticMetric = config, r.metric
		l.arrived(r.static.addresses)
	})
	if len(config.addresses) > 0 {
		n.log.Info("static addresses", "interface", l.name(), "address", fmt.Sprint(config.addresses))
	}
}

// awaitStaticCarrier waits for the carrier, however long it takes.
func (l *link) awaitStaticCarrier(ctx context.Context) bool {
	for {
		changed := l.network.Changed()
		if l.snapshot().Carrier {
			return true
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return false
		}
	}
}

// salvage applies address by address and route by route what the kernel does not take as a whole.
func (l *link) salvage(whole linkConfig, metric int) linkConfig {
	n := l.network
	good := linkConfig{dns: whole.dns, search: whole.search}
	try := func(next linkConfig, what string) {
		if err := next.apply(l.index, metric, good); err != nil {
			n.log.Warn("part of the static configuration not used", "interface", l.name(), "part", what, "err", err)
			return
		}
		good = next
	}
	for _, prefix := range whole.addresses {
		next := good
		next.addresses = append(slices.Clone(good.addresses), prefix)
		try(next, prefix.String())
	}
	for _, route := range whole.routes {
		next := good
		next.routes = append(slices.Clone(good.routes), route)
		try(next, fmt.Sprintf("%v by %v", route.Destination, route.Gateway))
	}
	return good
}

// dropStatic takes the static addresses away.
func (l *link) dropStatic() {
	n := l.network
	n.mu.Lock()
	before, metric := l.static, l.staticMetric
	n.mu.Unlock()
	if err := (linkConfig{}).apply(l.index, metric, before); err != nil {
		n.log.Error("static addresses cannot be removed", "interface", l.name(), "err", err)
	}
	n.update(func() { l.static, l.staticNames = linkConfig{}, linkConfig{} })
	n.writeResolver()
}

// dress gives the link the MAC address and MTU of its role. It works without them.
func (l *link) dress(r role) {
	n := l.network
	if r.mac != nil && !slices.Equal(r.mac, l.snapshot().MAC) {
		if err := netlink.LinkSetHardwareAddr(byIndex(l.index), r.mac); err != nil {
			n.log.Warn("MAC address not used", "interface", l.name(), "mac", r.mac.String(), "err", err)
		}
	}
	if r.mtu != 0 {
		if err := setMTU(l.index, r.mtu); err != nil {
			n.log.Warn("MTU not used", "interface", l.name(), "err", err)
		}
	}
}

// makeTagged makes the VLANs that the data puts on a link. They are used when the kernel shows them.
func (l *link) makeTagged(ctx context.Context, vlans []networkdata.Link) {
	for _, vlan := range vlans {
		name := vlanName(l.name(), vlan.VLAN)
		if err := addVLAN(l.index, name, vlan.VLAN); err != nil && ctx.Err() == nil {
			l.network.giveUp(ctx, vlan.ID, err)
		}
	}
}

// mtuIsStatic reports whether static data says how large the link's frames are, and so no lease does.
func (l *link) mtuIsStatic() bool {
	l.network.mu.Lock()
	defer l.network.mu.Unlock()
	return l.role.mtu != 0
}

// hasMade reports whether the VLAN interface with a name was asked for by itself.
func (n *Network) hasMade(name string) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.made[name]
}

// isSlave reports whether a link's MAC address may be that of its bond.
func isSlave(attrs *netlink.LinkAttrs) bool { return attrs.RawFlags&unix.IFF_SLAVE != 0 }
