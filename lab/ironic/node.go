package ironic

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"fmt"
	"hash/crc32"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync/atomic"
	"time"

	"ironroot/lab/bmc"
	"ironroot/lab/qemu"
)

// Boot is how Ironic boots the ramdisk.
type Boot string

// The boot interfaces.
const (
	IPXE         Boot = "ipxe"
	PXE          Boot = "pxe" // needs Options.PXE and NodeOptions.Firmware
	VirtualMedia Boot = "redfish-virtual-media"
)

// NodeOptions describe a machine and how Ironic boots it.
type NodeOptions struct {
	Name   string // "" means node0
	Boot   Boot   // "" means IPXE
	Memory int64  // bytes, 0 means 1 GiB
	// Cables are further network cards, each on a cable of its own that leads to nothing but the test.
	Cables int
	CPUs   int  // 0 means 2
	BIOS   bool // instead of UEFI
	// Disks are the machine's disks; nil means one virtio disk of 8 GiB. Files without a path get one.
	Disks []qemu.Disk
	// Firmware lets the firmware boot from the network, see UseFirmware.
	Firmware bool
	// Kernel and Ramdisk are the files of the deploy ramdisk.
	Kernel, Ramdisk string
	// KernelParams replace the ramdisk's command line of Options; "%default%" stands for it.
	KernelParams string
}

// Node is a machine that Ironic manages.
type Node struct {
	NodeOptions
	UUID string
	MAC  string   // of the card that the machine boots from
	MACs []string // of all cards, that one first

	ironic  *Ironic
	system  *bmc.System
	taps    []string // the other ends of the cards' cables
	console *transcript
	byHand  atomic.Bool // QEMU loads what the network boot would
}

// Enroll makes a machine, switched off, puts it behind the BMC and enrolls it.
func (i *Ironic) Enroll(ctx context.Context, o NodeOptions) (*Node, error) {
	n := &Node{NodeOptions: o, ironic: i, console: newTranscript()}
	if n.Name == "" {
		n.Name = "node0"
	}
	if n.Boot == "" {
		n.Boot = IPXE
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

// build makes the machine and puts it behind the BMC.
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
	if n.BIOS {
		firmware = qemu.BIOS
	}
	machine := &bmc.QEMU{
		Config: qemu.Config{
			Name: n.Name, Dir: dir, Memory: n.Memory, CPUs: n.CPUs, Firmware: firmware, Disks: disks,
			NICs: nics, NetNS: i.ns.Path(), Line: n.console.add,
			SMBIOS: []string{"type=1,manufacturer=ironroot,product=Lab,serial=SN-" + n.Name + ",uuid=" + n.UUID},
		},
		Direct: n.direct,
	}
	n.UseFirmware(n.Firmware)
	n.system = bmc.NewSystem(bmc.Options{
		UUID: n.UUID, Name: n.Name, MACs: n.MACs, Memory: n.Memory, CPUs: n.CPUs, UEFI: !n.BIOS, Dir: dir,
		Machine: machine, Log: i.log, Client: &http.Client{Transport: i.http.Transport},
	})
	i.bmc.Add(n.system)
	i.mu.Lock()
	defer i.mu.Unlock()
	i.nodes = append(i.nodes, n)
	return nil
}

// cards makes the cables of the machine's network cards: the first one leads to the bridge.
func (n *Node) cards() ([]qemu.NIC, error) {
	var nics []qemu.NIC
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
		nics = append(nics, qemu.NIC{MAC: n.MACs[card], Netdev: "tap:" + tap, NoROM: n.Boot == PXE && !n.BIOS})
	}
	return nics, nil
}

// enroll tells Ironic of the node.
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
		// In Debian's 1:29.0 every PATCH makes a node its own parent, which it would then try to power on.
		"has_dedicated_power_supply": true,
	}
	if n.KernelParams != "" {
		info["kernel_append_params"] = n.KernelParams
	}
	node := map[string]any{
		"name": n.Name, "uuid": n.UUID, "driver": "redfish", "resource_class": "lab", "boot_interface": n.Boot,
		"deploy_interface": "direct", "inspect_interface": "agent", "network_interface": "noop", "bios_interface": "no-bios",
		"raid_interface": "agent", "rescue_interface": "agent", "firmware_interface": "no-firmware",
		"management_interface": "redfish", "power_interface": "redfish", "vendor_interface": "no-vendor",
		"driver_info": info, "properties": map[string]any{"cpu_arch": "x86_64", "capabilities": mode},
	}
	if err := n.ironic.call(ctx, http.MethodPost, "/v1/nodes", node, nil); err != nil {
		return err
	}
	port := map[string]any{"node_uuid": n.UUID, "address": n.MAC, "pxe_enabled": true}
	return n.ironic.call(ctx, http.MethodPost, "/v1/ports", port, nil)
}

// publishByContent publishes a file under a name made of its content, as Ironic caches files by their names.
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

// Console returns the end of what the machine wrote to its serial port over all its starts.
func (n *Node) Console(lines int) string { return n.console.tail(lines) }

// Mark returns the present end of the console, for Follow.
func (n *Node) Mark() int { return n.console.mark() }

// Follow waits for a line of the console, from mark on, that matches the expression, and returns its groups. Restarts
// of the machine do not matter.
func (n *Node) Follow(ctx context.Context, mark int, expression *regexp.Regexp) ([]string, error) {
	return n.console.follow(ctx, mark, expression)
}

// UseFirmware says whether the machine's firmware boots from the network. Otherwise QEMU loads the kernel, the ramdisk
// and the command line that Ironic's iPXE script names, which saves half a minute of emulated firmware.
func (n *Node) UseFirmware(use bool) { n.byHand.Store(!use) }

// direct reads what Ironic's iPXE script of this machine would boot. A script that sends the machine to its own disk
// is not for here.
func (n *Node) direct() (kernel, initrd, cmdline string, ok bool) {
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
	quickly = 2 * time.Minute
	slowly  = 15 * time.Minute
)
