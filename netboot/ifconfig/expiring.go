//go:build linux

package ifconfig

import (
	"fmt"
	"math"
	"net/netip"
	"slices"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// Expiring is an address that a server replaced by another one when the lease was renewed. It was granted until the
// end of the former lease, and another machine may know this one by it: the kernel answers on it until then, but uses
// it for no new connection.
type Expiring struct {
	Prefix netip.Prefix
	Until  time.Time // zero = never expires
}

// maxExpiring limits the addresses that are kept.
const maxExpiring = 8

// Replaced returns the addresses of c that next no longer contains, except those that expired or are revoked. until is
// when the addresses of c expire; zero is never.
func (c Config) Replaced(until time.Time, next Config, revoked []netip.Addr) []Expiring {
	var list []Expiring
	keep := func(e Expiring) {
		expired := !e.Until.IsZero() && !time.Now().Before(e.Until)
		if !expired && !slices.Contains(next.Addresses, e.Prefix) && !slices.Contains(revoked, e.Prefix.Addr()) {
			list = append(list, e)
		}
	}
	for _, e := range c.Expiring {
		keep(e)
	}
	for _, prefix := range c.Addresses {
		keep(Expiring{Prefix: prefix, Until: until})
	}
	return list[max(0, len(list)-maxExpiring):]
}

// all returns all addresses.
func (c Config) all() []netip.Prefix {
	list := slices.Clone(c.Addresses)
	for _, e := range c.Expiring {
		list = append(list, e.Prefix)
	}
	return list
}

// addExpiring adds the expiring addresses or updates their lifetimes. The kernel deletes each one when it expires, and
// with it the routes that have it as their source.
func (c Config) addExpiring(index, metric int) error {
	for _, e := range c.Expiring {
		address := &netlink.Addr{
			IPNet: IPNet(e.Prefix), Flags: unix.IFA_F_NOPREFIXROUTE, ValidLft: math.MaxInt32, PreferedLft: 0,
		}
		if !e.Until.IsZero() {
			left := time.Until(e.Until)
			if left <= 0 {
				continue
			}
			address.ValidLft = wholeSeconds(left)
		}
		if err := netlink.AddrReplace(ByIndex(index), address); err != nil {
			return fmt.Errorf("keep address %s: %w", e.Prefix, err)
		}
		same := func(p netip.Prefix) bool { return p.Masked() == e.Prefix.Masked() }
		if e.Prefix.IsSingleIP() || slices.ContainsFunc(c.Addresses, same) {
			continue
		}
		if err := netlink.RouteReplace(subnetRoute(index, metric, e.Prefix)); err != nil {
			return fmt.Errorf("keep route to %s: %w", e.Prefix.Masked(), err)
		}
	}
	return nil
}
