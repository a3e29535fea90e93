package netboot

import (
	"errors"
	"fmt"
	"math"
	"net"
	"net/netip"
	"slices"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// Route is one route of a link.
type Route struct {
	Destination netip.Prefix
	Gateway     netip.Addr // invalid for a destination on the link itself
}

// linkConfig is what a link is to have, whoever asked for it. The zero value is nothing: applying it takes away what
// was applied before.
type linkConfig struct {
	addresses []netip.Prefix
	valid     time.Duration // how long the kernel keeps the addresses by itself; 0 = forever
	preferred time.Duration // how long new connections use them; 0 = as long as they are valid
	former    []formerAddress
	routes    []Route
	mtu       int // bytes, 0 = leave
	dns       []netip.Addr
	search    []string
}

// config is what a link gets by a lease.
func (l *Lease) config() linkConfig {
	c := linkConfig{addresses: []netip.Prefix{l.Address}, routes: l.Routes, mtu: l.MTU, dns: l.DNS, search: l.Search}
	if l.Duration != Forever {
		c.valid = max(time.Until(l.Obtained.Add(l.Duration)), time.Second)
	}
	return c
}

// apply changes the link from before to c. What both have stays untouched, so that connections go on. The metric
// orders this link among the others: with equal destinations the smaller one is used.
func (c linkConfig) apply(index, metric int, before linkConfig) error {
	if c.mtu != 0 {
		if err := setMTU(index, c.mtu); err != nil {
			return err
		}
	}
	if err := c.add(index, metric); err != nil {
		return err
	}
	removed, err := c.removeOthers(index, metric, before)
	if err != nil {
		return err
	}
	if !removed {
		return nil
	}
	// With the first address of a subnet the kernel takes away its further ones, and with an address the routes that
	// have it as source: what is to stay is put back.
	return c.add(index, metric)
}

func (c linkConfig) add(index, metric int) error {
	for _, prefix := range c.addresses {
		if err := netlink.AddrReplace(byIndex(index), c.kernelAddress(prefix)); err != nil {
			return fmt.Errorf("add address %s: %w", prefix, err)
		}
		if prefix.Addr().Is6() && prefix.IsSingleIP() {
			continue
		}
		// The kernel's own route to the subnet would have no metric, and so tie with that of another link.
		if err := netlink.RouteReplace(subnetRoute(index, metric, prefix)); err != nil {
			return fmt.Errorf("add route to %s: %w", prefix.Masked(), err)
		}
	}
	if err := c.addFormer(index, metric); err != nil {
		return err
	}
	// Routes without a gateway first: the gateways of the others may lie behind them.
	for _, onLink := range []bool{true, false} {
		for _, route := range c.routes {
			if route.Gateway.IsValid() == onLink {
				continue
			}
			if err := netlink.RouteReplace(c.kernelRoute(index, metric, route)); err != nil {
				return fmt.Errorf("add route to %s: %w", route.Destination, err)
			}
		}
	}
	return nil
}

// removeOthers takes away what before had and c has not.
func (c linkConfig) removeOthers(index, metric int, before linkConfig) (removed bool, err error) {
	var failed []error
	for _, route := range before.routes {
		same := func(r Route) bool { return r.Destination == route.Destination }
		if slices.ContainsFunc(c.routes, same) {
			continue // replaced
		}
		err := netlink.RouteDel(before.kernelRoute(index, metric, route))
		if err != nil && !absent(err) {
			failed = append(failed, fmt.Errorf("remove route to %s: %w", route.Destination, err))
		}
	}
	kept, had := c.all(), before.all()
	for _, prefix := range had {
		if slices.Contains(kept, prefix) {
			continue
		}
		removed = true
		same := func(p netip.Prefix) bool { return p.Masked() == prefix.Masked() }
		if !slices.ContainsFunc(kept, same) {
			err := netlink.RouteDel(subnetRoute(index, metric, prefix))
			if err != nil && !absent(err) {
				failed = append(failed, fmt.Errorf("remove route to %s: %w", prefix.Masked(), err))
			}
		}
		if err := netlink.AddrDel(byIndex(index), before.kernelAddress(prefix)); err != nil && !absent(err) {
			failed = append(failed, fmt.Errorf("remove address %s: %w", prefix, err))
		}
	}
	return removed, errors.Join(failed...)
}

// absent tells that there was nothing to remove: an address goes by itself when its time is over, routes go with
// their address, and everything goes with the link.
func absent(err error) bool {
	return errors.Is(err, unix.ESRCH) || errors.Is(err, unix.EADDRNOTAVAIL) || errors.Is(err, unix.ENODEV)
}

func setMTU(index, mtu int) error {
	kernel, err := netlink.LinkByIndex(index)
	if err != nil {
		return fmt.Errorf("read MTU: %w", err)
	}
	if kernel.Attrs().MTU == mtu {
		return nil
	}
	if err := netlink.LinkSetMTU(kernel, mtu); err != nil {
		return fmt.Errorf("set MTU %d, is %d: %w", mtu, kernel.Attrs().MTU, err)
	}
	return nil
}

// byIndex is a link as the library's calls want it, without asking the kernel.
func byIndex(index int) netlink.Link {
	return &netlink.Device{LinkAttrs: netlink.LinkAttrs{Index: index}}
}

func (c linkConfig) kernelAddress(prefix netip.Prefix) *netlink.Addr {
	address := &netlink.Addr{IPNet: ipNet(prefix), Flags: unix.IFA_F_NOPREFIXROUTE}
	if c.valid > 0 {
		// Rounded up: the kernel is the safety net below the client, not ahead of it.
		address.ValidLft = wholeSeconds(c.valid)
		address.PreferedLft = address.ValidLft
	}
	if c.preferred > 0 && c.valid > 0 {
		address.PreferedLft = wholeSeconds(c.preferred)
	}
	return address
}

func wholeSeconds(d time.Duration) int { return int(min((d+time.Second-1)/time.Second, math.MaxInt32)) }

func subnetRoute(index, metric int, prefix netip.Prefix) *netlink.Route {
	return &netlink.Route{
		LinkIndex: index,
		Dst:       ipNet(prefix.Masked()),
		Src:       preferredSource(prefix),
		Scope:     netlink.SCOPE_LINK,
		Priority:  metric,
		Protocol:  unix.RTPROT_DHCP,
	}
}

// preferredSource is the source address of a route to the subnet or by it. For IPv6 the kernel chooses, by the rules of
// RFC 6724: it refuses a route whose source is still being checked for uniqueness.
func preferredSource(prefix netip.Prefix) net.IP {
	if prefix.Addr().Is6() {
		return nil
	}
	return prefix.Addr().AsSlice()
}

func (c linkConfig) kernelRoute(index, metric int, route Route) *netlink.Route {
	kernel := &netlink.Route{
		LinkIndex: index,
		Dst:       ipNet(route.Destination),
		Priority:  metric,
		Protocol:  unix.RTPROT_DHCP,
	}
	sameFamily := func(p netip.Prefix) bool { return p.Addr().Is4() == route.Destination.Addr().Is4() }
	if i := slices.IndexFunc(c.addresses, sameFamily); i >= 0 {
		kernel.Src = preferredSource(c.addresses[i])
	}
	if !route.Gateway.IsValid() {
		kernel.Scope = netlink.SCOPE_LINK
		return kernel
	}
	kernel.Gw = route.Gateway.AsSlice()
	inSubnet := func(p netip.Prefix) bool { return p.Contains(route.Gateway) }
	if !slices.ContainsFunc(c.addresses, inSubnet) && !route.Gateway.IsLinkLocalUnicast() {
		// Seen where hosts get single addresses (/32): the gateway is on the link although no subnet says so.
		kernel.Flags = int(netlink.FLAG_ONLINK)
	}
	return kernel
}

func ipNet(p netip.Prefix) *net.IPNet {
	return &net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen())}
}
