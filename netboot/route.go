package netboot

import (
	"context"
	"fmt"
	"net"
	"net/netip"

	"github.com/vishvananda/netlink"
)

// Reach opens a TCP connection to hostport, closes it, and returns the address of this machine that was used.
func Reach(ctx context.Context, hostport string) (source netip.Addr, err error) {
	var dialer net.Dialer
	conn, err := dialer.DialContext(ctx, "tcp", hostport)
	if err != nil {
		return netip.Addr{}, fmt.Errorf("reach %s: %w", hostport, err)
	}
	defer conn.Close() //nolint:errcheck // nothing was written
	local, ok := conn.LocalAddr().(*net.TCPAddr)
	if !ok {
		return netip.Addr{}, fmt.Errorf("reach %s: local address is a %T", hostport, conn.LocalAddr())
	}
	return local.AddrPort().Addr().Unmap().WithZone(""), nil
}

// SourceFor returns the address that the kernel's routes choose as source towards dst (RTM_GETROUTE). A link-local
// source is an error, because the other side could not answer to it.
func SourceFor(ctx context.Context, dst netip.Addr) (netip.Addr, error) {
	if err := ctx.Err(); err != nil {
		return netip.Addr{}, err
	}
	routes, err := netlink.RouteGet(dst.Unmap().AsSlice())
	if err != nil {
		return netip.Addr{}, fmt.Errorf("route to %s: %w", dst, err)
	}
	for _, route := range routes {
		source, ok := netip.AddrFromSlice(route.Src)
		if source = source.Unmap(); ok && !source.IsUnspecified() && !source.IsLinkLocalUnicast() {
			return source, nil
		}
	}
	return netip.Addr{}, fmt.Errorf("route to %s: no source address that could be answered to", dst)
}
