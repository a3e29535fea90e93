//go:build linux

// Package vlan creates the interfaces of virtual LANs (IEEE 802.1Q), and decides which ones a link gets by request.
package vlan

import (
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// Request describes interfaces of virtual LANs to create on physical links.
type Request struct {
	Link string // the link's name or MAC address; "" = all physical links
	ID   int    // 0 = those that the link's neighbours announce by LLDP
}

const maxID = 4094

// Parse parses a list that is separated by commas. An element is "LINK.ID", or "LINK" for the VLANs announced on a
// link, or "all" for those announced on any link; LINK is a name or a MAC address. Invalid elements are ignored and
// named in the error.
func Parse(text string) ([]Request, error) {
	var requests []Request
	var failed []error
	for element := range strings.SplitSeq(text, ",") {
		element = strings.TrimSpace(element)
		if element == "" {
			continue
		}
		request, err := parseRequest(element)
		if err != nil {
			failed = append(failed, err)
			continue
		}
		requests = append(requests, request)
	}
	return requests, errors.Join(failed...)
}

func parseRequest(element string) (Request, error) {
	if strings.EqualFold(element, "all") {
		return Request{}, nil
	}
	name, number, numbered := strings.Cut(element, ".")
	request := Request{Link: name}
	if numbered {
		id, err := strconv.ParseUint(number, 10, 16)
		if err != nil || id < 1 || id > maxID {
			return Request{}, fmt.Errorf("VLAN %q: got id %q, want 1 to %d", element, number, maxID)
		}
		request.ID = int(id)
	}
	_, err := net.ParseMAC(name)
	if name == "" || err != nil && (len(name) >= unix.IFNAMSIZ || strings.ContainsAny(name, "/: \t")) {
		return Request{}, fmt.Errorf("VLAN %q: got link %q, want the name of an interface or a MAC address",
			element, name)
	}
	return request, nil
}

// covers reports whether r applies to a link.
func (r Request) covers(name string, mac net.HardwareAddr) bool {
	if r.Link == "" || r.Link == name {
		return true
	}
	wanted, err := net.ParseMAC(r.Link)
	return err == nil && slices.Equal(wanted, mac)
}

// Set creates the interfaces of requests. Its methods may be called concurrently.
type Set struct {
	wanted []Request

	mu   sync.Mutex
	made map[string]bool // names of interfaces
}

// NewSet returns a set that has created no interface yet.
func NewSet(wanted []Request) *Set { return &Set{wanted: wanted, made: map[string]bool{}} }

// On returns the ids of the VLANs to create on a link whose neighbours announced some.
func (s *Set) On(name string, mac net.HardwareAddr, announced []int) []int {
	var ids []int
	for _, request := range s.wanted {
		switch {
		case !request.covers(name, mac):
		case request.ID == 0:
			ids = append(ids, announced...)
		default:
			ids = append(ids, request.ID)
		}
	}
	return ids
}

// Create creates the interface of a VLAN, whose name it returns. It is used when the kernel reports it.
func (s *Set) Create(parent int, link string, id int) (name string, err error) {
	name = fmt.Sprintf("%s.%d", link, id)
	s.mu.Lock()
	s.made[name] = true
	s.mu.Unlock()
	return name, Add(parent, name, id)
}

// Created reports whether an interface was created by Create.
func (s *Set) Created(name string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.made[name]
}

// Add creates the interface of a VLAN on another interface, unless it exists.
func Add(parent int, name string, id int) error {
	if len(name) >= unix.IFNAMSIZ {
		return fmt.Errorf("create VLAN %d: name %q has %d bytes, want at most %d", id, name, len(name), unix.IFNAMSIZ-1)
	}
	attrs := netlink.NewLinkAttrs()
	attrs.Name, attrs.ParentIndex = name, parent
	err := netlink.LinkAdd(&netlink.Vlan{LinkAttrs: attrs, VlanId: id})
	if err != nil && !errors.Is(err, unix.EEXIST) {
		return fmt.Errorf("create VLAN %d: %w", id, err)
	}
	return nil
}

// Name returns the name of a VLAN's interface as in inventories: the parent's name, a dot and the tag. The
// parent's name is truncated to fit the kernel's limit.
func Name(parent string, tag int) string {
	suffix := "." + strconv.Itoa(tag)
	return parent[:min(len(parent), unix.IFNAMSIZ-1-len(suffix))] + suffix
}
