package netboot

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// VLAN asks for interfaces of virtual LANs (IEEE 802.1Q) on physical links.
type VLAN struct {
	Link string // the link's name or MAC address; "" is every physical link
	ID   int    // 0 is those that the link's neighbours announce by LLDP, from the moment on that they do
}

const (
	maxVLANID = 4094
	maxVLANs  = 128 // on one link: each is asked about by DHCP
)

// ParseVLANs reads a list with commas between. An element is "LINK.ID", or "LINK" for the VLANs announced on a link, or
// "all" for those announced on any; LINK is a name or a MAC address. Elements that cannot be read are left out and named
// in the error.
func ParseVLANs(text string) ([]VLAN, error) {
	var vlans []VLAN
	var failed []error
	for element := range strings.SplitSeq(text, ",") {
		element = strings.TrimSpace(element)
		if element == "" {
			continue
		}
		vlan, err := parseVLAN(element)
		if err != nil {
			failed = append(failed, err)
			continue
		}
		vlans = append(vlans, vlan)
	}
	return vlans, errors.Join(failed...)
}

func parseVLAN(element string) (VLAN, error) {
	if strings.EqualFold(element, "all") {
		return VLAN{}, nil
	}
	name, number, numbered := strings.Cut(element, ".")
	vlan := VLAN{Link: name}
	if numbered {
		id, err := strconv.ParseUint(number, 10, 16)
		if err != nil || id < 1 || id > maxVLANID {
			return VLAN{}, fmt.Errorf("VLAN %q: got id %q, want 1 to %d", element, number, maxVLANID)
		}
		vlan.ID = int(id)
	}
	_, err := net.ParseMAC(name)
	if name == "" || err != nil && (len(name) >= unix.IFNAMSIZ || strings.ContainsAny(name, "/: \t")) {
		return VLAN{}, fmt.Errorf("VLAN %q: got link %q, want the name of an interface or a MAC address", element, name)
	}
	return vlan, nil
}

// covers reports whether the request is for a link.
func (v VLAN) covers(link Link) bool {
	if v.Link == "" || v.Link == link.Name {
		return true
	}
	mac, err := net.ParseMAC(v.Link)
	return err == nil && slices.Equal(mac, link.MAC)
}

// runVLANs makes the interfaces of VLANs that are asked for on a physical link, at once or when they are announced,
// until ctx ends. What is announced no longer stays: somebody may be using it.
func (l *link) runVLANs(ctx context.Context) {
	made := map[int]bool{}
	for ctx.Err() == nil {
		for _, id := range l.wantedVLANs() {
			if made[id] {
				continue
			}
			if len(made) == maxVLANs {
				l.network.log.Warn("too many VLANs, this one and those after it are left out",
					"interface", l.name(), "vlan", id, "limit", maxVLANs)
				return
			}
			made[id] = true
			l.makeVLAN(id)
		}
		select {
		case <-ctx.Done():
		case <-l.announced:
		}
	}
}

// wantedVLANs returns the ids that are asked for on the link by now.
func (l *link) wantedVLANs() []int {
	n := l.network
	n.mu.Lock()
	defer n.mu.Unlock()
	var ids []int
	for _, v := range n.vlans {
		switch {
		case !v.covers(l.state):
		case v.ID == 0:
			ids = append(ids, l.announcedVLANs...)
		default:
			ids = append(ids, v.ID)
		}
	}
	return ids
}

// makeVLAN makes one interface. It is used like any other when the kernel shows it.
func (l *link) makeVLAN(id int) {
	n := l.network
	name := fmt.Sprintf("%s.%d", l.name(), id)
	n.mu.Lock()
	n.made[name] = true
	n.mu.Unlock()
	if err := addVLAN(l.index, name, id); err != nil {
		n.log.Warn("VLAN interface cannot be made", "interface", name, "err", err)
	}
}

// addVLAN makes the interface of a VLAN on another interface, which it is left with when it exists already.
func addVLAN(parent int, name string, id int) error {
	if len(name) >= unix.IFNAMSIZ {
		return fmt.Errorf("VLAN %d: name %q has %d bytes, the kernel takes %d", id, name, len(name), unix.IFNAMSIZ-1)
	}
	err := linkRequest{
		kind: "vlan", name: name, attributes: []linkAttribute{number(unix.IFLA_LINK, 4, parent)},
		data: []linkAttribute{number(nl.IFLA_VLAN_ID, 2, id)},
	}.do()
	if err != nil && !errors.Is(err, unix.EEXIST) {
		return fmt.Errorf("VLAN %d: %w", id, err)
	}
	return nil
}

// isMade reports whether the kernel's link is a VLAN that was asked for.
func (n *Network) isMade(kernel netlink.Link) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.made[kernel.Attrs().Name]
}
