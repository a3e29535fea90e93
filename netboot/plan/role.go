//go:build linux

package plan

import (
	"math"
	"net"
	"slices"

	"ironroot/netboot/dhcp6"
	"ironroot/netboot/ifconfig"
	"ironroot/netboot/networkdata"
	"ironroot/netboot/resolver"
)

// Role describes how a link is used.
type Role struct {
	Wait    bool   // only raise the link: static data may come
	Bond    string // the bond to join, "" = none
	Primary bool   // primary member of the bond
	Tagged  []networkdata.Link
	MAC     net.HardwareAddr // nil = unchanged
	MTU     int              // bytes, 0 = unchanged
	Static  ifconfig.Config
	Names   resolver.Names
	Metric  int        // of Static
	DHCP    bool       // use DHCPv4
	DHCP6   bool       // use DHCPv6 as routers announce it
	Ask6    dhcp6.Mode // request at least this by DHCPv6
	Static6 bool       // form no addresses of router advertisements: the static ones must be the source
}

// DefaultRole returns the role of a link that static data does not name.
func DefaultRole() Role { return Role{DHCP: true, DHCP6: true} }

// Order returns the rank of a link: those with static addresses come first, in the order of the data.
func (r Role) Order() int {
	if len(r.Static.Addresses) == 0 {
		return math.MaxInt
	}
	return r.Metric
}

// addVLANs adds the VLANs of a link. The link's MTU must be large enough for their frames.
func (r *Role) addVLANs(data *networkdata.Data, l networkdata.Link) {
	largest := 0
	for _, vlan := range data.Links {
		if vlan.Kind == networkdata.Tagged && vlan.Parent == l.ID {
			r.Tagged = append(r.Tagged, vlan)
			largest = max(largest, vlan.MTU)
		}
	}
	if r.MTU == 0 && largest > ethernetMTU {
		r.MTU = largest
	}
}

const ethernetMTU = 1500 // of Ethernet

// addNetworks adds the networks of a link.
func (r *Role) addNetworks(networks []networkdata.Network) {
	if len(networks) == 0 {
		r.DHCP, r.DHCP6 = r.Tagged == nil, r.Tagged == nil
		return
	}
	r.DHCP6 = true // without IPv6 in the data, routers may announce it
	for _, n := range networks {
		r.Names.Servers = append(r.Names.Servers, n.DNS...)
		r.Names.Search = append(r.Names.Search, n.Search...)
		switch n.Method {
		case networkdata.Static:
			r.Static.Addresses = append(r.Static.Addresses, n.Address)
			for _, route := range n.Routes {
				same := func(other ifconfig.Route) bool { return other.Destination == route.Destination }
				if !slices.ContainsFunc(r.Static.Routes, same) {
					r.Static.Routes = append(r.Static.Routes, ifconfig.Route(route))
				}
			}
			r.Static6 = r.Static6 || n.Address.Addr().Is6()
		case networkdata.DHCP4:
			r.DHCP = true
		case networkdata.DHCP6:
			r.Ask6 = dhcp6.Stateful
		case networkdata.StatelessDHCP6:
			r.Ask6 = max(r.Ask6, dhcp6.Stateless)
		case networkdata.SLAAC:
		}
	}
	if r.Static6 {
		// Routers may still announce routes, but no addresses.
		r.DHCP6 = r.Ask6 != dhcp6.Nothing
		slaac := func(n networkdata.Network) bool { return n.Method == networkdata.SLAAC }
		r.Static6 = r.Ask6 == dhcp6.Nothing && !slices.ContainsFunc(networks, slaac)
	}
}
