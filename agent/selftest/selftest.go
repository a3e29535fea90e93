// Package selftest describes a machine in one report: what the ramdisk has drivers for, what it would do to each disk,
// and what will not work. Nothing is written to the machine.
package selftest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"ironroot/agent/cleaning"
	"ironroot/agent/clock"
	"ironroot/agent/inventory"
	"ironroot/agent/journal"
	"ironroot/agent/node"
	"ironroot/agent/status"
	"ironroot/internal/goroutine"
	"ironroot/netboot/lldp"
	"ironroot/storage/block"
	"ironroot/storage/efivarfs"
	"ironroot/storage/sysfs"
)

const modeUEFI = "uefi" // of the inventory

// Options are the sources of a report. All are required except where a comment says otherwise.
type Options struct {
	System    sysfs.Root
	Program   string // name and version of this program
	Inventory Inventory
	Cleaner   ErasePreviewer
	// Node has the settings for Cleaner; nil has none.
	Node *node.Node
	// Neighbours receives LLDP frames, for LLDPTimeout; nil receives none.
	Neighbours  inventory.Neighbours
	LLDPTimeout time.Duration
	// Board has the network adapters without a driver that PID 1 knows, with the reasons; nil knows none.
	Board *status.Board
	// Kernel is nil for the running one.
	Kernel Kernel
}

// Inventory collects the inventory: see [inventory.Source].
type Inventory interface {
	Collect(ctx context.Context) (*inventory.Inventory, error)
}

// ErasePreviewer describes what erase_devices would do. With an error that wraps [block.ErrUnreadable], it returns the
// disks that could be described.
type ErasePreviewer interface {
	PreviewErase(ctx context.Context, n *node.Node) ([]cleaning.Decision, error)
}

// Kernel has the clocks of a machine and the messages of the kernel.
type Kernel interface {
	// Now returns the time of the system clock.
	Now() time.Time
	// Hardware returns the time of the hardware clock. The error wraps os.ErrNotExist if there is none.
	Hardware() (time.Time, error)
	KernelLog() ([]byte, error)
}

// runningKernel is the kernel that the program runs on.
type runningKernel struct{ clock.Machine }

// KernelLog implements [Kernel].
func (runningKernel) KernelLog() ([]byte, error) { return journal.KernelLog() }

// Collect reads everything concurrently. Facts that could not be read are among the problems of the report.
func Collect(ctx context.Context, o Options) *Report {
	if o.Kernel == nil {
		o.Kernel = runningKernel{}
	}
	c := &collector{Options: o, report: &Report{
		Format: formatVersion, Program: o.Program, Devices: []PCIDevice{}, MissingFirmware: []string{},
		Links: []Link{}, Disks: []Disk{}, Problems: []string{},
	}}
	c.run(ctx)
	return c.report
}

// collector collects the parts of a report.
type collector struct {
	Options

	report    *Report
	inventory *inventory.Inventory // nil if it could not be read
	frames    map[string]lldp.Frame
}

func (c *collector) run(ctx context.Context) {
	var inventoryErr, disksErr, neighboursErr error
	var previews []cleaning.Decision
	group := goroutine.NewGroup()
	group.Go(func() error {
		previews, disksErr = c.Cleaner.PreviewErase(ctx, c.Node)
		return nil
	})
	group.Go(func() error {
		if c.Neighbours != nil { // links that come up meanwhile have a carrier in the inventory
			c.frames, neighboursErr = c.Neighbours.WaitLLDP(ctx, c.LLDPTimeout)
		}
		c.inventory, inventoryErr = c.Inventory.Collect(ctx)
		return nil
	})
	if err := group.Wait(); err != nil { // a panic
		c.problem("self-test is incomplete: %v", err)
	}
	c.failed("inventory is incomplete", inventoryErr)
	c.kernel()
	c.pciDevices()
	c.firmware()
	c.machine()
	c.boot()
	c.clock()
	c.links()
	c.failed("LLDP is not received", neighboursErr)
	c.disks(previews)
	c.failed("disks cannot be used", disksErr)
	c.hideAddresses()
}

func (c *collector) problem(format string, args ...any) {
	c.report.Problems = append(c.report.Problems, fmt.Sprintf(format, args...))
}

// failed adds an error as a problem.
func (c *collector) failed(what string, err error) {
	if err != nil {
		c.problem("%s: %s", what, strings.ReplaceAll(err.Error(), "\n", "; "))
	}
}

func (c *collector) kernel() {
	release, err := c.System.Files.Read(c.System.Proc("sys/kernel/osrelease"))
	c.failed("release of the kernel is not known", err)
	c.report.Kernel = strings.TrimSpace(string(release)) + " " + runtime.GOARCH
}

// Classes of PCI devices (PCI Code and ID Assignment Specification, 1.2).
const (
	classStorage = "01"
	classNetwork = "02"
)

// pciDevices adds the PCI devices, and problems for storage and network adapters without a driver. Virtual functions
// belong to virtual machines, and some storage controllers never have media.
func (c *collector) pciDevices() {
	dir := c.System.Sys("bus/pci/devices")
	entries, err := os.ReadDir(dir)
	if err != nil {
		if !errors.Is(err, os.ErrNotExist) { // there are machines without the bus
			c.failed("PCI devices are not known", err)
		}
		return
	}
	for _, entry := range entries {
		d := PCIDevice{Address: entry.Name()}
		var ids [2]string
		for name, into := range map[string]*string{"class": &d.Class, "vendor": &ids[0], "device": &ids[1]} {
			text, err := c.System.Files.Read(filepath.Join(dir, d.Address, name))
			c.failed("PCI device "+d.Address, err)
			*into = strings.TrimPrefix(strings.TrimSpace(string(text)), "0x")
		}
		d.ID = ids[0] + ":" + ids[1]
		if driver, err := os.Readlink(filepath.Join(dir, d.Address, "driver")); err == nil {
			d.Driver = filepath.Base(driver)
		}
		c.report.Devices = append(c.report.Devices, d)
		if _, err := os.Lstat(filepath.Join(dir, d.Address, "physfn")); err == nil || d.Driver != "" {
			continue
		}
		switch {
		case block.FunctionWithoutMedia(d.ID, "0x"+d.Class) != "":
		case strings.HasPrefix(d.Class, classStorage):
			c.problem("storage controller %s (PCI ID %s) has no driver: its disks cannot be used", d.Address, d.ID)
		case strings.HasPrefix(d.Class, classNetwork):
			c.problem("%s", c.adapterText(d))
		}
	}
}

// adapterText describes a network adapter without a driver.
func (c *collector) adapterText(d PCIDevice) string {
	a := status.Adapter{Address: d.Address, ID: d.ID}
	known := c.Board.State().Adapters
	if at := slices.IndexFunc(known, func(k status.Adapter) bool { return k.Address == d.Address }); at >= 0 {
		a = known[at]
	}
	return a.Text()
}

// firmware adds the files of firmware that drivers requested and that do not exist.
func (c *collector) firmware() {
	log, err := c.Kernel.KernelLog()
	c.failed("missing firmware is not known", err)
	for line := range bytes.Lines(log) {
		// A line has a time, "[    1.234567] ".
		_, message, _ := strings.Cut(strings.TrimSuffix(string(line), "\n"), "] ")
		file, ok := journal.MissingFirmware(message)
		if ok && !slices.Contains(c.report.MissingFirmware, file) {
			c.report.MissingFirmware = append(c.report.MissingFirmware, file)
			c.problem("firmware missing: %s", file)
		}
	}
}

// machine adds what the inventory has of the machine.
func (c *collector) machine() {
	r, inv := c.report, c.inventory
	if inv == nil {
		return
	}
	r.Machine = Machine{
		Manufacturer: inv.SystemVendor.Manufacturer, Product: inv.SystemVendor.ProductName,
		Firmware: inv.SystemVendor.Firmware,
	}
	r.CPU = CPU{
		Model: inv.CPU.ModelName, Architecture: inv.CPU.Architecture,
		Count: inv.CPU.Count, Sockets: inv.CPU.SocketCount,
	}
	r.Memory = inv.Memory.Total
	r.BMC.HasAddress = known(inv.BMCAddress, "0.0.0.0") || known(inv.BMCV6Address, "::")
	r.BMC.Driver = len(inventory.IPMIDevices(c.System)) > 0
	if r.BMC.Driver && !r.BMC.HasAddress {
		c.problem("BMC has no address, or does not answer")
	}
}

// known reports whether an address of the inventory is one. The protocol has another text for none.
func known(address *string, none string) bool {
	return address != nil && *address != "" && *address != none
}

// boot adds how the machine was booted.
func (c *collector) boot() {
	b := &c.report.Boot
	if c.inventory != nil {
		b.Mode = c.inventory.Boot.CurrentBootMode
	}
	consoles, err := c.System.Files.Read(c.System.Proc("consoles"))
	c.failed("consoles are not known", err)
	for line := range strings.Lines(string(consoles)) {
		if fields := strings.Fields(line); len(fields) > 0 {
			b.Consoles = append(b.Consoles, fields[0])
		}
	}
	if err == nil && len(b.Consoles) == 0 {
		c.problem("kernel has no console: set console= on the kernel command line")
	}
	if b.Mode != modeUEFI {
		return
	}
	dir := c.System.Sys("firmware/efi/efivars")
	if err := efivarfs.CheckMounted(dir); err != nil {
		c.failed("UEFI variables cannot be read", err)
		return
	}
	entries, _ := filepath.Glob(filepath.Join(dir, "Boot[0-9A-F][0-9A-F][0-9A-F][0-9A-F]-"+efivarfs.GlobalGUID))
	b.Entries = len(entries)
	if enabled, err := efivarfs.SecureBoot(dir, c.System.Files.Read); err == nil { // otherwise the report lacks it
		b.SecureBoot = map[bool]string{true: "on", false: "off"}[enabled]
	}
}

// maxClockDifference is the difference between the clocks that is no problem.
const maxClockDifference = time.Minute

// clock adds the times of the clocks.
func (c *collector) clock() {
	k := &c.report.Clock
	k.System = c.Kernel.Now().UTC().Truncate(time.Second)
	c.failed("system clock", clock.Check(k.System))
	hardware, err := c.Kernel.Hardware()
	switch {
	case errors.Is(err, os.ErrNotExist):
		c.problem("no hardware clock")
		return
	case err != nil:
		c.failed("hardware clock cannot be read", err)
		return
	}
	hardware = hardware.UTC().Truncate(time.Second)
	k.Hardware = &hardware
	c.failed("hardware clock", clock.Check(hardware))
	if difference := k.difference(); difference > maxClockDifference {
		c.problem("hardware clock differs from the system clock by %v", difference)
	}
}

// macPrefix is the length of the text of a MAC address that names the manufacturer: only this part is published.
const macPrefix = len("00:00:00")

// links adds the network interfaces.
func (c *collector) links() {
	if c.inventory == nil {
		return
	}
	carrier := false
	for _, i := range c.inventory.Interfaces {
		l := Link{
			Name: i.Name, MACPrefix: i.MACAddress[:min(macPrefix, len(i.MACAddress))], Carrier: i.HasCarrier,
			Driver: text(i.Driver), PCIID: strings.TrimPrefix(text(i.Vendor), "0x"),
			HasAddress: i.IPv4Address != nil || i.IPv6Address != nil, LLDP: len(c.frames[i.Name].TLVs) > 0,
		}
		if i.Product != nil {
			l.PCIID += ":" + strings.TrimPrefix(*i.Product, "0x")
		}
		if i.SpeedMbps != nil {
			l.SpeedMbps = max(0, *i.SpeedMbps)
		}
		carrier = carrier || l.Carrier
		c.report.Links = append(c.report.Links, l)
	}
	switch {
	case len(c.report.Links) == 0:
		c.problem("no network interface")
	case !carrier:
		c.problem("no network interface has a carrier: check cables and switch ports")
	}
}

// hideAddresses replaces MAC addresses by their manufacturer's part, in names such as enx525400aabbcc and in problems.
func (c *collector) hideAddresses() {
	if c.inventory == nil {
		return
	}
	for _, i := range c.inventory.Interfaces {
		if len(i.MACAddress) <= macPrefix {
			continue
		}
		plain := strings.ReplaceAll(i.MACAddress, ":", "")
		const plainPrefix = len("000000")
		hide := strings.NewReplacer(i.MACAddress, i.MACAddress[:macPrefix]+":...", plain, plain[:plainPrefix]+"...")
		for l := range c.report.Links {
			c.report.Links[l].Name = hide.Replace(c.report.Links[l].Name)
		}
		for p := range c.report.Problems {
			c.report.Problems[p] = hide.Replace(c.report.Problems[p])
		}
	}
}

// text returns a value of the inventory, "" if it is unknown.
func text(value *string) string {
	if value == nil {
		return ""
	}
	return *value
}

// disks adds the disks.
func (c *collector) disks(previews []cleaning.Decision) {
	for _, p := range previews {
		d := Disk{
			Path: p.Disk.Path, Model: strings.Join(present(p.Disk.Vendor, p.Disk.Model), " "), Size: p.Disk.Size,
			Transport: p.Disk.Transport, Rotational: p.Disk.Rotational, LogicalSector: p.Disk.LogicalSector,
			PhysicalSector: p.Disk.PhysicalSector, Revision: c.revision(p.Disk), Erase: p.Report.String(),
			Untouched: p.Untouched,
		}
		if p.Err != nil {
			d.Error = strings.TrimPrefix(strings.ReplaceAll(p.Err.Error(), "\n", "; "), "erase "+d.Path+": ")
			c.problem("disk %s cannot be erased: %s", d.Path, d.Error)
		}
		c.report.Disks = append(c.report.Disks, d)
	}
	if len(previews) == 0 {
		c.problem("no disk")
	}
}

// revision returns the revision of a disk's firmware, "" if it is unknown.
func (c *collector) revision(d block.Device) string {
	for _, name := range []string{"firmware_rev", "rev"} {
		if data, err := c.System.Files.Read(c.System.Sys("block", d.Name, "device", name)); err == nil {
			return strings.TrimSpace(string(data))
		}
	}
	return ""
}
