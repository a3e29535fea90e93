//go:build linux

package route

import (
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"slices"
	"sync"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"ironroot/netboot/ifconfig"
)

const maxHostRoutes = 16 // on one link

// Link is a network interface.
type Link interface {
	// Interface returns its present state.
	Interface() *net.Interface
}

// Hosts are the added routes to single addresses by a link. Its methods may be called concurrently.
type Hosts struct {
	log  *slog.Logger
	link Link

	mu     sync.Mutex
	routes []netlink.Route
}

// NewHosts returns the routes of a link, which has none yet.
func NewHosts(log *slog.Logger, link Link) *Hosts {
	return &Hosts{log: log, link: link}
}

// Keep adds a route to the remote address of a connection by the link that it was made by. Later connections to the
// address use that route. A failure is logged.
func (h *Hosts) Keep(conn net.Conn) {
	to, err := netip.ParseAddrPort(conn.RemoteAddr().String())
	if err != nil {
		return // not a connection over IP
	}
	address, link := to.Addr().Unmap().WithZone(""), h.link.Interface()
	if usual, err := netlink.RouteGet(address.AsSlice()); err == nil && len(usual) > 0 &&
		usual[0].LinkIndex == link.Index {
		return // the kernel's choice, which was only slow
	}
	route, err := hostRoute(link, address)
	if err == nil {
		err = h.add(route)
	}
	if err != nil {
		h.log.Warn("route by the only link that connects not added", "interface", link.Name,
			"address", address, "err", err)
		return
	}
	h.log.Warn("address unreachable by the routes of other links, route added", "interface", link.Name,
		"address", address, "router", route.Gw)
}

// hostRoute returns a route to a single address by a link, with the gateway that the kernel knows.
func hostRoute(link *net.Interface, to netip.Addr) (*netlink.Route, error) {
	found, err := netlink.RouteGetWithOptions(to.AsSlice(), &netlink.RouteGetOptions{Oif: link.Name})
	if err != nil {
		return nil, fmt.Errorf("route to %s: %w", to, err)
	}
	if len(found) == 0 {
		return nil, fmt.Errorf("route to %s: no route", to)
	}
	route := &netlink.Route{
		LinkIndex: link.Index, Dst: ifconfig.IPNet(netip.PrefixFrom(to, to.BitLen())), Gw: found[0].Gw,
		Src: found[0].Src, Priority: ifconfig.HostMetric, Protocol: unix.RTPROT_DHCP,
	}
	switch {
	case to.Is6():
		route.Src = nil // the kernel chooses, by the rules of RFC 6724
	case route.Gw == nil:
		route.Scope = netlink.SCOPE_LINK
	default:
		route.Flags = int(netlink.FLAG_ONLINK)
	}
	return route, nil
}

// add adds a route. Of too many, the oldest ones are removed.
func (h *Hosts) add(route *netlink.Route) error {
	if err := netlink.RouteReplace(route); err != nil {
		return fmt.Errorf("add route to %s: %w", route.Dst, err)
	}
	replaced := func(old netlink.Route) bool { return old.Dst.IP.Equal(route.Dst.IP) }
	h.mu.Lock()
	routes := append(slices.DeleteFunc(h.routes, replaced), *route)
	surplus := max(0, len(routes)-maxHostRoutes)
	h.routes = slices.Clone(routes[surplus:])
	h.mu.Unlock()
	for _, old := range routes[:surplus] {
		if err := netlink.RouteDel(&old); err != nil && !ifconfig.IsAbsent(err) {
			return fmt.Errorf("remove route to %s: %w", old.Dst, err)
		}
	}
	return nil
}

// Drop removes the routes. The kernel has deleted most of them with their source. A failure is logged.
func (h *Hosts) Drop() {
	h.mu.Lock()
	routes := h.routes
	h.routes = nil
	h.mu.Unlock()
	for _, route := range routes {
		if err := netlink.RouteDel(&route); err != nil && !ifconfig.IsAbsent(err) {
			h.log.Warn("route not removed", "interface", h.link.Interface().Name, "err", err)
		}
	}
}
