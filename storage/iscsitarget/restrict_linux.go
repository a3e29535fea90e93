package iscsitarget

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"ironroot/internal/confine"
)

// rulePriority is the priority of the first rule: after the kernel's table of local addresses, before its other tables.
const rulePriority = 3260

// rules are rules of the kernel's routing.
type rules []*netlink.Rule

// restrict adds two rules. The kernel drops the connection requests of others, because it
// has no route for its replies from the portal's port: the first rule is for the peer, the second one for everybody
// else. The machine itself can connect.
func (systemKernel) restrict(portal netip.AddrPort, peer netip.Addr) (restriction, error) {
	peer = peer.WithZone("")
	pass, drop := netlink.NewRule(), netlink.NewRule()
	for i, r := range []*netlink.Rule{pass, drop} {
		r.Priority, r.Family, r.IPProto = rulePriority+i, unix.AF_INET, unix.IPPROTO_TCP
		if peer.Is6() {
			r.Family = unix.AF_INET6
		}
		r.Sport = netlink.NewRulePortRange(portal.Port(), portal.Port())
	}
	pass.Dst = &net.IPNet{IP: peer.AsSlice(), Mask: net.CIDRMask(peer.BitLen(), peer.BitLen())}
	pass.Table = unix.RT_TABLE_MAIN
	drop.Type = nl.FR_ACT_BLACKHOLE
	var added rules
	for _, r := range []*netlink.Rule{drop, pass} {
		if err := netlink.RuleAdd(r); err != nil {
			return nil, errors.Join(fmt.Errorf("restrict port %d to %s: routing rule: %w", portal.Port(), peer, err),
				added.lift())
		}
		added = append(added, r)
	}
	return added, nil
}

func (r rules) lift() error {
	var failed []error
	for _, rule := range r {
		if err := netlink.RuleDel(rule); err != nil && !errors.Is(err, unix.ENOENT) {
			failed = append(failed, fmt.Errorf("delete routing rule %s: %w", rule, err))
		}
	}
	return errors.Join(failed...)
}

func (systemKernel) mount(dir string) error {
	if err := unix.Mount("configfs", dir, "configfs", confine.DataOnly, ""); err != nil && !errors.Is(err, unix.EBUSY) {
		return fmt.Errorf("mount configfs on %s: %w", dir, err)
	}
	return nil
}

// openExclusively opens and closes a device. The error wraps unix.EBUSY if the device is in use.
func openExclusively(device string) error {
	f, err := os.OpenFile(device, os.O_RDWR|unix.O_EXCL|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	return f.Close()
}
