//go:build linux

package netns

import (
	"fmt"
	"os"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// Tap creates a tap interface, which is one end of a machine's cable, and brings it up with the addresses, for
// example "192.0.2.1/24" and "2001:db8::1/64".
func (n *Namespace) Tap(name string, addresses ...string) error {
	return n.Do(func() error { return makeTap(name, 0, addresses) })
}

// TapOn creates a tap interface as a port of a bridge and brings it up.
func (n *Namespace) TapOn(bridge, name string) error {
	return n.Do(func() error {
		master, err := netlink.LinkByName(bridge)
		if err != nil {
			return fmt.Errorf("bridge %s: %w", bridge, err)
		}
		return makeTap(name, master.Attrs().Index, nil)
	})
}

// Bridge creates a bridge and brings it up with the addresses.
func (n *Namespace) Bridge(name string, addresses ...string) error {
	return n.Do(func() error {
		if err := netlink.LinkAdd(&netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: name}}); err != nil {
			return fmt.Errorf("bridge %s: %w", name, err)
		}
		return up(name, addresses...)
	})
}

func makeTap(name string, master int, addresses []string) error {
	tap := &netlink.Tuntap{LinkAttrs: netlink.LinkAttrs{Name: name}, Mode: netlink.TUNTAP_MODE_TAP}
	if err := netlink.LinkAdd(tap); err != nil {
		return fmt.Errorf("tap %s: %w", name, err)
	}
	if master != 0 {
		if err := netlink.LinkSetMasterByIndex(tap, master); err != nil {
			return fmt.Errorf("tap %s: %w", name, err)
		}
	}
	return up(name, addresses...)
}

// up brings up an interface of the thread's namespace with exactly these addresses: like a router, it ignores router
// advertisements. The addresses are usable at once. They skip duplicate address detection (RFC 4862), because no
// other machine on the cable can have them.
func up(name string, addresses ...string) error {
	link, err := netlink.LinkByName(name)
	if err != nil {
		return fmt.Errorf("interface %s: %w", name, err)
	}
	for _, setting := range []string{"accept_dad", "accept_ra"} {
		err := os.WriteFile("/proc/sys/net/ipv6/conf/"+name+"/"+setting, []byte("0"), 0)
		if err != nil && !os.IsNotExist(err) {
			return fmt.Errorf("interface %s: %w", name, err)
		}
	}
	for _, text := range addresses {
		address, err := netlink.ParseAddr(text)
		if err != nil {
			return fmt.Errorf("interface %s: %w", name, err)
		}
		if address.IP.To4() == nil {
			address.Flags = unix.IFA_F_NODAD
		}
		if err := netlink.AddrAdd(link, address); err != nil {
			return fmt.Errorf("interface %s: address %s: %w", name, text, err)
		}
	}
	if err := netlink.LinkSetUp(link); err != nil {
		return fmt.Errorf("interface %s: %w", name, err)
	}
	return nil
}
