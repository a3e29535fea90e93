package networkdata

import (
	"fmt"
	"net"
	"slices"
)

// check drops links that contradict others, and sorts the others so that each one follows the links that it requires.
func (r *reader) check() {
	r.checkAddresses()
	r.checkBonds()
	r.checkVLANs()
}

// drop removes a link and reports why.
func (r *reader) drop(id, format string, args ...any) {
	r.problem("link %q: %w", id, fmt.Errorf(format, args...))
	r.data.Links = slices.DeleteFunc(r.data.Links, func(l Link) bool { return l.ID == id })
}

// checkAddresses keeps only one of several network cards with the same MAC address. Bonds and VLANs usually share the
// address of another link.
func (r *reader) checkAddresses() {
	owners := map[string]string{}
	for _, l := range slices.Clone(r.data.Links) {
		if l.Kind != Physical {
			continue
		}
		if owner, taken := owners[l.MAC.String()]; taken {
			r.drop(l.ID, "link %q has the same MAC address %v", owner, l.MAC)
			continue
		}
		owners[l.MAC.String()] = l.ID
	}
}

// checkBonds drops invalid members, and bonds without members. It completes bonds without a MAC address: otherwise the
// kernel would give them the one of the member that joins first, which differs from boot to boot.
func (r *reader) checkBonds() {
	bonds := map[string]string{} // by member
	for _, l := range slices.Clone(r.data.Links) {
		if l.Kind != Bonded {
			continue
		}
		l.Bond.Members = slices.DeleteFunc(l.Bond.Members, func(id string) bool {
			member := r.data.Link(id)
			switch bond, taken := bonds[id]; {
			case member == nil:
				r.problem("link %q: member %q is not among the usable links", l.ID, id)
			case member.Kind != Physical:
				r.problem("link %q: member %q is not a network card", l.ID, id)
			case taken:
				r.problem("link %q: member %q is already a member of link %q", l.ID, id, bond)
			default:
				bonds[id] = l.ID
				return false
			}
			return true
		})
		if len(l.Bond.Members) == 0 {
			r.drop(l.ID, "bond without members")
			continue
		}
		if l.MAC == nil {
			r.data.Link(l.ID).MAC = r.data.Link(l.Bond.Members[0]).MAC
		}
		if l.Bond.Primary != "" && !slices.Contains(l.Bond.Members, l.Bond.Primary) {
			r.problem("link %q: bond_primary %q is not one of its members", l.ID, l.Bond.Primary)
			r.data.Link(l.ID).Bond.Primary = ""
		}
	}
}

// Member returns the id of the bond that a link is a member of, "" if there is none.
func (d *Data) Member(id string) string {
	for _, l := range d.Links {
		if l.Kind == Bonded && slices.Contains(l.Bond.Members, id) {
			return l.ID
		}
	}
	return ""
}

// checkVLANs sorts the links in the order in which they can be created. It drops VLANs whose parent does not exist or
// depends on the VLAN itself.
func (r *reader) checkVLANs() {
	waiting := r.data.Links
	r.data.Links = slices.DeleteFunc(slices.Clone(waiting), func(l Link) bool { return l.Kind == Tagged })
	waiting = slices.DeleteFunc(slices.Clone(waiting), func(l Link) bool { return l.Kind != Tagged })
	for progress := true; progress; {
		progress = false
		waiting = slices.DeleteFunc(waiting, func(l Link) bool {
			if r.data.Link(l.Parent) == nil {
				return false
			}
			progress = true
			if err := r.vlanFits(l); err != nil {
				r.problem("link %q: %w", l.ID, err)
			} else {
				r.data.Links = append(r.data.Links, l)
			}
			return true
		})
	}
	for _, l := range waiting {
		if slices.ContainsFunc(waiting, func(other Link) bool { return other.ID == l.Parent }) {
			r.problem("link %q: vlan_link %q is part of a cycle, or leads to one", l.ID, l.Parent)
		} else {
			r.problem("link %q: vlan_link %q is not among the usable links", l.ID, l.Parent)
		}
	}
}

func (r *reader) vlanFits(vlan Link) error {
	if bond := r.data.Member(vlan.Parent); bond != "" {
		return fmt.Errorf("vlan_link %q is a member of bond %q", vlan.Parent, bond)
	}
	for _, l := range r.data.Links {
		if l.Kind == Tagged && l.Parent == vlan.Parent && l.VLAN == vlan.VLAN {
			return fmt.Errorf("link %q already is VLAN %d of %q", l.ID, l.VLAN, l.Parent)
		}
	}
	return nil
}

// Card returns the id of the network card with a MAC address, "" if there is none.
func (d *Data) Card(mac net.HardwareAddr) string {
	for _, l := range d.Links {
		if l.Kind == Physical && slices.Equal(l.MAC, mac) {
			return l.ID
		}
	}
	return ""
}
