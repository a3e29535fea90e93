package netboot

import (
	"fmt"
	"math"
	"net/netip"
	"slices"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// formerAddress is an address in whose place a server gave another one when the lease was renewed. It was granted until
// the end of the lease before, and somebody may know this machine by it: until then it is answered on. Nothing new is
// begun from it.
type formerAddress struct {
	prefix netip.Prefix
	until  time.Time // zero = forever
}

// outlived returns the addresses of c, which were granted for so long, that next has no more and that are not revoked.
func (c linkConfig) outlived(obtained time.Time, duration time.Duration, next linkConfig, revoked []netip.Addr) []formerAddress {
	var former []formerAddress
	keep := func(f formerAddress) {
		ended := !f.until.IsZero() && !time.Now().Before(f.until)
		if !ended && !slices.Contains(next.addresses, f.prefix) && !slices.Contains(revoked, f.prefix.Addr()) {
			former = append(former, f)
		}
	}
	for _, f := range c.former {
		keep(f)
	}
	for _, prefix := range c.addresses {
		f := formerAddress{prefix: prefix}
		if duration != Forever {
			f.until = obtained.Add(duration)
		}
		keep(f)
	}
	return former[max(0, len(former)-maxServers):]
}

// all returns the addresses that a link has by its configuration.
func (c linkConfig) all() []netip.Prefix {
	list := slices.Clone(c.addresses)
	for _, f := range c.former {
		list = append(list, f.prefix)
	}
	return list
}

// addFormer puts the former addresses on the link or shortens their time. The kernel takes each away at its end, and with
// it the route that has it as its source.
func (c linkConfig) addFormer(index, metric int) error {
	for _, f := range c.former {
		address := &netlink.Addr{IPNet: ipNet(f.prefix), Flags: unix.IFA_F_NOPREFIXROUTE, ValidLft: math.MaxInt32, PreferedLft: 0}
		if !f.until.IsZero() {
			left := time.Until(f.until)
			if left <= 0 {
				continue
			}
			address.ValidLft = wholeSeconds(left)
		}
		if err := netlink.AddrReplace(byIndex(index), address); err != nil {
			return fmt.Errorf("keep address %s: %w", f.prefix, err)
		}
		same := func(p netip.Prefix) bool { return p.Masked() == f.prefix.Masked() }
		if f.prefix.IsSingleIP() || slices.ContainsFunc(c.addresses, same) {
			continue
		}
		if err := netlink.RouteReplace(subnetRoute(index, metric, f.prefix)); err != nil {
			return fmt.Errorf("keep route to %s: %w", f.prefix.Masked(), err)
		}
	}
	return nil
}

// tellFormer logs that the link's address has changed, and how long the former one is kept.
func (l *link) tellFormer(c linkConfig) {
	for _, f := range c.former {
		kept := Forever
		if !f.until.IsZero() {
			kept = time.Until(f.until).Round(time.Second)
		}
		l.network.log.Warn("another address was given on renewal", "interface", l.name(),
			"address", fmt.Sprint(c.addresses), "before", f.prefix.String(), "kept", kept)
	}
}
