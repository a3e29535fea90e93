package netboot

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"syscall"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"ironroot/netboot/race"
)

const (
	// wayMetric is that of routes that were found by trying, ahead of all that servers told.
	wayMetric = baseMetric / 2
	maxWays   = 16 // on one link
)

// Dial connects like a net.Dialer. Where the kernel's routes do not lead to the address, because a link's server told of
// a router or a subnet that is not there, it tries one link after the other, a second apart, and gives the destination
// a route by the first one that connects: from then on everybody reaches it, and is seen to come from that link.
func (n *Network) Dial(ctx context.Context, network, address string) (net.Conn, error) {
	ways := append([]string{""}, n.usableLinks()...) // "" is whichever the kernel's routes choose
	conn, by, err := race.First(ctx, len(ways), n.timing.first, func(ctx context.Context, i int) (net.Conn, error) {
		return dialBy(ctx, ways[i], network, address)
	}, func(late net.Conn) { _ = late.Close() })
	if err != nil {
		return nil, err
	}
	n.keepWay(ways[by], conn)
	return conn, nil
}

// usableLinks returns the names of the links that have an address for others to answer to, where there are several.
func (n *Network) usableLinks() []string {
	var names []string
	for _, l := range n.Links() {
		if slices.ContainsFunc(l.Addresses, usable) {
			names = append(names, l.Name)
		}
	}
	if len(names) < 2 {
		return nil // the kernel has no choice
	}
	return names
}

// dialBy connects by one link alone, whatever routes there are by others.
func dialBy(ctx context.Context, link, network, address string) (net.Conn, error) {
	var dialer net.Dialer
	if link == "" {
		return dialer.DialContext(ctx, network, address)
	}
	dialer.Control = func(_, _ string, raw syscall.RawConn) error {
		var failed error
		err := raw.Control(func(fd uintptr) { failed = unix.BindToDevice(int(fd), link) })
		return errors.Join(err, failed)
	}
	conn, err := dialer.DialContext(ctx, network, address)
	if err != nil {
		return nil, fmt.Errorf("by %s: %w", link, err)
	}
	return conn, nil
}

// keepWay gives the far end of a connection a route by the link that the connection was made by.
func (n *Network) keepWay(name string, conn net.Conn) {
	if name == "" {
		return
	}
	to, err := netip.ParseAddrPort(conn.RemoteAddr().String())
	if err != nil {
		return // no connection of IP has such an address
	}
	address := to.Addr().Unmap().WithZone("")
	n.mu.Lock()
	var l *link
	for _, candidate := range n.links {
		if candidate.state.Name == name {
			l = candidate
		}
	}
	n.mu.Unlock()
	if l == nil {
		return
	}
	if usual, err := netlink.RouteGet(address.AsSlice()); err == nil && len(usual) > 0 && usual[0].LinkIndex == l.index {
		return // the kernel's way, which was only slow
	}
	route, err := wayTo(name, l.index, address)
	if err == nil {
		err = l.addWay(route)
	}
	if err != nil {
		n.log.Warn("no route kept by the only link that leads there", "interface", name, "address", address, "err", err)
		return
	}
	n.log.Warn("the routes of other links do not lead there; found by trying", "interface", name, "address", address, "router", route.Gw)
}

// wayTo is a route to one address alone, by what the kernel knows of a link.
func wayTo(name string, index int, to netip.Addr) (*netlink.Route, error) {
	found, err := netlink.RouteGetWithOptions(to.AsSlice(), &netlink.RouteGetOptions{Oif: name})
	if err != nil {
		return nil, fmt.Errorf("route to %s: %w", to, err)
	}
	if len(found) == 0 {
		return nil, fmt.Errorf("route to %s: none", to)
	}
	route := &netlink.Route{
		LinkIndex: index, Dst: ipNet(netip.PrefixFrom(to, to.BitLen())), Gw: found[0].Gw, Src: found[0].Src,
		Priority: wayMetric, Protocol: unix.RTPROT_DHCP,
	}
	switch {
	case to.Is6():
		route.Src = nil // as preferredSource
	case route.Gw == nil:
		route.Scope = netlink.SCOPE_LINK
	default:
		route.Flags = int(netlink.FLAG_ONLINK)
	}
	return route, nil
}

// addWay adds a route that lasts as long as the link's lease.
func (l *link) addWay(route *netlink.Route) error {
	if err := netlink.RouteReplace(route); err != nil {
		return fmt.Errorf("add route to %s: %w", route.Dst, err)
	}
	n := l.network
	var oldest *netlink.Route
	n.update(func() {
		l.ways = append(l.ways, route)
		if len(l.ways) > maxWays {
			oldest, l.ways = l.ways[0], l.ways[1:]
		}
	})
	if oldest == nil || oldest.Equal(*route) {
		return nil
	}
	if err := netlink.RouteDel(oldest); err != nil && !absent(err) {
		return fmt.Errorf("remove route to %s: %w", oldest.Dst, err)
	}
	return nil
}

// dropWays removes what addWay added. Most of it went with the address that was its source.
func (l *link) dropWays() {
	var ways []*netlink.Route
	l.network.update(func() { ways, l.ways = l.ways, nil })
	for _, route := range ways {
		if err := netlink.RouteDel(route); err != nil && !absent(err) {
			l.network.log.Warn("route not removed", "interface", l.name(), "err", err)
		}
	}
}
