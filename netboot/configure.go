package netboot

import (
	"context"
	"reflect"

	"github.com/vishvananda/netlink"

	"ironroot/internal/goroutine"
	"ironroot/netboot/listing"
	"ironroot/netboot/networkdata"
)

// Configure makes the network what static data says, in place of what it said before; nil is no data. Links that it names
// get its addresses, bonds and VLANs are made, links that appear later are used when they appear. All other links ask by
// DHCP as ever: a node that is reached by them is better than one that is not, and routes of the data go ahead of theirs.
// It returns at once; what cannot be done is logged.
func (n *Network) Configure(data *networkdata.Data) {
	select {
	case n.plans <- data:
	case <-n.watching:
	}
}

// adopt takes a plan over from static data.
func (n *Network) adopt(ctx context.Context, data *networkdata.Data, running *goroutine.Group) {
	old := n.plan
	n.waiting = nil
	var next *plan
	if data != nil && (len(data.Links) > 0 || len(data.DNS) > 0) {
		next = newPlan(data) // before the lock, which a panic would not release
	}
	n.mu.Lock()
	n.plan = next
	n.mu.Unlock()
	n.writeResolver()
	n.removeBonds(old)
	if n.plan != nil {
		for _, l := range data.Links {
			if name, isBond := n.plan.bonds[l.ID]; isBond && !old.has(l) {
				running.Go(func() error {
					n.makeBond(ctx, l, name)
					return nil
				})
			}
		}
	}
	n.reassign(ctx, running)
}

// removeBonds takes away the bonds of an earlier plan that the present one does not have.
func (n *Network) removeBonds(old *plan) {
	if old == nil {
		return
	}
	for _, l := range old.data.Links {
		name, isBond := old.bonds[l.ID]
		if !isBond || n.plan.has(l) {
			continue
		}
		bond, err := netlink.LinkByName(name)
		if err == nil && bond.Type() == "bond" {
			err = netlink.LinkDel(bond)
		}
		if err != nil {
			n.log.Debug("bond not removed", "interface", name, "err", err)
		}
	}
}

// has reports whether a plan has the same bond.
func (p *plan) has(bond networkdata.Link) bool {
	if p == nil {
		return false
	}
	other := p.data.Link(bond.ID)
	return other != nil && other.Bond != nil && other.Name == bond.Name && reflect.DeepEqual(other.Bond, bond.Bond)
}

// without returns the data of the plan without a link and what stands on it.
func (n *Network) without(id string) *networkdata.Data {
	if n.plan == nil {
		return nil
	}
	return n.plan.data.Without(id)
}

// reassign looks at all links again: their roles may have changed.
func (n *Network) reassign(ctx context.Context, running *goroutine.Group) {
	links, err := listing.Links()
	if err != nil {
		n.log.Error("links cannot be listed", "err", err)
		return
	}
	for _, l := range links {
		n.seen(ctx, l, running)
	}
}

// giveUp does without a bond or VLAN that cannot be made, and without what stands on it.
func (n *Network) giveUp(ctx context.Context, id string, err error) {
	n.log.Warn("a link of the network data cannot be made, it is left out with what is on it", "link", id, "err", err)
	select {
	case n.failedPlans <- id:
	case <-ctx.Done():
	}
}

// launch runs a link in a role, once it has left the one before.
func (n *Network) launch(ctx context.Context, l *link, id string, r role, running *goroutine.Group) {
	previous, before := l.ended, l.role
	if l.cancel != nil {
		l.cancel()
	}
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan struct{})
	l.cancel, l.ended = cancel, ended
	n.update(func() {
		l.id, l.role = id, r
		l.state.Bond, l.state.Static = r.bond, len(r.static.addresses) > 0
	})
	running.Go(func() error {
		defer close(ended)
		defer cancel()
		if previous != nil {
			<-previous
			if ctx.Err() != nil {
				return nil
			}
			l.leave(before)
		}
		l.persist(ctx, func() { l.run(ctx, r) })
		return nil
	})
}

// leave takes away what a role gave a link.
func (l *link) leave(before role) {
	l.drop()
	l.drop6()
	l.dropStatic()
	if before.bond != "" {
		if err := netlink.LinkSetNoMaster(byIndex(l.index)); err != nil {
			l.network.log.Warn("link does not leave its bond", "interface", l.name(), "bond", before.bond, "err", err)
		}
	}
	if err := setKernel("ipv6", l.name(), "disable_ipv6", "1"); err != nil { // its addresses go with that
		l.network.log.Debug("IPv6 addresses stay", "interface", l.name(), "err", err)
	}
}
