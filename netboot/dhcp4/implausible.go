package dhcp4

import (
	"fmt"
	"net/netip"
	"slices"
	"time"

	"ironroot/netboot/dhcp"
)

// Implausible describes the values of the lease that can be used but are more likely wrong than right, and that would
// explain why the machine reaches nobody.
func (l *Lease) Implausible() []string {
	var list []string
	add := func(format string, args ...any) { list = append(list, fmt.Sprintf(format, args...)) }
	subnet := l.Address.Masked()
	if l.ack.SubnetMask() == nil {
		add("no subnet mask: assuming subnet %s", subnet)
	}
	if bits := plausibleBits(l.Address.Addr()); l.Address.Bits() < bits {
		add("subnet %s is wide: all of its addresses are expected on this link", subnet)
	}
	if len(l.Routes) == 0 {
		add("no router: only subnet %s is reachable", subnet)
	}
	for _, route := range l.Routes {
		if route.Gateway.IsValid() && !subnet.Contains(route.Gateway) {
			add("router %s is outside subnet %s: it is expected on this link", route.Gateway, subnet)
		}
	}
	for _, server := range l.DNS {
		if !l.reaches(server) {
			add("no route to name server %s", server)
		}
	}
	const missing = -time.Second
	switch given := l.ack.IPAddressLeaseTime(missing); {
	case given == missing:
		add("no lease time: assuming %v", l.Duration)
	case given < l.minimum:
		add("lease time %v is shorter than %v: assuming %v", given, l.minimum, l.minimum)
	case l.Duration == dhcp.Forever:
		add("lease time is infinite: the lease is not renewed")
	}
	return list
}

// plausibleBits returns the length of the shortest plausible prefix of a subnet with the address: the prefix length of
// its block of private addresses, or otherwise 16.
func plausibleBits(address netip.Addr) int {
	for _, block := range []string{"10.0.0.0/8", "100.64.0.0/10", "172.16.0.0/12"} {
		if prefix := netip.MustParsePrefix(block); prefix.Contains(address) {
			return prefix.Bits()
		}
	}
	return 16
}

// reaches reports whether the lease's subnet or one of its routes contains an address.
func (l *Lease) reaches(address netip.Addr) bool {
	contains := func(r Route) bool { return r.Destination.Contains(address) }
	return l.Address.Contains(address) || slices.ContainsFunc(l.Routes, contains)
}

// Router returns the lease's default router, or an invalid address.
func (l *Lease) Router() netip.Addr {
	for _, r := range l.Routes {
		if r.Destination.Bits() == 0 {
			return r.Gateway
		}
	}
	return netip.Addr{}
}
