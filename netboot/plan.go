package netboot

import (
	"math"
	"net"
	"slices"
	"strconv"
	"strings"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"ironroot/netboot/networkdata"
)

// staticMetric is the route metric of the first link with static addresses; each further one is larger by one. What
// somebody wrote down goes ahead of what DHCP servers say: see baseMetric.
const staticMetric = 256

// role is what is to become of a link.
type role struct {
	wait    bool   // nothing yet: static data may come
	bond    string // the interface to be a member of, "" = none
	primary bool   // among the members
	tagged  []networkdata.Link
	mac     net.HardwareAddr // nil = as it is
	mtu     int              // bytes, 0 = as it is
	static  linkConfig
	metric  int   // of static
	dhcp    bool  // ask for an IPv4 address
	dhcp6   bool  // ask as far as routers say that there is DHCPv6
	ask6    mode6 // ask for that much whatever routers say
	static6 bool  // form no addresses by what routers advertise: the static ones are those to be seen with
}

// byItself is the role of a link that no static data names: it asks whoever may answer.
var byItself = role{dhcp: true, dhcp6: true}

// plan is static data as roles of links, by the data's ids.
type plan struct {
	data  *networkdata.Data
	roles map[string]role
	bonds map[string]string // interfaces' names by id
}

// newPlan works out who does what. A link that data names, but without a network, and on which nothing else stands, is
// used as if it were not named: where no static way is, DHCP may find one.
func newPlan(data *networkdata.Data) *plan {
	p := &plan{data: data, roles: map[string]role{}, bonds: map[string]string{}}
	for _, l := range data.Links {
		if l.Kind == networkdata.Bonded {
			p.bonds[l.ID] = p.bondName(l)
		}
	}
	for i, l := range data.Links {
		r := role{mtu: l.MTU, metric: staticMetric + i}
		if l.Kind != networkdata.Physical {
			r.mac = l.MAC
		}
		if bond := data.Link(data.Member(l.ID)); bond != nil {
			r = role{bond: p.bonds[bond.ID], primary: bond.Bond.Primary == l.ID}
		} else {
			r.carry(data, l)
			r.use(l.Networks)
		}
		p.roles[l.ID] = r
	}
	return p
}

// carry takes on the VLANs of a link. Their frames have to fit through it.
func (r *role) carry(data *networkdata.Data, l networkdata.Link) {
	largest := 0
	for _, vlan := range data.Links {
		if vlan.Kind == networkdata.Tagged && vlan.Parent == l.ID {
			r.tagged = append(r.tagged, vlan)
			largest = max(largest, vlan.MTU)
		}
	}
	if r.mtu == 0 && largest > defaultMTU {
		r.mtu = largest
	}
}

const defaultMTU = 1500 // of Ethernet

// use takes on the networks of a link.
func (r *role) use(networks []networkdata.Network) {
	if len(networks) == 0 {
		r.dhcp, r.dhcp6 = r.tagged == nil, r.tagged == nil
		return
	}
	r.dhcp6 = true // where the data says nothing of IPv6, routers may
	for _, n := range networks {
		r.static.dns = append(r.static.dns, n.DNS...)
		r.static.search = append(r.static.search, n.Search...)
		switch n.Method {
		case networkdata.Static:
			r.static.addresses = append(r.static.addresses, n.Address)
			for _, route := range n.Routes {
				same := func(other Route) bool { return other.Destination == route.Destination }
				if !slices.ContainsFunc(r.static.routes, same) {
					r.static.routes = append(r.static.routes, Route{route.Destination, route.Gateway})
				}
			}
			r.static6 = r.static6 || n.Address.Addr().Is6()
		case networkdata.DHCP4:
			r.dhcp = true
		case networkdata.DHCP6:
			r.ask6 = stateful
		case networkdata.StatelessDHCP6:
			r.ask6 = max(r.ask6, stateless)
		case networkdata.SLAAC:
		}
	}
	if r.static6 {
		// Routers may still say where the way out is, but not how the machine is called.
		r.dhcp6 = r.ask6 != routers
		r.static6 = r.ask6 == routers && !slices.ContainsFunc(networks, func(n networkdata.Network) bool { return n.Method == networkdata.SLAAC })
	}
}

// bondName is the name of a bond's interface: the wished one or the id, where the kernel takes them.
func (p *plan) bondName(l networkdata.Link) string {
	taken := func(name string) bool {
		for _, other := range p.bonds {
			if other == name {
				return true
			}
		}
		return false
	}
	for _, name := range []string{l.Name, l.ID} {
		if isInterfaceName(name) && !taken(name) {
			return name
		}
	}
	for i := 0; ; i++ {
		if name := "bond" + strconv.Itoa(i); !taken(name) {
			return name
		}
	}
}

// isInterfaceName reports whether the kernel takes a name for an interface (dev_valid_name), and other programs too.
func isInterfaceName(name string) bool {
	return name != "" && name != "." && name != ".." && len(name) < unix.IFNAMSIZ &&
		!strings.ContainsFunc(name, func(c rune) bool { return c <= ' ' || c > '~' || strings.ContainsRune(`/:%"\`, c) })
}

// vlanName is the name of a VLAN's interface, as inventories know it: the other link's name, a dot and the tag. What does
// not fit the kernel's limit is taken away from the link's name.
func vlanName(parent string, tag int) string {
	suffix := "." + strconv.Itoa(tag)
	return parent[:min(len(parent), unix.IFNAMSIZ-1-len(suffix))] + suffix
}

// planned returns the id under which static data knows a link of the kernel, "" where it does not. card is the MAC address
// that it has by itself: members of a bond have that of the bond.
func (n *Network) planned(kernel netlink.Link, card net.HardwareAddr) string {
	if n.plan == nil {
		return ""
	}
	attrs := kernel.Attrs()
	switch kernel := kernel.(type) {
	case *netlink.Bond:
		for id, name := range n.plan.bonds {
			if name == attrs.Name {
				return id
			}
		}
	case *netlink.Vlan:
		n.mu.Lock()
		parent, known := n.links[attrs.ParentIndex]
		n.mu.Unlock()
		for _, l := range n.plan.data.Links {
			if known && parent.id != "" && l.Kind == networkdata.Tagged && l.Parent == parent.id && l.VLAN == kernel.VlanId {
				return l.ID
			}
		}
	default:
		id := n.plan.data.Card(attrs.PermHWAddr)
		if id == "" {
			id = n.plan.data.Card(card)
		}
		if !n.isTaken(id, attrs.Index) {
			return id
		}
	}
	return ""
}

// isTaken reports whether another link goes by an id already: two functions of a card can have one MAC address, and it
// is one of them that is to have the addresses.
func (n *Network) isTaken(id string, index int) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	for other, l := range n.links {
		if l.id == id && other != index {
			return true
		}
	}
	return false
}

// roleOf returns what a link is to do; id is that of planned.
func (n *Network) roleOf(l *link, id string) role {
	switch {
	case id != "":
		return n.plan.roles[id]
	case n.plan == nil && n.waiting != nil && !l.virtual:
		return role{wait: true}
	case l.virtual && !n.hasMade(l.name()):
		return role{} // of a plan that is no more
	}
	return byItself
}

// order puts links with static addresses ahead of others, in the order of the data.
func (r role) order() int {
	if len(r.static.addresses) == 0 {
		return math.MaxInt
	}
	return r.metric
}

// names of the plan: name servers that belong to no link in particular.
func (p *plan) names() linkConfig {
	if p == nil {
		return linkConfig{}
	}
	return linkConfig{dns: p.data.DNS}
}
