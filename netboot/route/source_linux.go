package route

import (
	"context"
	"fmt"
	"net/netip"

	"github.com/vishvananda/netlink"
)

// SourceFor returns the source address that the kernel's routes choose towards dst (RTM_GETROUTE). A link-local source
// is an error, because dst could not answer to it.
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
	return netip.Addr{}, fmt.Errorf("route to %s: no global source address", dst)
}
