//go:build linux

package network

import (
	"fmt"
	"net"
	"net/netip"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"ironroot/initramfs"
	"ironroot/internal/test/testenv"
	"ironroot/lab/e2e/rig"
	"ironroot/lab/qemu"
)

// configDrive creates a config drive with network data.
func configDrive(t *testing.T, publisher, data string) string {
	t.Helper()
	testenv.Programs(t, "genisoimage")
	dir, image := t.TempDir(), filepath.Join(t.TempDir(), "config-drive.iso")
	rig.WriteFile(t, filepath.Join(dir, rig.NetworkData), data)
	testenv.Run(t, "genisoimage", "-quiet", "-r", "-V", "config-2", "-publisher", publisher, "-o", image, dir)
	return image
}

// staticNetwork returns network data in Ironic's form with one link, which has an address of each family.
func staticNetwork(mac, ipv4, ipv6, more string) string {
	return fmt.Sprintf(`{"links": [{"id": "port0", "type": "vif", "ethernet_mac_address": %q, "mtu": 1400}%s],
		"networks": [
			{"id": "subnet4", "network_id": "n", "type": "ipv4", "link": "port0", "ip_address": %q,
			 "netmask": "255.255.255.0",
			 "routes": [{"network": "0.0.0.0", "netmask": "0.0.0.0", "gateway": "192.0.2.1"}]},
			{"id": "subnet6", "network_id": "n", "type": "ipv6", "link": "port0", "ip_address": %q,
			 "netmask": "ffff:ffff:ffff:ffff::",
			 "routes": [{"network": "::0", "netmask": "::0", "gateway": "2001:db8:7::1"}]}],
		"services": [{"type": "dns", "address": "192.0.2.53"}]}`, mac, more, ipv4, ipv6)
}

// TestStaticNetwork boots a machine on a cable without any DHCP server or router. Two config drives are attached; one
// belongs to another boot. The node's own has a link that contradicts another one.
//
// Parity: R2, D5 (publisher ids)
func TestStaticNetwork(t *testing.T) {
	t.Parallel()
	const mac = "52:54:00:e2:e0:21"
	s := rig.NewSite(t)
	cable := s.Tap("cable", "192.0.2.1/24", "2001:db8:7::1/64")
	s.StartIronic(netip.MustParseAddr("192.0.2.1"), mac, time.Minute)
	broken := `, {"id": "twin", "type": "phy", "ethernet_mac_address": "` + mac + `"}`
	s.BootAs(qemu.Config{
		NICs: []qemu.NIC{{MAC: mac, Netdev: cable}},
		CDROM: configDrive(t, strings.ToUpper(rig.Publisher), staticNetwork(mac, "192.0.2.77", "2001:db8:7::77",
			broken)),
		Disks: []qemu.Disk{{
			Bus: qemu.USB, ReadOnly: true,
			File: configDrive(t, "somebody", staticNetwork(mac, "192.0.2.66", "2001:db8:7::66", "")),
		}},
	}, "ipa-insecure=1 boot_method=vmedia ipa-api-url="+s.Ironic.URL()+" ir_pub_id="+rig.Publisher)
	s.WaitAgent(t)
	if url, _ := s.Node.Callback(); url != "https://192.0.2.77:9999" {
		t.Errorf("callback URL: got %s, want the static address of the node's own drive", url)
	}
	answers(t, s)
	connects(t, s, net.JoinHostPort("2001:db8:7::77", fmt.Sprint(rig.AgentPort)))
	for _, expression := range []string{
		`config drive of another boot ignored.*publisher=.?SOMEBODY`,
		`part of the network data ignored.*twin.*port0.*same MAC address`,
	} {
		rig.WaitConsole(t, s.Machine, "(?i)"+expression)
	}
	if strings.Contains(s.Machine.Console().String(), "no lease") {
		t.Error("the console speaks of DHCP, which the data does not ask for")
	}
}

// TestNetworkDataUnused boots two machines on a network with DHCP: one whose config drive is not valid JSON, and one
// that booted from the network (BOOTIF) with an unrelated config drive.
//
// Parity: D5 (BOOTIF)
func TestNetworkDataUnused(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ parameters, data, says string }{
		"useless": {"ir_pub_id=" + rig.Publisher, "links: []", "network data not usable, using DHCP"},
		"BOOTIF":  {"BOOTIF=01-52-54-00-e2-e0-01", staticNetwork(rig.NodeMAC, "192.0.2.66", "2001:db8:7::66", ""), ""},
	} {
		t.Run(name, func(t *testing.T) {
			id := ""
			if c.says != "" {
				id = rig.Publisher
			}
			r := rig.Start(t, rig.Setup{
				Append:  "ipa-disk-wait-attempts=1 ipa-disk-wait-delay=1 " + c.parameters,
				Machine: qemu.Config{Memory: 320 * rig.MiB, CDROM: configDrive(t, id, c.data)},
			})
			r.WaitAgent(t)
			if url, _ := r.Node.Callback(); url != "https://10.0.2.15:9999" {
				t.Errorf("callback URL: got %s, want the address of the lease", url)
			}
			console := rig.WaitConsole(t, r.Machine, regexp.QuoteMeta(c.says))
			if c.says == "" && strings.Contains(console, "network data") {
				t.Error("the console speaks of network data, which there are none of")
			}
		})
	}
}

// TestBond connects two machines by two cables, which form an LACP bond with a VLAN. Ironic is on that VLAN, and the
// machine's only source of network settings is its config drive.
//
// Parity: D5 (bond, VLAN, static addresses)
func TestBond(t *testing.T) {
	t.Parallel()
	testenv.Programs(t, "qemu-system-x86_64", "apt-get")
	report, err := initramfs.Build(t.Context(), initramfs.Options{
		Dir: testenv.Top(t), Out: t.TempDir(), Package: "linux-image-cloud-amd64",
		ModuleGroups: []string{"virtual", "network"},
		Init:         "ironroot/lab/e2e/guest/bondinit",
	})
	if err != nil {
		t.Fatal(err)
	}
	macs := []string{"52:54:00:e2:e0:31", "52:54:00:e2:e0:32"}
	dir := t.TempDir()
	var ours, theirs []qemu.NIC
	for i, mac := range macs {
		cable := ",addr.type=unix,addr.path=" + filepath.Join(dir, fmt.Sprint("cable", i))
		// LACP requires the speed of the bond's members.
		const model = "virtio-net-pci,speed=10000,duplex=full"
		theirs = append(theirs,
			qemu.NIC{MAC: fmt.Sprintf("52:54:00:e2:e0:4%d", i), Model: model, Netdev: "stream,server=on" + cable})
		ours = append(ours, qemu.NIC{MAC: mac, Model: model, Netdev: "stream,server=off" + cable})
	}
	peer, err := qemu.Start(t.Context(), qemu.Config{
		Name: "peer", Dir: t.TempDir(), Memory: 384 * rig.MiB, NICs: theirs, Kernel: report.Kernel,
		Initrd: report.Initramfs,
		Append: "console=ttyS0 " + qemu.KernelHints + " macs=" + strings.Join(macs, ",") +
			" node=192.0.2.77,2001:db8:7::77",
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = peer.Stop() })
	node, err := qemu.Start(t.Context(), qemu.Config{
		Name: "node", Dir: t.TempDir(), Memory: 384 * rig.MiB, NICs: ours,
		CDROM:  configDrive(t, rig.Publisher, bondedNetwork(macs)),
		Kernel: testenv.Build(t, "ipa-ironroot-amd64.kernel"), Initrd: testenv.Build(t, "ipa-ironroot-amd64.initramfs"),
		Append: "console=ttyS0 loglevel=4 ipa-debug=1 ipa-insecure=1 ipa-disk-wait-attempts=1 ipa-disk-wait-delay=1 " +
			qemu.KernelHints +
			" boot_method=vmedia ipa-api-url=https://192.0.2.1:6385 ir_pub_id=" + rig.Publisher,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = node.Stop()
		if t.Failed() {
			t.Logf("the peer's console ends with\n%s\nthe node's with\n%s",
				peer.Console().Tail(30), node.Console().Tail(80))
		}
	})
	for _, want := range []string{
		`HEARTBEAT https://192\.0\.2\.77:9999\s`, `REACHED 192\.0\.2\.77\s`, `REACHED 2001:db8:7::77\s`,
		`LACP 2 ` + macs[0] + `\s`, `STILL REACHED 192\.0\.2\.77\s`, `STILL REACHED 2001:db8:7::77\s`,
	} {
		if _, err := peer.Console().Follow(rig.Soon(t), regexp.MustCompile(want)); err != nil {
			t.Fatalf("%q: %v", want, err)
		}
	}
	console := node.Console().String()
	if strings.Contains(console, "network data ignored") || strings.Contains(console, "MTU not set") {
		t.Error("part of the network data was not used")
	}
}

// bondedNetwork returns network data of a VLAN on a bond, in the form of Metal3's templates.
func bondedNetwork(macs []string) string {
	return fmt.Sprintf(`{"links": [
			{"id": "enp1s0", "type": "phy", "ethernet_mac_address": %q, "mtu": 2000},
			{"id": "enp2s0", "type": "phy", "ethernet_mac_address": %q, "mtu": 2000},
			{"id": "bond0", "type": "bond", "ethernet_mac_address": %q, "bond_mode": "802.3ad",
			 "bond_links": ["enp1s0", "enp2s0"],
			 "bond_miimon": 100, "bond_xmit_hash_policy": "layer3+4", "bond_lacp_rate": "fast", "mtu": 2000},
			{"id": "provisioning", "type": "vlan", "vlan_id": 100, "vlan_link": "bond0",
			 "vlan_mac_address": "52:54:00:e2:e0:3f", "mtu": 1400}],
		"networks": [
			{"id": "v4", "type": "ipv4", "link": "provisioning", "ip_address": "192.0.2.77", "netmask": 24,
			 "gateway": "192.0.2.1"},
			{"id": "v6", "type": "ipv6", "link": "provisioning", "ip_address": "2001:db8:7::77", "netmask": 64,
			 "routes": [{"network": "::", "netmask": 0, "gateway": "2001:db8:7::1"}]}],
		"services": [{"type": "dns", "address": "192.0.2.53"}]}`, macs[0], macs[1], macs[0])
}
