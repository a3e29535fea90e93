//go:build linux

package ironic

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"fmt"
	"hash/crc32"
	"io"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync/atomic"
	"time"

	"ironroot/lab/bmc"
	"ironroot/lab/qemu"
)

// Boot is the boot interface, which determines how Ironic boots the ramdisk.
type Boot string

// The boot interfaces.
const (
	IPXE         Boot = "ipxe"
	PXE          Boot = "pxe" // requires Options.PXE and NodeOptions.Firmware
	VirtualMedia Boot = "redfish-virtual-media"
	HTTPBoot     Boot = "redfish-https" // UEFI HTTP boot of an ISO
)

// NodeOptions describes a machine and how Ironic boots it.
type NodeOptions struct {
	Name            string // "" means node0
	Boot            Boot   // "" means IPXE
	DeployInterface string // "" means direct
	Memory          int64  // bytes, 0 means 1 GiB
	// Cables is the number of additional network cards. Each has its own cable, whose other end is available to the
	// test only.
	Cables int
	CPUs   int  // 0 means 2
	BIOS   bool // instead of UEFI
	// SecureBoot makes UEFI enforce Secure Boot with Microsoft's keys. Ironic does not manage it.
	SecureBoot bool
	// Disks are the machine's disks; nil means one virtio disk of 8 GiB. Disks without a path get a new file.
	Disks []qemu.Disk
	// Firmware makes the firmware boot from the network, see UseFirmware.
	Firmware bool
	// Kernel and Ramdisk are the paths of the deploy ramdisk's files.
	Kernel, Ramdisk string
	// Resets receives the requests to the BMC; it may be nil.
	Resets bmc.Resets
	// KernelParams replaces the command line of Options.KernelParams; "%default%" inserts it.
	KernelParams string
}

// Node is a machine that Ironic manages.
type Node struct {
	NodeOptions
	UUID string
	MAC  string   // of the card that the machine boots from
	MACs []string // of all cards, starting with MAC

	ironic  *Ironic
	machine qemu.Config
	system  *bmc.System
	taps    []string // the host's ends of the cards' cables
	console *transcript
	byHand  atomic.Bool // QEMU loads the kernel instead of the firmware
}

// Enroll creates a machine that is switched off, adds it to the BMC and enrols it in Ironic.
func (i *Ironic) Enroll(ctx context.Context, o NodeOptions) (*Node, error) {
	n := &Node{NodeOptions: o, ironic: i, console: newTranscript()}
	if n.Name == "" {
		n.Name = "node0"
	}
	if n.Boot == "" {
		n.Boot = IPXE
	}
	if n.DeployInterface == "" {
		n.DeployInterface = "direct"
	}
	if n.Memory == 0 {
		n.Memory = 1 << 30
	}
	if n.CPUs == 0 {
		n.CPUs = 2
	}
	n.UUID = newUUID()
	number := crc32.ChecksumIEEE([]byte(n.Name)) & 0xffff
	for card := range 1 + o.Cables {
		n.MACs = append(n.MACs, fmt.Sprintf("52:54:00:%02x:%02x:%02x", 0x1a+card, number>>8, number&0xff))
		n.taps = append(n.taps, fmt.Sprintf("tap%04x-%d", number, card))
	}
	n.MAC = n.MACs[0]
	if err := n.build(); err != nil {
		return nil, fmt.Errorf("machine of %s: %w", n.Name, err)
	}
	if err := n.enroll(ctx); err != nil {
		return nil, fmt.Errorf("enroll %s: %w", n.Name, err)
	}
	return n, nil
}

// build creates the machine and adds it to the BMC.
func (n *Node) build() error {
	i := n.ironic
	dir := i.path("vm/" + n.Name)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	nics, err := n.cards()
	if err != nil {
		return err
	}
	disks := append([]qemu.Disk(nil), n.Disks...)
	if disks == nil {
		disks = []qemu.Disk{{Bus: qemu.Virtio, Size: 8 << 30, Serial: "DISK0"}}
	}
	for d := range disks {
		if disks[d].File == "" {
			disks[d].File = filepath.Join(dir, fmt.Sprintf("disk%d.raw", d))
		}
	}
	firmware := qemu.UEFI
	switch {
	case n.BIOS:
		firmware = qemu.BIOS
	case n.SecureBoot:
		firmware = qemu.UEFISecure
	}
	n.machine = qemu.Config{
		Name: n.Name, Dir: dir, Memory: n.Memory, CPUs: n.CPUs, Firmware: firmware, Disks: disks,
		NICs: nics, NetNS: i.ns.Path(), Lines: n.console,
		SMBIOS: []string{"type=1,manufacturer=ironroot,product=Lab,serial=SN-" + n.Name + ",uuid=" + n.UUID},
	}
	n.UseFirmware(n.Firmware)
	n.system = bmc.NewSystem(bmc.Options{
		UUID: n.UUID, Name: n.Name, MACs: n.MACs, Memory: n.Memory, CPUs: n.CPUs, UEFI: !n.BIOS, Dir: dir,
		Machine: &bmc.QEMU{Config: n.machine, Direct: n},
		Log:     i.log, Client: &http.Client{Transport: i.http.Transport},
		Resets: n.Resets,
	})
	i.bmc.Add(n.system)
	i.mu.Lock()
	defer i.mu.Unlock()
	i.nodes = append(i.nodes, n)
	return nil
}

// cards creates the cables of the machine's network cards. The first one leads to the bridge.
func (n *Node) cards() ([]qemu.NIC, error) {
	var nics []qemu.NIC
	noROM := n.Boot == PXE && !n.BIOS || n.Boot == HTTPBoot
	for card, tap := range n.taps {
		var err error
		if card == 0 {
			err = n.ironic.ns.TapOn(bridge, tap)
		} else {
			err = n.ironic.ns.Tap(tap)
		}
		if err != nil {
			return nil, err
		}
		nics = append(nics, qemu.NIC{MAC: n.MACs[card], Netdev: "tap:" + tap, NoROM: noROM})
	}
	return nics, nil
}

// enroll enrols the node in Ironic.
func (n *Node) enroll(ctx context.Context) error {
	kernel, err := n.ironic.publishByContent(n.Kernel)
	if err != nil {
		return err
	}
	ramdisk, err := n.ironic.publishByContent(n.Ramdisk)
	if err != nil {
		return err
	}
	mode := "boot_mode:uefi"
	if n.BIOS {
		mode = "boot_mode:bios"
	}
	info := map[string]any{
		"redfish_address": bmcURL, "redfish_system_id": "/redfish/v1/Systems/" + n.UUID, "redfish_verify_ca": false,
		"redfish_username": "admin", "redfish_password": "password", "redfish_auth_type": "basic",
		"deploy_kernel": kernel, "deploy_ramdisk": ramdisk,
		// With Debian's 1:29.0, every PATCH makes a node its own parent, which Ironic then tries to power on.
		"has_dedicated_power_supply": true,
	}
	if n.KernelParams != "" {
		info["kernel_append_params"] = n.KernelParams
	}
	node := map[string]any{
		"name": n.Name, "uuid": n.UUID, "driver": "redfish", "resource_class": "lab", "boot_interface": n.Boot,
		"deploy_interface": n.DeployInterface, "inspect_interface": inspectInterface(n.ironic.options.Suite),
		"network_interface": "noop", "bios_interface": "no-bios",
		"raid_interface": "agent", "rescue_interface": "agent",
		"management_interface": "redfish", "power_interface": "redfish", "vendor_interface": "no-vendor",
		"driver_info": info, "properties": map[string]any{"cpu_arch": "x86_64", "capabilities": mode},
	}
	if n.ironic.options.Suite != Bookworm { // 21.4 has no firmware interface
		node["firmware_interface"] = "no-firmware"
	}
	if err := n.ironic.call(ctx, http.MethodPost, "/v1/nodes", node, nil); err != nil {
		return err
	}
	port := map[string]any{"node_uuid": n.UUID, "address": n.MAC, "pxe_enabled": true}
	return n.ironic.call(ctx, http.MethodPost, "/v1/ports", port, nil)
}

// publishByContent publishes a file under a name derived from its content, because Ironic caches files by name.
func (i *Ironic) publishByContent(file string) (url string, err error) {
	f, err := os.Open(file)
	if err != nil {
		return "", err
	}
	defer func() { _ = f.Close() }()
	hash := sha256.New()
	if _, err := io.Copy(hash, f); err != nil {
		return "", err
	}
	name := fmt.Sprintf("%s-%x", filepath.Base(file), hash.Sum(nil)[:8])
	if _, err := os.Stat(i.path("http/" + name)); err == nil {
		return filesURL + "/" + name, nil
	}
	return i.Publish(file, name)
}

func newUUID() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails
	b[6], b[8] = b[6]&0x0f|0x40, b[8]&0x3f|0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:])
}

// On reports whether the machine is switched on.
func (n *Node) On() bool { return n.system.On() }

// Console returns the last lines of the serial console over all starts of the machine.
func (n *Node) Console(lines int) string { return n.console.tail(lines) }

// Since returns the lines of the console after mark.
func (n *Node) Since(mark int) string { return n.console.since(mark) }

// Address returns the IPv4 address that DHCP has leased to the machine.
func (n *Node) Address() (netip.Addr, error) {
	for _, lease := range n.ironic.dhcp.Leases() {
		if lease.MAC.String() == n.MAC {
			return lease.Address, nil
		}
	}
	return netip.Addr{}, fmt.Errorf("address of %s: no lease for %s", n.Name, n.MAC)
}

// Mark returns the current end of the console, for Follow.
func (n *Node) Mark() int { return n.console.mark() }

// Follow waits for a line of the console after mark that matches the expression, and returns its groups. It continues
// over restarts of the machine.
func (n *Node) Follow(ctx context.Context, mark int, expression *regexp.Regexp) ([]string, error) {
	return n.console.follow(ctx, mark, expression)
}

// UseFirmware sets whether the machine's firmware boots from the network. Otherwise QEMU loads the kernel, the
// ramdisk and the command line that Ironic's iPXE script names, which saves half a minute of emulated firmware.
func (n *Node) UseFirmware(use bool) { n.byHand.Store(!use) }

// Direct returns what Ironic's iPXE script boots on this machine. ok is false if the firmware should boot, or if the
// script boots from the disk.
func (n *Node) Direct() (kernel, initrd, cmdline string, ok bool) {
	if !n.byHand.Load() {
		return "", "", "", false
	}
	files := n.ironic.path("http")
	text, err := os.ReadFile(filepath.Join(files, "pxelinux.cfg", strings.ReplaceAll(n.MAC, ":", "-")))
	if err != nil {
		return "", "", "", false
	}
	kernelURL, initrdURL, cmdline, ok := parseScript(string(text), n.MAC)
	local := func(url string) string { return filepath.Join(files, strings.TrimPrefix(url, filesURL)) }
	return local(kernelURL), local(initrdURL), cmdline, ok
}

// Timeouts of single operations on an emulated machine.
const (
	quickly = 15 * time.Minute
	slowly  = 40 * time.Minute
)
