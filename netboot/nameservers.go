//go:build linux

package netboot

import (
	"cmp"
	"log/slog"
	"slices"
	"sync/atomic"
	"time"

	"ironroot/internal/goroutine"
	"ironroot/netboot/dhcp"
	"ironroot/netboot/radv"
	"ironroot/netboot/resolver"
)

// nameServers writes the resolver's file from the names of the static data and of all links. Its methods may be called
// concurrently.
type nameServers struct {
	log    *slog.Logger
	file   *resolver.File
	links  *linkTable
	common atomic.Pointer[resolver.Names] // those that belong to no single link; nil = none
	ended  <-chan struct{}                // closed when the network has ended
}

// setCommon sets the names that belong to no single link.
func (n *nameServers) setCommon(names resolver.Names) { n.common.Store(&names) }

// write writes the present names.
func (n *nameServers) write() {
	if err := n.file.Write(n.sources); err != nil {
		n.log.Error("name servers not written", "err", err)
	}
}

// writeAfter writes the names that are present after a time, unless the network has ended by then.
func (n *nameServers) writeAfter(d time.Duration) {
	goroutine.AfterTime(d, func() {
		select {
		case <-n.ended:
		default:
			n.write()
		}
	})
}

// sources returns the name servers and search domains, the preferred ones first.
func (n *nameServers) sources() []resolver.Names {
	states := n.links.states()
	slices.SortStableFunc(states, func(a, b state) int {
		return cmp.Or(cmp.Compare(a.order, b.order), cmp.Compare(a.metric, b.metric))
	})
	var sources []resolver.Names
	if common := n.common.Load(); common != nil {
		sources = append(sources, *common)
	}
	for _, s := range states {
		sources = append(sources, s.names.sources()...)
	}
	return sources
}

// linkNames are the name servers and search domains of a link by their source.
type linkNames struct {
	static, dhcp4, dhcp6 resolver.Names
	routers              radv.Names
}

// sources returns the valid names, the preferred source first.
func (n *linkNames) sources() []resolver.Names {
	router := n.routers.Valid()
	return []resolver.Names{n.static, n.dhcp4, {
		Servers: slices.Concat(router.Servers, n.dhcp6.Servers),
		Search:  slices.Concat(router.Search, n.dhcp6.Search),
	}}
}

// learnDNS uses the name servers that a router announces until they expire.
func learnDNS(l *link, o *radv.Option) {
	l.Change(func(s *state) { s.names.routers.Learn(o, s.link.Name) })
	l.names.write()
	if o.Lifetime > 0 && o.Lifetime != dhcp.Forever {
		l.names.writeAfter(o.Lifetime + time.Second) // without those that have expired by then
	}
}
