//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"ironroot/netboot/listing"
	"ironroot/uinit/boot"
)

// changedMAC is the new MAC address of the interface whose MAC address is in the kernel parameter facts-change.
const changedMAC = "02:00:00:c0:ff:ee"

// makeDevices creates block devices that are not disks: a floppy drive, a compressed RAM disk and a loop device.
func makeDevices(ctx context.Context, m *boot.Machine) error {
	for _, module := range []string{"floppy", "zram", "loop"} {
		if err := m.Probe(ctx, module); err != nil {
			return err
		}
	}
	if err := os.WriteFile("/sys/block/zram0/disksize", []byte("8M"), 0o600); err != nil {
		return err
	}
	return loopDevice("/tmp/loop", 4<<20)
}

// loopDevice creates a file of size bytes and attaches it to /dev/loop0.
func loopDevice(path string, size int64) error {
	file, err := os.Create(path)
	if err != nil {
		return err
	}
	defer file.Close() //nolint:errcheck // the loop device holds it from now on
	if err := file.Truncate(size); err != nil {
		return err
	}
	loop, err := os.OpenFile("/dev/loop0", os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer loop.Close() //nolint:errcheck // nothing was written
	if err := unix.IoctlSetInt(int(loop.Fd()), unix.LOOP_SET_FD, int(file.Fd())); err != nil {
		return fmt.Errorf("attach %s: %w", path, err)
	}
	return nil
}

// changeMAC changes the MAC address of the interface that the kernel parameter facts-change names by MAC address, and
// returns the interface. The interface must be down: otherwise a router advertisement gives it an address for each of
// its MAC addresses.
func changeMAC(m *boot.Machine) (netlink.Link, error) {
	links, err := listing.Links()
	if err != nil {
		return nil, err
	}
	for _, link := range links {
		name, mac := link.Attrs().Name, link.Attrs().HardwareAddr.String()
		if mac != m.Params["facts-change"] {
			continue
		}
		changed, err := net.ParseMAC(changedMAC)
		if err != nil {
			return nil, err
		}
		if err := netlink.LinkSetHardwareAddr(link, changed); err != nil {
			return nil, fmt.Errorf("change the MAC address of %s from %s to %s: %w", name, mac, changed, err)
		}
		return link, nil
	}
	return nil, fmt.Errorf("no interface has the MAC address %q", m.Params["facts-change"])
}

// makeInterfaces creates a VLAN on an interface, two bonds, a bridge, a dummy interface and a veth pair.
func makeInterfaces(ctx context.Context, m *boot.Machine, parent netlink.Link) error {
	for _, module := range []string{"8021q", "bonding", "bridge", "dummy", "veth"} {
		if err := m.Probe(ctx, module); err != nil {
			return err
		}
	}
	named := func(name string) netlink.LinkAttrs {
		attrs := netlink.NewLinkAttrs()
		attrs.Name = name
		return attrs
	}
	vlan := named(parent.Attrs().Name + ".5")
	vlan.ParentIndex = parent.Attrs().Index
	// The kernel would generate MAC addresses. The inventory omits bonds whose address starts with fa:.
	bonds := map[string]net.HardwareAddr{"bond0": {2, 0, 0, 0xb0, 0, 0}, "team-a": {2, 0, 0, 0xb0, 0, 1}}
	for _, link := range []netlink.Link{
		&netlink.Vlan{LinkAttrs: vlan, VlanId: 5}, netlink.NewLinkBond(named("bond0")),
		netlink.NewLinkBond(named("team-a")), &netlink.Bridge{LinkAttrs: named("br0")},
		&netlink.Dummy{LinkAttrs: named("dummy5")}, &netlink.Veth{LinkAttrs: named("veth0"), PeerName: "veth1"},
	} {
		// Some modules create the interface when they are loaded.
		if err := netlink.LinkAdd(link); err != nil && !errors.Is(err, unix.EEXIST) {
			return fmt.Errorf("make interface %s: %w", link.Attrs().Name, err)
		}
		if mac := bonds[link.Attrs().Name]; mac != nil {
			if err := netlink.LinkSetHardwareAddr(link, mac); err != nil {
				return fmt.Errorf("give interface %s a MAC address: %w", link.Attrs().Name, err)
			}
		}
		if err := netlink.LinkSetUp(link); err != nil {
			return fmt.Errorf("raise interface %s: %w", link.Attrs().Name, err)
		}
	}
	return nil
}

// steady waits until all addresses are assigned: every hardware interface has its addresses from DHCP and the router,
// and every other interface that is up and has a carrier has its link-local address.
func steady(ctx context.Context) error {
	changed := make(chan netlink.AddrUpdate, 64)
	done := make(chan struct{})
	defer close(done)
	if err := netlink.AddrSubscribe(changed, done); err != nil {
		return err
	}
	for {
		missing, err := expected()
		if err != nil {
			return err
		}
		if missing == "" {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return fmt.Errorf("wait for the addresses of %s: %w", missing, ctx.Err())
		}
	}
}

// expected returns the name of an interface that lacks addresses, or "".
func expected() (missing string, err error) {
	links, err := listing.Links()
	if err != nil {
		return "", err
	}
	for _, link := range links {
		a := link.Attrs()
		hardware := link.Type() == "device" && a.Flags&net.FlagLoopback == 0
		if !hardware && a.Flags&net.FlagRunning == 0 || a.Flags&net.FlagLoopback != 0 {
			continue
		}
		addresses, err := listing.Whole(func() ([]netlink.Addr, error) {
			return netlink.AddrList(link, netlink.FAMILY_ALL)
		})
		if err != nil {
			return "", err
		}
		final := 0
		for _, address := range addresses {
			if address.Flags&unix.IFA_F_TENTATIVE == 0 {
				final++
			}
		}
		if want := map[bool]int{true: 3, false: 1}[hardware]; final < want {
			return a.Name, nil
		}
	}
	return "", nil
}
