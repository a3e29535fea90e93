//go:build linux

package netboot

import (
	"errors"
	"fmt"
	"io/fs"
	"net"

	"github.com/vishvananda/netlink"

	"ironroot/netboot/ifconfig"
	"ironroot/netboot/listing"
)

// Reset removes what a former process has configured: VLANs and bonds, and the addresses of all other links with their
// routes. Links stay up. The loopback interface is not changed. It continues after an error and returns all of them.
func Reset() error {
	links, err := listing.Links()
	if err != nil {
		return err
	}
	var failed []error
	for _, l := range links {
		if kind := l.Type(); kind != "vlan" && kind != "bond" {
			continue
		}
		if err := netlink.LinkDel(l); err != nil && !ifconfig.IsAbsent(err) { // it goes with the link below it
			failed = append(failed, fmt.Errorf("%s: delete: %w", l.Attrs().Name, err))
		}
	}
	if links, err = listing.Links(); err != nil {
		return errors.Join(append(failed, err)...)
	}
	for _, l := range links {
		if l.Attrs().Flags&net.FlagLoopback == 0 {
			failed = append(failed, removeAddresses(l))
		}
	}
	return errors.Join(failed...)
}

// removeAddresses removes the addresses of a link. The kernel removes its routes with the last one.
func removeAddresses(l netlink.Link) error {
	var failed []error
	name := l.Attrs().Name
	err := ifconfig.Sysctl("ipv6", name, "disable_ipv6", "1") // removes its addresses and routes
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		failed = append(failed, fmt.Errorf("%s: disable IPv6: %w", name, err))
	}
	addresses, err := listing.Whole(func() ([]netlink.Addr, error) { return netlink.AddrList(l, netlink.FAMILY_V4) })
	if err != nil {
		failed = append(failed, fmt.Errorf("%s: list addresses: %w", name, err))
	}
	for _, a := range addresses {
		if err := netlink.AddrDel(l, &a); err != nil && !ifconfig.IsAbsent(err) {
			failed = append(failed, fmt.Errorf("%s: remove %s: %w", name, a.IPNet, err))
		}
	}
	return errors.Join(failed...)
}
