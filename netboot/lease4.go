//go:build linux

package netboot

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"ironroot/netboot/dhcp"
	"ironroot/netboot/dhcp4"
	"ironroot/netboot/ifconfig"
	"ironroot/netboot/plan"
	"ironroot/netboot/resolver"
)

// lease4 applies the leases of a link's DHCPv4 client and keeps its history. It must not be used concurrently.
type lease4 struct {
	link     *link
	source   ifconfig.Source
	fixedMTU bool // static data sets the MTU
}

// run keeps a lease until ctx ends.
func (a *lease4) run(ctx context.Context, r plan.Role) {
	a.fixedMTU = r.MTU != 0
	l := a.link
	client := dhcp4.New(dhcp4.Config{
		Link: l, Carrier: l.carrier, Moved: l.moved, Timing: l.timing.DHCP, Log: l.log, Handler: a,
	})
	l.persist(ctx, func() { client.Run(ctx) })
}

// config4 returns what a lease configures.
func config4(l *dhcp4.Lease) ifconfig.Config {
	c := ifconfig.Config{Addresses: []netip.Prefix{l.Address}, MTU: l.MTU}
	for _, r := range l.Routes {
		c.Routes = append(c.Routes, ifconfig.Route(r))
	}
	if l.Duration != dhcp.Forever {
		c.Valid = max(time.Until(l.Obtained.Add(l.Duration)), time.Second)
	}
	return c
}

// Use applies a lease in place of the one before. An MTU that the link rejects is ignored, because the link can work
// without it. If a renewal changes the address, the former one is kept until it expires.
func (a *lease4) Use(lease *dhcp4.Lease, renewed bool) error {
	l := a.link
	config, before := config4(lease), a.source.Config()
	metric := l.metric()
	if last := l.State().link.Lease; last != nil && renewed {
		config.Expiring = before.Replaced(expiry(last.Obtained, last.Duration), config, nil)
		logReplaced(l, config)
	}
	config.MTU = a.setMTU(config.MTU)
	l.Change(func(s *state) {
		s.names.dhcp4 = lease.Names()
		if !slices.Contains(before.Addresses, lease.Address) {
			s.addresses.hold(lease.Address)
		}
	})
	// Waiters for an address resolve names at once, and Go's resolver does not read the file again for 5 s.
	l.names.write()
	err := a.source.Replace(metric, config)
	l.Change(func(s *state) {
		s.addresses.release(lease.Address)
		if err == nil {
			s.link.Lease, s.failures[partDHCP] = lease, nil
		}
	})
	if err != nil {
		return err
	}
	a.noteImplausible(lease)
	return nil
}

// Drop removes the lease's configuration; the link stays up.
func (a *lease4) Drop() {
	l, before := a.link, a.source.Config()
	if err := a.source.Clear(); err != nil {
		l.log.Error("addresses and routes of the lease not removed", "interface", l.name(), "err", err)
	}
	a.restoreMTU(before)
	l.hosts.Drop()
	l.Change(func(s *state) {
		s.names.dhcp4, s.link.Lease, s.link.History.Implausible = resolver.Names{}, nil, nil
	})
	l.names.write()
}

// Sent counts a message of the client.
func (a *lease4) Sent(since time.Time) {
	a.link.Change(func(s *state) { s.link.History.DHCP.Count(since) })
}

// Rejected records why an answer is not used.
func (a *lease4) Rejected(cause error) {
	a.link.Change(func(s *state) { s.link.History.DHCP.Rejected = cause.Error() })
}

// Failed records and logs why there is no lease.
func (a *lease4) Failed(message string, err error) { a.link.fail(partDHCP, message, err) }

// setMTU sets the MTU of a lease, and returns it or 0 if the lease sets none. Then the link gets back the MTU that it
// had before.
func (a *lease4) setMTU(mtu int) int {
	l := a.link
	if a.fixedMTU {
		mtu = 0
	}
	if mtu != 0 {
		mtu = l.mtuForIPv6(mtu)
		if err := ifconfig.SetMTU(l.index, mtu); err != nil {
			l.log.Warn("lease's MTU not used", "interface", l.name(), "err", err)
			mtu = 0
		}
	}
	if mtu == 0 {
		a.restoreMTU(a.source.Config())
	}
	return mtu
}

// restoreMTU restores the MTU that the link had before a configuration changed it: the next network may not support
// the frame size of the last one.
func (a *lease4) restoreMTU(before ifconfig.Config) {
	if before.MTU == 0 {
		return
	}
	if err := ifconfig.SetMTU(a.link.index, a.link.State().mtu); err != nil {
		a.link.log.Warn("MTU not restored", "interface", a.link.name(), "err", err)
	}
}

// expiry returns when a lease expires, zero if it does not.
func expiry(obtained time.Time, duration time.Duration) time.Time {
	if duration == dhcp.Forever {
		return time.Time{}
	}
	return obtained.Add(duration)
}

// logReplaced logs that a server replaced an address of a link, and how long the former one is kept.
func logReplaced(l *link, c ifconfig.Config) {
	for _, e := range c.Expiring {
		kept := dhcp.Forever
		if !e.Until.IsZero() {
			kept = time.Until(e.Until).Round(time.Second)
		}
		l.log.Warn("address replaced on renewal", "interface", l.name(),
			"address", fmt.Sprint(c.Addresses), "before", e.Prefix.String(), "kept", kept)
	}
}

// contradictions lists conflicts with leases of other links: overlapping subnets, different routers.
func contradictions(own state, lease *dhcp4.Lease, others []state) []string {
	var list []string
	for _, other := range others {
		theirs := other.link.Lease
		if other.link.Index == own.link.Index || theirs == nil {
			continue
		}
		if subnet := lease.Address.Masked(); theirs.Address.Overlaps(subnet) {
			list = append(list,
				fmt.Sprintf("subnet %s overlaps %s of link %s", subnet, theirs.Address.Masked(), other.link.Name))
		}
		if ours, second := lease.Router(), theirs.Router(); ours.IsValid() && second.IsValid() && ours != second {
			order := "precedes"
			if other.metric < own.metric {
				order = "follows"
			}
			list = append(list, fmt.Sprintf("default router %s %s %s of link %s", ours, order, second, other.link.Name))
		}
	}
	slices.Sort(list)
	return list
}

// noteImplausible records the implausible values of a lease that is in use, and logs the new ones.
func (a *lease4) noteImplausible(lease *dhcp4.Lease) {
	l := a.link
	own := l.State()
	list := append(lease.Implausible(), contradictions(own, lease, l.links.states())...)
	l.Change(func(s *state) { s.link.History.Implausible = list })
	for _, text := range list {
		if !slices.Contains(own.link.History.Implausible, text) {
			l.log.Warn("implausible lease", "interface", l.name(), "server", lease.Server.String(), "err", text)
		}
	}
}
