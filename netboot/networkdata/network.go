package networkdata

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
)

// methods maps the types of networks to methods. Ironic's ipv6_dhcp is DHCPv6 with addresses.
var methods = map[string]Method{
	"ipv4": Static, "ipv6": Static, "ipv4_dhcp": DHCP4,
	"ipv6_dhcp": DHCP6, "ipv6_dhcpv6-stateful": DHCP6, "ipv6_dhcpv6-stateless": StatelessDHCP6, "ipv6_slaac": SLAAC,
}

type rawNetwork struct {
	ID      scalar
	Type    scalar
	Link    scalar
	Address scalar `json:"ip_address"`
	Netmask scalar
	Gateway scalar
	Routes  []json.RawMessage
	DNS     scalars `json:"dns_nameservers"`
	Search  scalars `json:"dns_search"`

	Services []json.RawMessage
}

type rawRoute struct {
	Network, Netmask, Gateway scalar
	Services                  []json.RawMessage
}

// networks parses the networks and adds them to their links.
func (r *reader) networks(list []json.RawMessage) {
	seen := map[netip.Addr]string{}
	for i, raw := range list {
		var fields rawNetwork
		if err := json.Unmarshal(raw, &fields); err != nil {
			r.problem("network %s: %w", label(fields.ID, i), err)
			continue
		}
		name := label(fields.ID, i)
		link, network, err := r.network(name, fields)
		if err == nil && network.Method == Static && !network.Address.Addr().IsLinkLocalUnicast() {
			if other, taken := seen[network.Address.Addr()]; taken {
				err = fmt.Errorf("network %s has the same address %v", other, network.Address.Addr())
			}
			seen[network.Address.Addr()] = name
		}
		if err != nil {
			r.problem("network %s: %w", name, err)
			continue
		}
		link.Networks = append(link.Networks, network)
	}
}

func (r *reader) network(name string, fields rawNetwork) (*Link, Network, error) {
	network := Network{ID: string(fields.ID)}
	link := r.data.Link(string(fields.Link))
	if link == nil {
		return nil, network, fmt.Errorf("link %q is not among the usable links", fields.Link)
	}
	if bond := r.data.Member(link.ID); bond != "" {
		return nil, network, fmt.Errorf("link %q is a member of bond %q", link.ID, bond)
	}
	kind := strings.ToLower(string(fields.Type))
	method, known := methods[kind]
	if !known {
		return nil, network, fmt.Errorf("unknown type %q", fields.Type)
	}
	network.Method = method
	if method == Static {
		address, err := staticAddress(fields, kind == "ipv4")
		if err != nil {
			return nil, network, err
		}
		network.Address = address
		network.Routes = r.routes(name, fields, address)
	} else {
		r.ignoreRoutes(name, fields)
	}
	network.DNS = r.services("network "+name, fields.Services)
	for _, server := range fields.DNS {
		network.DNS = r.server("network "+name, network.DNS, server)
	}
	for _, route := range fields.Routes {
		var services struct{ Services []json.RawMessage }
		if json.Unmarshal(route, &services) == nil { // routes already reported the error
			for _, server := range r.services("network "+name, services.Services) {
				network.DNS = appendNew(network.DNS, server)
			}
		}
	}
	for _, domain := range fields.Search {
		if !isDomain(string(domain)) || len(network.Search) == maxServers {
			r.problem("network %s: dns_search %q is not a domain, or exceeds the limit", name, domain)
			continue
		}
		network.Search = append(network.Search, string(domain))
	}
	return link, network, nil
}

// staticAddress parses the machine's address in a network.
func staticAddress(fields rawNetwork, ipv4 bool) (netip.Prefix, error) {
	prefix, err := fields.Address.prefix(fields.Netmask)
	if err != nil {
		return prefix, fmt.Errorf("ip_address: %w", err)
	}
	address := prefix.Addr()
	if address.Is4() != ipv4 {
		return prefix, fmt.Errorf("ip_address %v does not match type %q", address, fields.Type)
	}
	if _, err := scalar(address.String()).address(); err != nil {
		return prefix, fmt.Errorf("ip_address: %w", err)
	}
	if prefix.Bits() == 0 {
		return prefix, fmt.Errorf("netmask %q covers all addresses", fields.Netmask)
	}
	if ipv4 && prefix.Bits() < 31 && (address == prefix.Masked().Addr() || address == broadcast(prefix)) {
		return prefix, fmt.Errorf("ip_address %v is the network or broadcast address of its subnet", prefix)
	}
	return prefix, nil
}

// broadcast returns the last address of an IPv4 subnet.
func broadcast(p netip.Prefix) netip.Addr {
	bytes := p.Masked().Addr().As4()
	for bit := p.Bits(); bit < 32; bit++ {
		bytes[bit/8] |= 0x80 >> (bit % 8)
	}
	return netip.AddrFrom4(bytes)
}

// routes parses a network's routes, including the default route of its gateway.
func (r *reader) routes(name string, fields rawNetwork, address netip.Prefix) []Route {
	var routes []Route
	add := func(fields rawRoute) {
		route, err := fields.route(address)
		switch {
		case err != nil:
			r.problem("network %s: route to %q: %w", name, fields.Network, err)
		case slices.ContainsFunc(routes, func(o Route) bool { return o.Destination == route.Destination }):
			if !slices.Contains(routes, route) {
				r.problem("network %s: route to %v: already has another gateway", name, route.Destination)
			}
		case len(routes) == maxRoutes:
			r.problem("network %s: route to %v: more than %d routes", name, route.Destination, maxRoutes)
		default:
			routes = append(routes, route)
		}
	}
	for _, raw := range fields.Routes {
		var route rawRoute
		if err := json.Unmarshal(raw, &route); err != nil {
			r.problem("network %s: route: %w", name, err)
			continue
		}
		add(route)
	}
	if fields.Gateway != "" {
		zero := scalar("0.0.0.0")
		if address.Addr().Is6() {
			zero = "::"
		}
		add(rawRoute{Network: zero, Netmask: "0", Gateway: fields.Gateway})
	}
	return routes
}

// ignoreRoutes reports the routes of a network without a static address, whose routes come from its server or router.
func (r *reader) ignoreRoutes(name string, fields rawNetwork) {
	if fields.Gateway != "" {
		r.problem("network %s: gateway %q: not used with type %q", name, fields.Gateway, fields.Type)
	}
	for _, raw := range fields.Routes {
		var route rawRoute
		if err := json.Unmarshal(raw, &route); err != nil {
			r.problem("network %s: route: %w", name, err)
		} else if route.Network != "" || route.Gateway != "" {
			r.problem("network %s: route to %q: not used with type %q", name, route.Network, fields.Type)
		}
	}
}

func (f rawRoute) route(own netip.Prefix) (Route, error) {
	destination, err := f.Network.prefix(f.Netmask)
	if err != nil {
		return Route{}, err
	}
	gateway, err := f.Gateway.address()
	if err != nil {
		return Route{}, fmt.Errorf("gateway: %w", err)
	}
	if destination.Addr().Is4() != own.Addr().Is4() || gateway.Is4() != own.Addr().Is4() {
		return Route{}, fmt.Errorf("gateway %v and address %v are of different families", gateway, own.Addr())
	}
	if gateway == own.Addr() {
		return Route{}, fmt.Errorf("gateway %v is the machine itself", gateway)
	}
	if destination.Addr().IsMulticast() || destination.Addr().IsLoopback() {
		return Route{}, errors.New("destination is a multicast or loopback address")
	}
	return Route{destination.Masked(), gateway}, nil
}

// services parses the name servers among services and ignores other services.
func (r *reader) services(where string, list []json.RawMessage) []netip.Addr {
	var servers []netip.Addr
	for _, raw := range list {
		var service struct{ Type, Address scalar }
		if err := json.Unmarshal(raw, &service); err != nil {
			r.problem("%s: service: %w", where, err)
			continue
		}
		if strings.EqualFold(string(service.Type), "dns") {
			servers = r.server(where, servers, service.Address)
		}
	}
	return servers
}

// server parses a name server and adds it to the list.
func (r *reader) server(where string, servers []netip.Addr, text scalar) []netip.Addr {
	address, err := text.address()
	if err != nil {
		r.problem("%s: name server: %w", where, err)
		return servers
	}
	if len(servers) == maxServers {
		r.problem("%s: name server %v: more than %d", where, address, maxServers)
		return servers
	}
	return appendNew(servers, address)
}

func appendNew[T comparable](list []T, value T) []T {
	if slices.Contains(list, value) {
		return list
	}
	return append(list, value)
}

// isDomain reports whether a name is valid in resolv.conf.
func isDomain(name string) bool {
	for _, c := range name {
		if c <= ' ' || c > '~' || strings.ContainsRune(`"#;\/`, c) {
			return false
		}
	}
	return name != ""
}
