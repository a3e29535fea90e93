//go:build linux

package netboot

import (
	"net/netip"
	"slices"
	"time"

	"ironroot/netboot/dhcp6"
	"ironroot/netboot/snapshot"
)

// state is the known state of a link. The link publishes shallow copies, which never change: slices are replaced, and
// never changed in place.
type state struct {
	link      snapshot.Link // without Addresses and Err
	addresses addresses
	failures  failures
	names     linkNames
	order     int            // the rank of the link's role
	metric    int            // of the routes of leases, 0 until the first one
	mtu       int            // bytes, before the first lease
	awaited   bool           // the carrier came, or the wait for it timed out
	offered   dhcp6.Mode     // the most that a router announced
	granted   []netip.Prefix // the addresses of DHCPv6
	vlans     []int          // that neighbours announced
}

// published returns the state for users of the package.
func (s *state) published() snapshot.Link {
	link := s.link
	link.MAC = slices.Clone(link.MAC)
	link.Addresses = s.addresses.published()
	link.Err = s.failure()
	return link
}

// failure returns why the link is not usable, or nil.
func (s *state) failure() error { return s.failures.effective(s.addresses.families()) }

// fail records the failure of a part of the link; nil records that it works.
func (s *state) fail(p part, err error) {
	s.failures[p] = err
	if err != nil {
		s.link.History.LastErr, s.link.History.LastErrAt = err, time.Now()
	}
}

// part is a part of a link that can fail by itself.
type part int

const (
	partLink  part = iota // the interface
	partDHCP              // DHCPv4
	partDHCP6             // DHCPv6
	parts
)

// failures holds the latest failure of each part, nil if it works.
type failures [parts]error

// effective returns the failure that makes the link unusable, or nil. With an address of one family, the failure of
// the other family's protocol does not count.
func (f failures) effective(has4, has6 bool) error {
	switch {
	case f[partLink] != nil:
		return f[partLink]
	case f[partDHCP] != nil && !has6:
		return f[partDHCP]
	case f[partDHCP6] != nil && !has4:
		return f[partDHCP6]
	}
	return nil
}

// addresses are the addresses of a link, as the kernel reports them. Copies are independent: the slices are replaced
// and never changed in place.
type addresses struct {
	present []netip.Prefix
	pending []netip.Prefix // not published yet: the kernel may have them already, but their routes are missing
}

// hold keeps addresses from being published until release.
func (a *addresses) hold(prefixes ...netip.Prefix) {
	a.pending = slices.Concat(a.pending, prefixes)
}

// release marks addresses as complete: they have their routes, or will not get them.
func (a *addresses) release(prefixes ...netip.Prefix) {
	a.pending = without(a.pending, prefixes...)
}

// published returns the complete addresses in their order.
func (a *addresses) published() []netip.Prefix {
	list := without(a.present, a.pending...)
	slices.SortFunc(list, netip.Prefix.Compare)
	return list
}

// families reports of which families there are complete global addresses.
func (a *addresses) families() (has4, has6 bool) {
	for _, prefix := range a.published() {
		if prefix.Addr().IsGlobalUnicast() {
			has4, has6 = has4 || prefix.Addr().Is4(), has6 || prefix.Addr().Is6()
		}
	}
	return has4, has6
}

// with returns a list that contains a prefix.
func with(list []netip.Prefix, prefix netip.Prefix) []netip.Prefix {
	if slices.Contains(list, prefix) {
		return list
	}
	return slices.Concat(list, []netip.Prefix{prefix})
}

// without returns a new list without some prefixes. It is nil if nothing is left.
func without(list []netip.Prefix, prefixes ...netip.Prefix) []netip.Prefix {
	var left []netip.Prefix
	for _, prefix := range list {
		if !slices.Contains(prefixes, prefix) {
			left = append(left, prefix)
		}
	}
	return left
}
