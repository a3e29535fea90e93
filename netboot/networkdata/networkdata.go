// Package networkdata parses OpenStack's static network configuration, network_data.json: links (network cards, bonds,
// VLANs), networks on them (static addresses, DHCP, SLAAC) and services (name servers).
//
// The format follows Nova's metadata (https://docs.openstack.org/nova/latest/user/metadata.html) and of Ironic's schema
// for node.network_data (https://docs.openstack.org/ironic/latest/admin/dhcp-less.html). It also accepts what
// generators add: numbers as strings, prefix lengths for masks, a network's gateway and dns_nameservers, and the
// options of the kernel's bonding driver as bond_*. Schema and documentation call LACP 802.1ad, which is treated as
// 802.3ad.
//
// Contradictory and invalid parts are dropped and reported with the id of their link or network; the rest is used. A
// VLAN may have VLANs, but members of a bond must be network cards. Unknown keys are ignored.
package networkdata

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
)

// Limits of a document.
const (
	maxSize     = 4 << 20 // bytes
	maxLinks    = 256
	maxNetworks = 1024
	maxRoutes   = 256 // per network
	maxServers  = 16  // name servers per network, and of the services
	maxText     = 256 // bytes of a value
	maxProblems = 64
)

// Data is a network configuration. Ids are unique, and all references to links are valid.
type Data struct {
	Links []Link       // each one follows the links that it requires
	DNS   []netip.Addr // name servers that do not belong to a network
	// Problems describe the dropped parts.
	Problems []error
}

// Kind is the kind of a link.
type Kind int

// The kinds. A Physical link is a network card, which is identified by its MAC address.
const (
	Physical Kind = iota
	Bonded
	Tagged
)

// Link is a link with its networks.
type Link struct {
	ID   string
	Name string // requested name of the interface; "" means any
	Kind Kind
	MAC  net.HardwareAddr // nil only for VLANs without one; a bond without one gets its first member's
	MTU  int              // bytes; 0 if none is given
	Bond *Bond            // of a Bonded link
	// Parent and VLAN are the parent link of a Tagged link and its VLAN id.
	Parent   string
	VLAN     int
	Networks []Network
}

// Method is the way in which a link gets a network's addresses.
type Method int

// The methods. StatelessDHCP6 includes the IPv6 addresses that routers advertise (SLAAC).
const (
	Static Method = iota
	DHCP4
	DHCP6
	StatelessDHCP6
	SLAAC
)

// Network is a network on a link.
type Network struct {
	ID      string
	Method  Method
	Address netip.Prefix // of Static: the machine's address with the prefix length of its subnet
	Routes  []Route
	DNS     []netip.Addr
	Search  []string // domains
}

// Route is a route to a destination by a gateway.
type Route struct {
	Destination netip.Prefix
	Gateway     netip.Addr
}

// Parse parses a network_data.json. Invalid parts are dropped and described in Problems. An error means that no part
// is valid. A document without links is valid.
func Parse(document []byte) (*Data, error) {
	if len(document) > maxSize {
		return nil, fmt.Errorf("network data: %d bytes, want at most %d", len(document), maxSize)
	}
	var raw struct{ Links, Networks, Services []json.RawMessage }
	decoder := json.NewDecoder(bytes.NewReader(document))
	if err := decoder.Decode(&raw); err != nil {
		return nil, fmt.Errorf("network data: %w", err)
	}
	if _, err := decoder.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("network data: trailing data after the JSON document")
	}
	if len(raw.Links) > maxLinks || len(raw.Networks) > maxNetworks {
		return nil, fmt.Errorf("network data: %d links and %d networks, want at most %d and %d",
			len(raw.Links), len(raw.Networks), maxLinks, maxNetworks)
	}
	r := reader{}
	r.links(raw.Links)
	r.check()
	r.networks(raw.Networks)
	r.data.DNS = r.services("services", raw.Services)
	if len(raw.Links) > 0 && len(r.data.Links) == 0 {
		return nil, fmt.Errorf("network data: none of %d links can be used: %w",
			len(raw.Links), errors.Join(r.data.Problems...))
	}
	return &r.data, nil
}

// Link returns the link with an id, nil if there is none.
func (d *Data) Link(id string) *Link {
	for i := range d.Links {
		if d.Links[i].ID == id {
			return &d.Links[i]
		}
	}
	return nil
}

// Without returns the data without a link and the VLANs that depend on it.
func (d *Data) Without(id string) *Data {
	rest := &Data{DNS: d.DNS, Problems: d.Problems}
	gone := map[string]bool{id: true}
	for _, l := range d.Links {
		if gone[l.ID] || l.Kind == Tagged && gone[l.Parent] {
			gone[l.ID] = true
			continue
		}
		rest.Links = append(rest.Links, l)
	}
	return rest
}

// reader collects the valid parts of a document.
type reader struct{ data Data }

// problem records a dropped part.
func (r *reader) problem(format string, args ...any) {
	switch err := fmt.Errorf(format, args...); {
	case len(r.data.Problems) < maxProblems:
		r.data.Problems = append(r.data.Problems, err)
	case len(r.data.Problems) == maxProblems:
		r.data.Problems = append(r.data.Problems, errors.New("further problems omitted"))
	}
}
