//go:build linux && long

package firmware

import (
	"os"
	"testing"

	"github.com/vishvananda/netlink"

	"ironroot/lab/qemu"
)

// TestNetbootProxy boots the ramdisk in each way that ironroot netboot supports, to the first heartbeat. dnsmasq, which
// knows nothing of it, assigns the addresses.
func TestNetbootProxy(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name     string
		firmware qemu.Firmware
		extra    []string
		flags    []string
		line     string
	}{
		{"BIOS", qemu.BIOS, nil, nil, `firmware="iPXE, amd64" loader=amd64\.ipxe`},
		{"UEFI PXE", qemu.UEFI, nil, nil, `firmware="UEFI PXE, amd64" loader=snponly\.efi`},
		{"UEFI HTTP", qemu.UEFI, noPXE(), nil, `firmware="UEFI HTTP boot, amd64" loader=snponly\.efi`},
		{
			"Secure Boot PXE", qemu.UEFISecure, nil,
			[]string{"--secure-boot"},
			`firmware="UEFI PXE, amd64" loader=shimx64\.efi`,
		},
		{
			"Secure Boot HTTP", qemu.UEFISecure, noPXE(),
			[]string{"--secure-boot"},
			`firmware="UEFI HTTP boot, amd64" loader=shimx64\.efi`,
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			n := startNetboot(t, c.flags...)
			n.other()
			n.boots(t, qemu.Config{Firmware: c.firmware, Extra: c.extra}, c.line)
		})
	}
}

// other starts dnsmasq on the network, as another machine. Both cards are in one network, so each answers requests for
// its own address only, as docs/netboot.md advises.
func (n *netboot) other() {
	n.T.Helper()
	if err := n.NS.Do(func() error {
		for name, value := range map[string]string{"arp_ignore": "1", "arp_announce": "2"} {
			if err := os.WriteFile("/proc/sys/net/ipv4/conf/all/"+name, []byte(value), 0o644); err != nil {
				return err
			}
		}
		attrs := netlink.NewLinkAttrs()
		attrs.Name = "port0"
		veth := &netlink.Veth{LinkAttrs: attrs, PeerName: "dhcp0"}
		if err := netlink.LinkAdd(veth); err != nil {
			return err
		}
		bridge, err := netlink.LinkByName("br0")
		if err != nil {
			return err
		}
		if err := netlink.LinkSetMaster(veth, bridge); err != nil {
			return err
		}
		peer, err := netlink.LinkByName("dhcp0")
		if err != nil {
			return err
		}
		address, err := netlink.ParseAddr("192.0.2.2/24")
		if err != nil {
			return err
		}
		if err := netlink.AddrAdd(peer, address); err != nil {
			return err
		}
		if err := netlink.LinkSetUp(veth); err != nil {
			return err
		}
		return netlink.LinkSetUp(peer)
	}); err != nil {
		n.T.Fatal(err)
	}
	n.Dnsmasq("--interface=dhcp0", "--dhcp-range=192.0.2.100,192.0.2.150,1h")
}
