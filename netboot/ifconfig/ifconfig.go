//go:build linux

package ifconfig

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

// Metrics of routes by their origin: of equal destinations the kernel prefers the smallest one, and a new route takes
// the place of one with the same metric. All lie between metrics that people set and 1024, the metric of the kernel's
// own IPv6 routes.
const (
	HostMetric   = StaticMetric - 1 // to single addresses that the routes of leases and static data do not lead to
	StaticMetric = 256              // of the first interface with static addresses; each further one's is larger by one
	LeaseMetric  = 512              // of the first interface with a lease; each further one's is larger by one
)

// Route is a route by an interface.
type Route struct {
	Destination netip.Prefix
	Gateway     netip.Addr // invalid for a destination on the link itself
}

// Config describes what an interface has. The zero value is nothing.
type Config struct {
	Addresses []netip.Prefix
	Valid     time.Duration // after which the kernel deletes the addresses; 0 = never
	Preferred time.Duration // how long new connections use the addresses; 0 = as long as they are valid
	Expiring  []Expiring
	Routes    []Route
	MTU       int // bytes, 0 = unchanged
}

// apply changes an interface from the current to the wanted configuration. The metric orders the routes of several
// interfaces: of equal destinations the one with the smallest metric is used. After an error the interface may have
// parts of both.
func apply(index, metric int, current, wanted Config) error {
	if wanted.MTU != 0 {
		if err := SetMTU(index, wanted.MTU); err != nil {
			return err
		}
	}
	if err := wanted.add(index, metric); err != nil {
		return err
	}
	removed, err := wanted.removeOthers(index, metric, current)
	if err != nil {
		return err
	}
	if !removed {
		return nil
	}
	// With the first address of a subnet the kernel deletes the other ones, and with an address the routes that have it
	// as their source: what is wanted is added again.
	return wanted.add(index, metric)
}

// applyParts applies a configuration to an interface without one, address by address and route by route. It calls
// failed for each part that the kernel rejects, and returns the others.
func applyParts(index, metric int, wanted Config, failed func(part string, err error)) Config {
	var current Config
	try := func(next Config, part string) {
		if err := apply(index, metric, current, next); err != nil {
			failed(part, err)
			return
		}
		current = next
	}
	for _, prefix := range wanted.Addresses {
		next := current
		next.Addresses = append(slices.Clone(current.Addresses), prefix)
		try(next, prefix.String())
	}
	for _, route := range wanted.Routes {
		next := current
		next.Routes = append(slices.Clone(current.Routes), route)
		try(next, fmt.Sprintf("%v by %v", route.Destination, route.Gateway))
	}
	return current
}

func (c Config) add(index, metric int) error {
	for _, prefix := range c.Addresses {
		if err := netlink.AddrReplace(ByIndex(index), c.kernelAddress(prefix)); err != nil {
			return fmt.Errorf("add address %s: %w", prefix, err)
		}
		if prefix.Addr().Is6() && prefix.IsSingleIP() {
			continue
		}
		// The kernel's own route to the subnet would have no metric, and the same rank as another interface's.
		if err := netlink.RouteReplace(subnetRoute(index, metric, prefix)); err != nil {
			return fmt.Errorf("add route to %s: %w", prefix.Masked(), err)
		}
	}
	if err := c.addExpiring(index, metric); err != nil {
		return err
	}
	// Routes without a gateway first: the gateways of the others may be reached by them.
	for _, onLink := range []bool{true, false} {
		for _, route := range c.Routes {
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

// removeOthers removes what current has and c has not. removed reports whether that includes an address.
func (c Config) removeOthers(index, metric int, current Config) (removed bool, err error) {
	var failed []error
	for _, route := range current.Routes {
		same := func(r Route) bool { return r.Destination == route.Destination }
		if slices.ContainsFunc(c.Routes, same) {
			continue // replaced
		}
		err := netlink.RouteDel(current.kernelRoute(index, metric, route))
		if err != nil && !IsAbsent(err) {
			failed = append(failed, fmt.Errorf("remove route to %s: %w", route.Destination, err))
		}
	}
	wanted := c.all()
	for _, prefix := range current.all() {
		if slices.Contains(wanted, prefix) {
			continue
		}
		removed = true
		same := func(p netip.Prefix) bool { return p.Masked() == prefix.Masked() }
		if !slices.ContainsFunc(wanted, same) {
			err := netlink.RouteDel(subnetRoute(index, metric, prefix))
			if err != nil && !IsAbsent(err) {
				failed = append(failed, fmt.Errorf("remove route to %s: %w", prefix.Masked(), err))
			}
		}
		if err := netlink.AddrDel(ByIndex(index), current.kernelAddress(prefix)); err != nil && !IsAbsent(err) {
			failed = append(failed, fmt.Errorf("remove address %s: %w", prefix, err))
		}
	}
	return removed, errors.Join(failed...)
}

// IsAbsent reports whether err says that there was nothing to remove. The kernel deletes addresses that expire, the
// routes of an address that is removed, and everything of an interface that disappears.
func IsAbsent(err error) bool {
	return errors.Is(err, unix.ESRCH) || errors.Is(err, unix.EADDRNOTAVAIL) || errors.Is(err, unix.ENODEV)
}

// SetMTU sets the MTU, in bytes, unless the interface has it already.
func SetMTU(index, mtu int) error {
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

// ByIndex returns a link for calls of the netlink library. It does not ask the kernel.
func ByIndex(index int) netlink.Link {
	return &netlink.Device{LinkAttrs: netlink.LinkAttrs{Index: index}}
}

func (c Config) kernelAddress(prefix netip.Prefix) *netlink.Addr {
	address := &netlink.Addr{IPNet: IPNet(prefix), Flags: unix.IFA_F_NOPREFIXROUTE}
	if c.Valid > 0 {
		// Rounded up: the client that set the time removes the address before the kernel does.
		address.ValidLft = wholeSeconds(c.Valid)
		address.PreferedLft = address.ValidLft
	}
	if c.Preferred > 0 && c.Valid > 0 {
		address.PreferedLft = wholeSeconds(c.Preferred)
	}
	return address
}

func wholeSeconds(d time.Duration) int { return int(min((d+time.Second-1)/time.Second, math.MaxInt32)) }

func subnetRoute(index, metric int, prefix netip.Prefix) *netlink.Route {
	return &netlink.Route{
		LinkIndex: index,
		Dst:       IPNet(prefix.Masked()),
		Src:       preferredSource(prefix),
		Scope:     netlink.SCOPE_LINK,
		Priority:  metric,
		Protocol:  unix.RTPROT_DHCP,
	}
}

// preferredSource returns the source address of a route to the subnet or by it. For IPv6 the kernel chooses, by the
// rules of RFC 6724: it rejects a route whose source is still being checked for uniqueness.
func preferredSource(prefix netip.Prefix) net.IP {
	if prefix.Addr().Is6() {
		return nil
	}
	return prefix.Addr().AsSlice()
}

func (c Config) kernelRoute(index, metric int, route Route) *netlink.Route {
	kernel := &netlink.Route{
		LinkIndex: index,
		Dst:       IPNet(route.Destination),
		Priority:  metric,
		Protocol:  unix.RTPROT_DHCP,
	}
	sameFamily := func(p netip.Prefix) bool { return p.Addr().Is4() == route.Destination.Addr().Is4() }
	if i := slices.IndexFunc(c.Addresses, sameFamily); i >= 0 {
		kernel.Src = preferredSource(c.Addresses[i])
	}
	if !route.Gateway.IsValid() {
		kernel.Scope = netlink.SCOPE_LINK
		return kernel
	}
	kernel.Gw = route.Gateway.AsSlice()
	inSubnet := func(p netip.Prefix) bool { return p.Contains(route.Gateway) }
	// The kernel knows that link-local addresses of IPv6 are on the link, but not link-local addresses of IPv4
	// (169.254.0.0/16).
	known := slices.ContainsFunc(c.Addresses, inSubnet) || route.Gateway.Is6() && route.Gateway.IsLinkLocalUnicast()
	if !known {
		// Some networks give hosts single addresses (/32): the gateway is on the link although no subnet contains it.
		kernel.Flags = int(netlink.FLAG_ONLINK)
	}
	return kernel
}

// IPNet converts a prefix. Unlike its network, the result keeps the address.
func IPNet(p netip.Prefix) *net.IPNet {
	return &net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen())}
}
