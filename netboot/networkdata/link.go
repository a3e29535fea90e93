package networkdata

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// Limits of an MTU in bytes: the minimum of IPv4 links (RFC 791) and the largest IPv4 packet.
const (
	minMTU = 68
	maxMTU = 65535
)

// Valid VLAN ids (IEEE 802.1Q, section 9.6).
const (
	minVLAN = 1
	maxVLAN = 4094
)

// physicalTypes are the types that Nova, Neutron and Ironic use for links that the machine sees as a network card.
var physicalTypes = []string{
	"phy", "ethernet", "vif", "ovs", "bridge", "tap", "hw_veb", "dvs", "hyperv", "vhostuser",
	"hostdev", "hostdev_physical", "macvtap", "vrouter", "midonet", "iovisor", "mlnx_direct", "ib_hostdev",
	"802.1qbg", "802.1qbh", "unbound", "other",
}

type rawLink struct {
	ID        scalar
	Name      scalar
	Type      scalar
	MAC       scalar `json:"ethernet_mac_address"`
	VLANMAC   scalar `json:"vlan_mac_address"`
	MTU       scalar
	VLANLink  scalar  `json:"vlan_link"`
	VLANID    scalar  `json:"vlan_id"`
	BondLinks scalars `json:"bond_links"`
}

// links parses the links one by one, without checking references between them.
func (r *reader) links(list []json.RawMessage) {
	for i, raw := range list {
		var fields rawLink
		if err := json.Unmarshal(raw, &fields); err != nil {
			r.problem("link %s: %w", label(fields.ID, i), err)
			continue
		}
		link, err := r.link(fields, raw)
		if err == nil && r.data.Link(link.ID) != nil {
			err = errors.New("another link has the same id")
		}
		if err != nil {
			r.problem("link %s: %w", label(fields.ID, i), err)
			continue
		}
		r.data.Links = append(r.data.Links, link)
	}
}

// label returns the name of a link or network for messages.
func label(id scalar, i int) string {
	if id == "" {
		return fmt.Sprintf("number %d", i+1)
	}
	return fmt.Sprintf("%q", string(id))
}

func (r *reader) link(fields rawLink, raw []byte) (link Link, err error) {
	if fields.ID == "" {
		return link, errors.New("no id")
	}
	link = Link{ID: string(fields.ID), Name: string(fields.Name)}
	kind := strings.ToLower(string(fields.Type))
	mac := fields.MAC
	if kind == "vlan" && fields.VLANMAC != "" {
		mac = fields.VLANMAC
	}
	if link.MAC, err = mac.mac(); err != nil {
		return link, fmt.Errorf("MAC address: %w", err)
	}
	switch kind {
	case "bond":
		link.Kind = Bonded
		link.Bond, err = r.bond(fields, raw)
	case "vlan":
		link.Kind, link.Parent = Tagged, string(fields.VLANLink)
		link.VLAN, err = fields.VLANID.number(minVLAN, maxVLAN)
		if err != nil {
			err = fmt.Errorf("vlan_id: %w", err)
		}
	default:
		if link.MAC == nil {
			return link, fmt.Errorf("link of type %q has no MAC address", fields.Type)
		}
		if !slices.Contains(physicalTypes, kind) {
			r.problem("link %q: unknown type %q, treated as a network card", fields.ID, fields.Type)
		}
	}
	if err != nil {
		return link, err
	}
	if fields.MTU != "" {
		mtu, err := fields.MTU.number(minMTU, maxMTU)
		if err != nil {
			r.problem("link %q: MTU: %w", fields.ID, err)
		}
		link.MTU = mtu
	}
	return link, nil
}
