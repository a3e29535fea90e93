// Package networkdata reads the static network configuration of OpenStack, network_data.json: links (network cards, bonds,
// VLANs), networks on them (static addresses, DHCP, SLAAC) and services (name servers).
//
// The form is that of Nova's metadata and of Ironic's schema for node.network_data
// (https://docs.openstack.org/nova/latest/user/metadata.html, https://docs.openstack.org/ironic/latest/admin/dhcp-less.html),
// with what generators write besides: numbers as text, prefix lengths for masks, a network's gateway and dns_nameservers,
// and the options of the kernel's bonding driver as bond_*. Schema and documentation call LACP 802.1ad; that is taken for
// 802.3ad.
//
// What contradicts itself or cannot be is left out and named, link or network by its id; the rest holds. Limits: a link's
// VLAN may carry VLANs, but a bond's members are network cards; keys that are not known are passed over.
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

// Bounds of what is read.
const (
	maxSize     = 4 << 20 // bytes
	maxLinks    = 256
	maxNetworks = 1024
	maxRoutes   = 256 // of one network
	maxServers  = 16  // name servers of one network, or of all
	maxText     = 256 // bytes of one value
	maxProblems = 64
)

// Data is a network configuration. Its ids are unique, and everything that refers to a link refers to one of Links.
type Data struct {
	Links []Link       // what a link stands on comes before it
	DNS   []netip.Addr // name servers of no network in particular
	// Problems name what was left out, and why.
	Problems []error
}

// Kind is what a link is.
type Kind int

// The kinds. A Physical link is a network card, known by its MAC address.
const (
	Physical Kind = iota
	Bonded
	Tagged
)

// Link is one link and the networks on it.
type Link struct {
	ID   string
	Name string // the interface's wished name, "" = any
	Kind Kind
	MAC  net.HardwareAddr // nil where none is given, which only bonds and VLANs can do without
	MTU  int              // bytes, 0 = not given
	Bond *Bond            // of a Bonded link
	// Parent and VLAN are the link that a Tagged one is on, and its tag.
	Parent   string
	VLAN     int
	Networks []Network
}

// Method is how a link comes by a network's addresses.
type Method int

// The methods. IPv6 addresses that routers advertise (SLAAC) come with StatelessDHCP6 too.
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
	Address netip.Prefix // of Static: the machine's address with the length of its subnet
	Routes  []Route
	DNS     []netip.Addr
	Search  []string // domains
}

// Route leads to a destination by a gateway.
type Route struct {
	Destination netip.Prefix
	Gateway     netip.Addr
}

// Parse reads a network_data.json. Parts that cannot be used are left out and named in Problems; an error means that
// nothing of it can be used. A document without links is no error.
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
		return nil, errors.New("network data: something follows the JSON document")
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
		return nil, fmt.Errorf("network data: none of %d links can be used: %w", len(raw.Links), errors.Join(r.data.Problems...))
	}
	return &r.data, nil
}

// Link returns the link with an id, nil where there is none.
func (d *Data) Link(id string) *Link {
	for i := range d.Links {
		if d.Links[i].ID == id {
			return &d.Links[i]
		}
	}
	return nil
}

// Without returns the data without a link and the VLANs that stand on it.
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

// reader gathers what is usable.
type reader struct{ data Data }

// problem notes what is left out.
func (r *reader) problem(format string, args ...any) {
	switch err := fmt.Errorf(format, args...); {
	case len(r.data.Problems) < maxProblems:
		r.data.Problems = append(r.data.Problems, err)
	case len(r.data.Problems) == maxProblems:
		r.data.Problems = append(r.data.Problems, errors.New("there are more problems than these"))
	}
}
