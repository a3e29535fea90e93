package pxe

import (
	"fmt"
	"net"
	"net/netip"
	"strings"
)

// address returns this machine's address on an interface with the prefix length of the network: the given one, or the
// first if own is invalid.
func address(name string, own netip.Addr) (netip.Prefix, error) {
	link, err := net.InterfaceByName(name)
	if err != nil {
		return netip.Prefix{}, fmt.Errorf("interface %q: %w%s", name, err, others(name))
	}
	if link.Flags&net.FlagUp == 0 {
		return netip.Prefix{}, fmt.Errorf("interface %s is down (ip link set %s up)", name, name)
	}
	if link.Flags&net.FlagLoopback != 0 {
		return netip.Prefix{}, fmt.Errorf("interface %s is the loopback, where no machine boots%s", name, others(name))
	}
	addresses, err := link.Addrs()
	if err != nil {
		return netip.Prefix{}, fmt.Errorf("interface %s: %w", name, err)
	}
	var found []string
	for _, a := range addresses {
		prefix, err := netip.ParsePrefix(a.String())
		if err != nil || !prefix.Addr().Is4() {
			continue
		}
		if !own.IsValid() || own == prefix.Addr() {
			return prefix, nil
		}
		found = append(found, prefix.Addr().String())
	}
	if own.IsValid() {
		return netip.Prefix{}, fmt.Errorf("interface %s: got the addresses %q, want %s", name, found, own)
	}
	return netip.Prefix{}, fmt.Errorf("interface %s has no IPv4 address (ip address add ADDRESS/LENGTH dev %s)", name,
		name)
}

// others returns the names of the interfaces that machines can boot from, as part of an error.
func others(than string) string {
	all, err := net.Interfaces()
	if err != nil {
		return ""
	}
	var names []string
	for _, link := range all {
		if link.Name != than && link.Flags&net.FlagLoopback == 0 {
			names = append(names, link.Name)
		}
	}
	if len(names) == 0 {
		return ""
	}
	return " (this machine has " + strings.Join(names, ", ") + ")"
}

// OtherServerError means that another DHCP server assigns addresses on the network.
type OtherServerError struct {
	Interface string
	Server    netip.Addr // invalid if it does not identify itself
}

func (e *OtherServerError) Error() string {
	name := "which does not identify itself"
	if e.Server.IsValid() {
		name = e.Server.String()
	}
	return fmt.Sprintf("another DHCP server, %s, assigns addresses on %s: two would assign the same ones", name,
		e.Interface)
}
