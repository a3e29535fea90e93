package dhcp4

import (
	"encoding/binary"
	"fmt"
	"math"
	"net"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/insomniacslk/dhcp/dhcpv4"

	"ironroot/netboot/dhcp"
	"ironroot/netboot/resolver"
)

// Route is a route of a lease.
type Route struct {
	Destination netip.Prefix
	Gateway     netip.Addr // invalid for a destination on the link itself
}

// Lease represents what a DHCPv4 server granted, without the values that cannot be used.
type Lease struct {
	Address  netip.Prefix
	Server   netip.Addr
	Routes   []Route // the default route among them
	DNS      []netip.Addr
	Search   []string
	NTP      []netip.Addr
	Hostname string
	MTU      int           // bytes, 0 = not given
	Obtained time.Time     // when it was requested
	Renew    time.Duration // T1, counted from Obtained
	Rebind   time.Duration // T2
	Duration time.Duration // the whole lease; dhcp.Forever if it does not expire

	ack     *dhcpv4.DHCPv4 // options of it complete a renewal
	minimum time.Duration  // shorter leases are treated as being this long
}

// Names returns the lease's name servers and search domains.
func (l *Lease) Names() resolver.Names { return resolver.Names{Servers: l.DNS, Search: l.Search} }

// Limits of what one server may grant.
const (
	maxRoutes    = 64
	minMTU       = 576 // every IPv4 host accepts such a datagram (RFC 791)
	minPrefix    = 8   // a subnet larger than a class A is a mistake or an attempt to capture all traffic
	defaultLease = time.Hour
)

// parseLease reads an offer or acknowledgement that was requested at now. An impossible address, mask or server is an
// error; other impossible values are dropped and named in warnings.
func parseLease(
	m *dhcpv4.DHCPv4, now time.Time, minimum time.Duration,
) (lease *Lease, warnings dhcp.Warnings, err error) {
	address, err := leaseAddress(m)
	if err != nil {
		return nil, nil, err
	}
	server, ok := hostAddress(m.ServerIdentifier())
	if !ok {
		return nil, nil, fmt.Errorf("server %s, want a host address as identifier", serverText(m))
	}
	p := parser{address: address}
	lease = &Lease{
		Address:  address,
		Server:   server,
		Routes:   p.routes(m),
		DNS:      dhcp.Servers(&p.warnings, "name server", m.DNS(), hostAddress),
		NTP:      dhcp.Servers(&p.warnings, "time server", m.NTPServers(), hostAddress),
		Search:   p.search(m),
		Hostname: p.hostname(m.HostName()),
		MTU:      p.mtu(m),
		Obtained: now,
		ack:      m,
		minimum:  minimum,
	}
	lease.Duration, lease.Renew, lease.Rebind = leaseTimes(m, minimum)
	return lease, p.warnings, nil
}

// leaseAddress returns the granted address with the length of its subnet.
func leaseAddress(m *dhcpv4.DHCPv4) (netip.Prefix, error) {
	address, ok := hostAddress(m.YourIPAddr)
	if !ok || address.IsLinkLocalUnicast() {
		return netip.Prefix{}, fmt.Errorf("address %v is not a host address", m.YourIPAddr)
	}
	mask := m.SubnetMask()
	if mask == nil {
		mask = m.YourIPAddr.DefaultMask() // of its class; RFC 2131 leaves the choice to the client
	}
	ones, bits := mask.Size()
	if bits != 32 || ones < minPrefix {
		return netip.Prefix{}, fmt.Errorf("subnet mask %s of address %s is not plausible", mask, address)
	}
	prefix := netip.PrefixFrom(address, ones)
	if ones < 31 && (address == prefix.Masked().Addr() || address == lastAddress(prefix)) {
		return netip.Prefix{}, fmt.Errorf("address %s is the network or broadcast address of its subnet", prefix)
	}
	return prefix, nil
}

// lastAddress returns the broadcast address of an IPv4 subnet.
func lastAddress(p netip.Prefix) netip.Addr {
	base := p.Masked().Addr().As4()
	value := binary.BigEndian.Uint32(base[:]) | uint32(uint64(math.MaxUint32)>>p.Bits())
	binary.BigEndian.PutUint32(base[:], value)
	return netip.AddrFrom4(base)
}

// hostAddress converts an IPv4 address and reports whether a host can have it.
func hostAddress(ip net.IP) (netip.Addr, bool) {
	address, ok := netip.AddrFromSlice(ip.To4())
	if !ok || address.IsUnspecified() || address.IsLoopback() || address.As4()[0] == 0 || address.As4()[0] >= 224 {
		return netip.Addr{}, false
	}
	return address, true
}

// leaseTimes returns the lease's duration, T1 and T2. Defaults follow RFC 2131, section 4.4.5. A shorter lease than
// minimum is treated as being that long, so that no server can keep the client busy.
func leaseTimes(m *dhcpv4.DHCPv4, minimum time.Duration) (whole, renew, rebind time.Duration) {
	whole = m.IPAddressLeaseTime(defaultLease)
	if whole >= dhcp.Infinite*time.Second {
		return dhcp.Forever, dhcp.Forever, dhcp.Forever
	}
	whole = max(whole, minimum)
	renew = m.IPAddressRenewalTime(0)
	rebind = m.IPAddressRebindingTime(0)
	if rebind <= 0 || rebind >= whole {
		rebind = whole * 7 / 8
	}
	if renew <= 0 || renew >= rebind {
		renew = min(whole/2, rebind)
	}
	return whole, max(renew, minimum/2), max(rebind, minimum/2)
}

// parser reads the options of one answer.
type parser struct {
	address  netip.Prefix
	warnings dhcp.Warnings
}

// routes returns the classless static routes, or without any the default route by the first usable router (RFC 3442).
func (p *parser) routes(m *dhcpv4.DHCPv4) []Route {
	var routes []Route
	if raw := m.Options.Get(dhcpv4.OptionClasslessStaticRoute); raw != nil {
		var list dhcpv4.Routes
		if err := list.FromBytes(raw); err != nil {
			p.warnings.Addf("classless static routes: %v", err)
		} else {
			for _, r := range list[:min(len(list), maxRoutes)] {
				routes = p.appendRoute(routes, r)
			}
			return routes
		}
	}
	// The kernel has one default route per metric. The first router is the preferred one (RFC 2132).
	for _, ip := range m.Router() {
		gateway, ok := hostAddress(ip)
		if ok && gateway != p.address.Addr() {
			return []Route{{Destination: netip.PrefixFrom(netip.IPv4Unspecified(), 0), Gateway: gateway}}
		}
		p.warnings.Addf("router %v is not a usable address", ip)
	}
	return nil
}

func (p *parser) appendRoute(routes []Route, r *dhcpv4.Route) []Route {
	ones, _ := r.Dest.Mask.Size()
	base, _ := netip.AddrFromSlice(r.Dest.IP.To4())
	destination := netip.PrefixFrom(base, ones).Masked()
	if first := base.As4()[0]; ones > 0 && (first == 127 || first >= 224 || first == 0) {
		p.warnings.Addf("route to %s leads to no hosts", destination)
		return routes
	}
	route := Route{Destination: destination}
	if !r.Router.IsUnspecified() { // an unspecified router means: on this link
		gateway, ok := hostAddress(r.Router)
		if !ok || gateway == p.address.Addr() {
			p.warnings.Addf("router %v of the route to %s is not a usable address", r.Router, destination)
			return routes
		}
		route.Gateway = gateway
	}
	if slices.ContainsFunc(routes, func(known Route) bool { return known.Destination == destination }) {
		return routes
	}
	return append(routes, route)
}

// search returns the domain search list, or without one the domain name. Some servers send a list of names there,
// separated by spaces, because clients copy the option to resolv.conf: all of them are search domains.
func (p *parser) search(m *dhcpv4.DHCPv4) []string {
	name := strings.TrimRight(m.DomainName(), "\x00")
	names := strings.FieldsFunc(name, func(c rune) bool { return c == ' ' })
	isInvalid := func(name string) bool { return !resolver.IsDomainName(strings.TrimRight(name, ".")) }
	if slices.ContainsFunc(names, isInvalid) {
		names = []string{name} // which is reported as a whole
	}
	if labels := m.DomainSearch(); labels != nil && len(labels.Labels) > 0 {
		names = labels.Labels
	}
	return p.warnings.DomainNames(names)
}

func (p *parser) hostname(name string) string {
	if name != "" && !resolver.IsDomainName(name) {
		p.warnings.Addf("host name %q is not valid", name)
		return ""
	}
	return name
}

func (p *parser) mtu(m *dhcpv4.DHCPv4) int {
	raw, err := dhcpv4.GetUint16(dhcpv4.OptionInterfaceMTU, m.Options)
	if err != nil {
		return 0 // missing, or not two bytes
	}
	if raw < minMTU {
		p.warnings.Addf("MTU %d is below %d", raw, minMTU)
		return 0
	}
	return int(raw)
}

// kept returns the options that a renewal takes over from the lease before if its server leaves them out.
func kept() []dhcpv4.OptionCode {
	return []dhcpv4.OptionCode{
		dhcpv4.OptionSubnetMask, dhcpv4.OptionServerIdentifier,
		dhcpv4.OptionRouter, dhcpv4.OptionClasslessStaticRoute,
		dhcpv4.OptionDomainNameServer, dhcpv4.OptionDomainName, dhcpv4.OptionDNSDomainSearchList,
		dhcpv4.OptionInterfaceMTU, dhcpv4.OptionNTPServers, dhcpv4.OptionHostName,
	}
}

// complete adds to a renewal the options of the lease before that its server left out, as Windows does. It does so
// only if the address is the same.
func complete(renewal, before *dhcpv4.DHCPv4) {
	if !renewal.YourIPAddr.Equal(before.YourIPAddr) {
		return
	}
	for _, code := range kept() {
		if value := before.Options.Get(code); value != nil && !renewal.Options.Has(code) {
			renewal.UpdateOption(dhcpv4.OptGeneric(code, value))
		}
	}
}
