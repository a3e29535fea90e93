//go:build linux

package netboot

import (
	"context"
	"fmt"

	"ironroot/netboot/ifconfig"
	"ironroot/netboot/plan"
	"ironroot/netboot/resolver"
)

// useStatic applies the static addresses of a role as soon as there is a carrier: routes by a link without one would
// hide the others. Parts that the kernel rejects are ignored.
func useStatic(ctx context.Context, l *link, r plan.Role) {
	if len(r.Static.Addresses) == 0 && len(r.Names.Servers) == 0 && len(r.Names.Search) == 0 {
		return
	}
	for _, family := range []string{"ipv4", "ipv6"} {
		if err := ifconfig.Sysctl(family, l.name(), "ignore_routes_with_linkdown", "1"); err != nil {
			l.log.Debug("routes stay without a carrier", "interface", l.name(), "err", err)
		}
	}
	if !awaitStaticCarrier(ctx, l) {
		return
	}
	l.Change(func(s *state) {
		s.names.static = r.Names
		s.addresses.hold(r.Static.Addresses...)
	})
	l.names.write()
	if err := l.static.Replace(r.Metric, r.Static); err != nil && ctx.Err() == nil {
		l.log.Warn("static configuration rejected as a whole, applying its parts", "interface", l.name(), "err", err)
		l.static.ApplyParts(r.Metric, r.Static, func(part string, err error) {
			l.log.Warn("part of the static configuration rejected", "interface", l.name(), "part", part, "err", err)
		})
	}
	l.Change(func(s *state) { s.addresses.release(r.Static.Addresses...) })
	if addresses := l.static.Config().Addresses; len(addresses) > 0 {
		l.log.Info("static addresses", "interface", l.name(), "address", fmt.Sprint(addresses))
	}
}

// awaitStaticCarrier waits for the carrier without a limit. It reports whether ctx is still valid.
func awaitStaticCarrier(ctx context.Context, l *link) bool {
	for {
		changed := l.links.next()
		if l.State().link.Carrier {
			return true
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return false
		}
	}
}

// dropStatic removes the static addresses.
func dropStatic(l *link) {
	if err := l.static.Clear(); err != nil {
		l.log.Error("static addresses not removed", "interface", l.name(), "err", err)
	}
	l.Change(func(s *state) { s.names.static = resolver.Names{} })
	l.names.write()
}
