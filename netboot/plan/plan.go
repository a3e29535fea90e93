//go:build linux

package plan

import (
	"maps"
	"net"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"ironroot/netboot/dhcp"
	"ironroot/netboot/ifconfig"
	"ironroot/netboot/networkdata"
	"ironroot/netboot/resolver"
)

// Plan holds the roles of links by the ids of static data. It never changes. All methods except Role and BondName
// accept nil, which is a network without static data.
type Plan struct {
	data  *networkdata.Data
	roles map[string]Role
	bonds map[string]string // names of interfaces by id
}

// New assigns roles to links. A link without a network and without links on top of it is used like one that the data
// does not name: DHCP may work where static data has no network. The plan of no data, or of data without links and name
// servers, is nil.
func New(data *networkdata.Data) *Plan {
	if data == nil || len(data.Links) == 0 && len(data.DNS) == 0 {
		return nil
	}
	p := &Plan{data: data, roles: map[string]Role{}, bonds: map[string]string{}}
	for _, l := range data.Links {
		if l.Kind == networkdata.Bonded {
			p.bonds[l.ID] = p.bondName(l)
		}
	}
	for i, l := range data.Links {
		r := Role{MTU: l.MTU, Metric: ifconfig.StaticMetric + i}
		if l.Kind != networkdata.Physical {
			r.MAC = l.MAC
		}
		if bond := data.Link(data.Member(l.ID)); bond != nil {
			r = Role{Bond: p.bonds[bond.ID], Primary: bond.Bond.Primary == l.ID}
		} else {
			r.addVLANs(data, l)
			r.addNetworks(l.Networks)
		}
		p.roles[l.ID] = r
	}
	return p
}

// Role returns the role of the link with an id of the static data.
func (p *Plan) Role(id string) Role { return p.roles[id] }

// BondName returns the name of a bond's interface by its id.
func (p *Plan) BondName(id string) string { return p.bonds[id] }

// bondName chooses the name of a bond's interface: its name or its id if they are valid, otherwise bond0, bond1 ...
func (p *Plan) bondName(l networkdata.Link) string {
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

// isInterfaceName reports whether the kernel (dev_valid_name) and other programs accept the name of an interface.
func isInterfaceName(name string) bool {
	return name != "" && name != "." && name != ".." && len(name) < unix.IFNAMSIZ &&
		!strings.ContainsFunc(name,
			func(c rune) bool { return c <= ' ' || c > '~' || strings.ContainsRune(`/:%"\`, c) })
}

// ID returns the id of a link of the kernel in the static data, or "". card is its permanent MAC address: members of a
// bond have the bond's. used are the ids of the links in use by their kernel indices, "" where the data does not name
// them.
func (p *Plan) ID(kernel netlink.Link, card net.HardwareAddr, used map[int]string) string {
	if p == nil {
		return ""
	}
	attrs := kernel.Attrs()
	switch kernel := kernel.(type) {
	case *netlink.Bond:
		for id, name := range p.bonds {
			if name == attrs.Name {
				return id
			}
		}
	case *netlink.Vlan:
		parent := used[attrs.ParentIndex]
		for _, l := range p.data.Links {
			if parent != "" && l.Kind == networkdata.Tagged && l.Parent == parent && l.VLAN == kernel.VlanId {
				return l.ID
			}
		}
	default:
		id := p.card(attrs.PermHWAddr)
		if id == "" {
			id = p.card(card)
		}
		if !isTaken(id, attrs.Index, used) {
			return id
		}
	}
	return ""
}

// card returns the id of the network card with a MAC address, "" if there is none.
func (p *Plan) card(mac net.HardwareAddr) string {
	if dhcp.IsInfiniBand(mac) {
		mac = dhcp.EthernetMAC(mac)
	}
	return p.data.Card(mac)
}

// isTaken reports whether another link has an id already: two functions of a card can have the same MAC address, and
// only one of them may have the addresses.
func isTaken(id string, index int, used map[int]string) bool {
	for other, taken := range used {
		if taken == id && other != index {
			return true
		}
	}
	return false
}

// MissingCards returns the network cards of the plan that no link has. ids are the ids of the links, by kernel index.
func (p *Plan) MissingCards(ids map[int]string) []networkdata.Link {
	if p == nil {
		return nil
	}
	var missing []networkdata.Link
	found := slices.Collect(maps.Values(ids))
	for _, l := range p.data.Links {
		if l.Kind == networkdata.Physical && !slices.Contains(found, l.ID) {
			missing = append(missing, l)
		}
	}
	return missing
}

// BondsMissingIn returns the bonds of the plan that another one does not have. Either may be nil.
func (p *Plan) BondsMissingIn(other *Plan) []networkdata.Link {
	if p == nil {
		return nil
	}
	var missing []networkdata.Link
	for _, l := range p.data.Links {
		if _, isBond := p.bonds[l.ID]; isBond && !other.has(l) {
			missing = append(missing, l)
		}
	}
	return missing
}

// has reports whether the plan has the same bond.
func (p *Plan) has(bond networkdata.Link) bool {
	if p == nil {
		return false
	}
	other := p.data.Link(bond.ID)
	return other != nil && other.Bond != nil && other.Name == bond.Name && reflect.DeepEqual(other.Bond, bond.Bond)
}

// Without returns the data of the plan without a link and the links on top of it.
func (p *Plan) Without(id string) *networkdata.Data {
	if p == nil {
		return nil
	}
	return p.data.Without(id)
}

// Names returns the name servers that belong to no single link.
func (p *Plan) Names() resolver.Names {
	if p == nil {
		return resolver.Names{}
	}
	return resolver.Names{Servers: p.data.DNS}
}
