package netboot

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
)

// Lease is what a DHCPv4 server granted, after validation: values that could not be used are left out.
type Lease struct {
	Address  netip.Prefix
	Server   netip.Addr
	Routes   []Route // the default route among them
	DNS      []netip.Addr
	Search   []string
	NTP      []netip.Addr
	Hostname string
	MTU      int           // bytes, 0 = not given
	Obtained time.Time     // when it was asked for
	Renew    time.Duration // T1, counted from Obtained
	Rebind   time.Duration // T2
	Duration time.Duration // the whole lease; Forever when it does not end

	ack *dhcpv4.DHCPv4 // what a renewal that leaves options out is completed from
}

// Forever is the Duration of a lease without end.
const Forever = time.Duration(math.MaxInt64)

// What is believed of one server's answer, at most.
const (
	maxRoutes    = 64
	maxServers   = 8 // name servers, time servers, routers
	maxSearch    = 8
	minMTU       = 576 // every IPv4 host takes such a datagram (RFC 791)
	minPrefix    = 8   // a subnet larger than a class A is a mistake or an attempt to capture all traffic
	defaultLease = time.Hour
	infinite     = math.MaxUint32 // RFC 2131, section 3.3
)

// parseLease reads an offer or acknowledgement. An address, mask or server that cannot be is an error; a further value
// that cannot be used is left out and named in warnings.
func parseLease(m *dhcpv4.DHCPv4, now time.Time, shortest time.Duration) (lease *Lease, warnings []string, err error) {
	address, err := leaseAddress(m)
	if err != nil {
		return nil, nil, err
	}
	server, ok := unicast(m.ServerIdentifier())
	if !ok {
		return nil, nil, fmt.Errorf("server identifier %v is no address of a server", m.ServerIdentifier())
	}
	p := parser{address: address}
	lease = &Lease{
		Address:  address,
		Server:   server,
		Routes:   p.routes(m),
		DNS:      p.servers("name server", m.DNS()),
		NTP:      p.servers("time server", m.NTPServers()),
		Search:   p.search(m),
		Hostname: p.hostname(m.HostName()),
		MTU:      p.mtu(m),
		Obtained: now,
		ack:      m,
	}
	lease.Duration, lease.Renew, lease.Rebind = leaseTimes(m, shortest)
	return lease, p.warnings, nil
}

// leaseAddress returns the granted address with the length of its subnet.
func leaseAddress(m *dhcpv4.DHCPv4) (netip.Prefix, error) {
	address, ok := unicast(m.YourIPAddr)
	if !ok || address.IsLinkLocalUnicast() {
		return netip.Prefix{}, fmt.Errorf("address %v is no address for a host", m.YourIPAddr)
	}
	mask := m.SubnetMask()
	if mask == nil {
		mask = m.YourIPAddr.DefaultMask() // as before subnets; RFC 2131 leaves a missing mask to the client
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

// unicast converts an IPv4 address that a host can have.
func unicast(ip net.IP) (netip.Addr, bool) {
	address, ok := netip.AddrFromSlice(ip.To4())
	if !ok || address.IsUnspecified() || address.IsLoopback() || address.As4()[0] == 0 || address.As4()[0] >= 224 {
		return netip.Addr{}, false
	}
	return address, true
}

// leaseTimes returns the lease's duration, T1 and T2. Defaults are those of RFC 2131, section 4.4.5; a lease that is
// shorter than shortest is held that long, so that no server can keep the client busy.
func leaseTimes(m *dhcpv4.DHCPv4, shortest time.Duration) (whole, renew, rebind time.Duration) {
	whole = m.IPAddressLeaseTime(defaultLease)
	if whole >= infinite*time.Second {
		return Forever, Forever, Forever
	}
	whole = max(whole, shortest)
	renew = m.IPAddressRenewalTime(0)
	rebind = m.IPAddressRebindingTime(0)
	if rebind <= 0 || rebind >= whole {
		rebind = whole * 7 / 8
	}
	if renew <= 0 || renew >= rebind {
		renew = min(whole/2, rebind)
	}
	return whole, max(renew, shortest/2), max(rebind, shortest/2)
}

// parser gathers what could not be used of one answer.
type parser struct {
	address  netip.Prefix
	warnings []string
}

func (p *parser) warn(format string, args ...any) {
	p.warnings = append(p.warnings, fmt.Sprintf(format, args...))
}

// routes returns the classless static routes; where there are any, the router option does not count (RFC 3442).
func (p *parser) routes(m *dhcpv4.DHCPv4) []Route {
	var routes []Route
	if raw := m.Options.Get(dhcpv4.OptionClasslessStaticRoute); raw != nil {
		var list dhcpv4.Routes
		if err := list.FromBytes(raw); err != nil {
			p.warn("classless static routes: %v", err)
		} else {
			for _, r := range list[:min(len(list), maxRoutes)] {
				routes = p.appendRoute(routes, r)
			}
			return routes
		}
	}
	// A kernel has one default route at one metric: of several routers the first is the preferred one (RFC 2132).
	for _, ip := range m.Router() {
		gateway, ok := unicast(ip)
		if ok && gateway != p.address.Addr() {
			return []Route{{Destination: netip.PrefixFrom(netip.IPv4Unspecified(), 0), Gateway: gateway}}
		}
		p.warn("router %v cannot be one", ip)
	}
	return nil
}

func (p *parser) appendRoute(routes []Route, r *dhcpv4.Route) []Route {
	ones, _ := r.Dest.Mask.Size()
	base, _ := netip.AddrFromSlice(r.Dest.IP.To4())
	destination := netip.PrefixFrom(base, ones).Masked()
	if first := base.As4()[0]; ones > 0 && (first == 127 || first >= 224 || first == 0) {
		p.warn("route to %s leads to no host", destination)
		return routes
	}
	route := Route{Destination: destination}
	if !r.Router.IsUnspecified() { // an unspecified router means: on this link
		gateway, ok := unicast(r.Router)
		if !ok || gateway == p.address.Addr() {
			p.warn("router %v of the route to %s cannot be one", r.Router, destination)
			return routes
		}
		route.Gateway = gateway
	}
	if slices.ContainsFunc(routes, func(known Route) bool { return known.Destination == destination }) {
		return routes
	}
	return append(routes, route)
}

func (p *parser) servers(kind string, ips []net.IP) []netip.Addr {
	var servers []netip.Addr
	for _, ip := range ips[:min(len(ips), maxServers)] {
		address, ok := unicast(ip)
		if !ok {
			p.warn("%s %v cannot be one", kind, ip)
			continue
		}
		if !slices.Contains(servers, address) {
			servers = append(servers, address)
		}
	}
	return servers
}

// search returns the domain search list, or else the domain name.
func (p *parser) search(m *dhcpv4.DHCPv4) []string {
	names := []string{m.DomainName()}
	if labels := m.DomainSearch(); labels != nil && len(labels.Labels) > 0 {
		names = labels.Labels
	}
	return p.names(names)
}

func (p *parser) hostname(name string) string {
	if name != "" && !hostName(name) {
		p.warn("host name %q is no host name", name)
		return ""
	}
	return name
}

func (p *parser) mtu(m *dhcpv4.DHCPv4) int {
	raw, err := dhcpv4.GetUint16(dhcpv4.OptionInterfaceMTU, m.Options)
	if err != nil {
		return 0 // not given, or not two bytes
	}
	if raw < minMTU {
		p.warn("MTU %d is below %d", raw, minMTU)
		return 0
	}
	return int(raw)
}

// hostName reports whether name is a domain name as hosts have them (RFC 1123, section 2.1; the underscore is seen in
// practice). Nothing else may reach the resolver's file.
func hostName(name string) bool {
	if len(name) > 253 {
		return false
	}
	for label := range strings.SplitSeq(name, ".") {
		if label == "" || len(label) > 63 || label[0] == '-' {
			return false
		}
		for _, c := range []byte(label) {
			if (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9') && c != '-' && c != '_' {
				return false
			}
		}
	}
	return true
}

// kept are the options that a renewal takes over from the lease before where its server left them out.
func kept() []dhcpv4.OptionCode {
	return []dhcpv4.OptionCode{
		dhcpv4.OptionSubnetMask, dhcpv4.OptionServerIdentifier,
		dhcpv4.OptionRouter, dhcpv4.OptionClasslessStaticRoute,
		dhcpv4.OptionDomainNameServer, dhcpv4.OptionDomainName, dhcpv4.OptionDNSDomainSearchList,
		dhcpv4.OptionInterfaceMTU, dhcpv4.OptionNTPServers, dhcpv4.OptionHostName,
	}
}

// complete adds to a renewal what its server left out although the lease had it, as Windows does. It does so only
// while the address is the same.
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
