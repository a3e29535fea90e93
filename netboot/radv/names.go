//go:build linux

package radv

import (
	"net/netip"
	"slices"
	"time"

	"ironroot/netboot/dhcp"
	"ironroot/netboot/resolver"
)

// Names are the name servers and search domains that the routers of a link announced. The zero value has none. Learn
// does not change copies.
type Names struct {
	servers []learned[netip.Addr]
	search  []learned[string]
}

// Learn adds, renews or revokes the names of an option. link is the zone of link-local addresses.
func (n *Names) Learn(o *Option, link string) {
	for _, server := range o.Servers {
		if server.IsLinkLocalUnicast() {
			server = server.WithZone(link)
		}
		n.servers = learn(n.servers, server, o.Lifetime, resolver.MaxServers)
	}
	for _, name := range o.Search {
		n.search = learn(n.search, name, o.Lifetime, resolver.MaxSearch)
	}
}

// Valid returns the names that have not expired.
func (n *Names) Valid() resolver.Names {
	return resolver.Names{Servers: values(n.servers), Search: values(n.search)}
}

// learned is a value with a lifetime.
type learned[T comparable] struct {
	value T
	until time.Time // zero = forever
}

// learn returns a new list, with a value added or renewed. A lifetime of 0 removes it. Expired values are removed.
func learn[T comparable](list []learned[T], value T, lifetime time.Duration, most int) []learned[T] {
	revoked := func(l learned[T]) bool { return l.value == value && lifetime == 0 || !l.valid() }
	list = slices.DeleteFunc(slices.Clone(list), revoked)
	entry := learned[T]{value: value}
	switch {
	case lifetime == 0:
		return list
	case lifetime != dhcp.Forever:
		entry.until = time.Now().Add(lifetime)
	}
	if i := slices.IndexFunc(list, func(l learned[T]) bool { return l.value == value }); i >= 0 {
		list[i] = entry
	} else if len(list) < most {
		list = append(list, entry)
	}
	return list
}

func (l learned[T]) valid() bool { return l.until.IsZero() || time.Now().Before(l.until) }

// values returns the values of the list that have not expired.
func values[T comparable](list []learned[T]) []T {
	var valid []T
	for _, l := range list {
		if l.valid() {
			valid = append(valid, l.value)
		}
	}
	return valid
}
