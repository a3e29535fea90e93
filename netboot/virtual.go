//go:build linux

package netboot

import (
	"context"

	"ironroot/internal/pause"
	"ironroot/netboot/bond"
	"ironroot/netboot/networkdata"
	"ironroot/netboot/plan"
	"ironroot/netboot/vlan"
)

// makeBond creates a bond of static data. Its members join it later.
func makeBond(ctx context.Context, s *shared, l networkdata.Link, name string) {
	if err := bond.Create(s.log, l, name); err != nil && ctx.Err() == nil {
		s.omit(ctx, l.ID, err)
	}
}

// join makes a link a member of its bond and keeps it raised until ctx ends.
func join(ctx context.Context, l *link, r plan.Role) {
	delay := l.timing.DHCP.First
	for ctx.Err() == nil {
		master, err := l.links.await(ctx, r.Bond)
		if err != nil {
			return
		}
		if err = bond.Join(master.index, l.index); err == nil {
			if r.Primary {
				setPrimary(master, l)
			}
			l.fail(partLink, "", nil)
			l.log.Info("member of a bond", "interface", l.name(), "bond", r.Bond)
			l.awaitCarrier(ctx)
			<-ctx.Done()
			return
		}
		l.fail(partLink, "link cannot join its bond", err)
		_ = pause.For(ctx, delay) // the loop ends with ctx
		delay = min(2*delay, l.timing.DHCP.Longest)
	}
}

// setPrimary makes a link the primary member of its bond. A failure is logged.
func setPrimary(master, l *link) {
	if err := bond.SetPrimary(master.index, l.index); err != nil {
		l.log.Warn("primary member of the bond not set", "interface", l.name(), "err", err)
	}
}

// makeTagged creates the VLANs of static data on a link. They are used when the kernel reports them.
func makeTagged(ctx context.Context, l *link, vlans []networkdata.Link) {
	for _, tagged := range vlans {
		name := vlan.Name(l.name(), tagged.VLAN)
		if err := vlan.Add(l.index, name, tagged.VLAN); err != nil && ctx.Err() == nil {
			l.omit(ctx, tagged.ID, err)
		}
	}
}

const maxVLANs = 128 // on one link: each runs DHCP clients

// makeVLANs creates the interfaces of the options' VLANs on a physical link, at once or when they are announced,
// until ctx ends. Interfaces of VLANs that are no longer announced stay, because they may be in use.
func makeVLANs(ctx context.Context, l *link) {
	made := map[int]bool{}
	for ctx.Err() == nil {
		now := l.State()
		for _, id := range l.vlans.On(now.link.Name, now.link.MAC, now.vlans) {
			if made[id] {
				continue
			}
			if len(made) == maxVLANs {
				l.log.Warn("too many VLANs, ignoring this one and later ones",
					"interface", l.name(), "vlan", id, "limit", maxVLANs)
				return
			}
			made[id] = true
			if name, err := l.vlans.Create(l.index, l.name(), id); err != nil {
				l.log.Warn("VLAN interface not created", "interface", name, "err", err)
			}
		}
		select {
		case <-ctx.Done():
		case <-l.announced:
		}
	}
}
