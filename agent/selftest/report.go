package selftest

import (
	"fmt"
	"io"
	"strings"
	"time"

	"ironroot/agent/inventory"
)

// formatVersion is the version of the report's form. It changes when a field changes its meaning or disappears.
const formatVersion = 1

// Report describes a machine. It contains no serial numbers, no MAC and IP addresses, and no names of hosts and
// switches, so that it can be published: of a MAC address it contains the first three bytes. Sizes are in bytes.
type Report struct {
	Format          int         `json:"format"`
	Program         string      `json:"program"`
	Kernel          string      `json:"kernel"`
	Machine         Machine     `json:"machine"`
	Boot            Boot        `json:"boot"`
	CPU             CPU         `json:"cpu"`
	Memory          int64       `json:"memory"`
	Clock           Clock       `json:"clock"`
	BMC             BMC         `json:"bmc"`
	Devices         []PCIDevice `json:"pci_devices"`
	MissingFirmware []string    `json:"missing_firmware"` // files that drivers requested, with the drivers
	Links           []Link      `json:"links"`
	Disks           []Disk      `json:"disks"`
	// Problems lists the facts that an operator must know: functions that will not work, and functions that could not
	// be tested.
	Problems []string `json:"problems"`
}

// Machine is the machine's manufacturer and product, and its firmware.
type Machine struct {
	Manufacturer string             `json:"manufacturer"`
	Product      string             `json:"product"`
	Firmware     inventory.Firmware `json:"firmware"`
}

// Boot describes how the machine was booted.
type Boot struct {
	Mode       string   `json:"mode"`        // "uefi" or "bios"
	SecureBoot string   `json:"secure_boot"` // "on", "off", or "" if there is none or it is not known
	Entries    int      `json:"entries"`     // boot entries among the UEFI variables
	Consoles   []string `json:"consoles"`    // "ttyS0", the kernel's consoles
}

// CPU summarizes the processors.
type CPU struct {
	Model        string `json:"model"`
	Architecture string `json:"architecture"`
	Count        int    `json:"count"`
	Sockets      int    `json:"sockets"`
}

// Clock has the times of the system clock and of the hardware clock, nil if there is none.
type Clock struct {
	System   time.Time  `json:"system"`
	Hardware *time.Time `json:"hardware"`
}

// BMC is the machine's management controller as the kernel's driver reaches it.
type BMC struct {
	Driver     bool `json:"driver"`      // there is a device of the kernel's IPMI driver
	HasAddress bool `json:"has_address"` // the BMC returned an IP address
}

// PCIDevice is a function on the PCI bus.
type PCIDevice struct {
	Address string `json:"address"` // "0000:3b:00.0"
	ID      string `json:"id"`      // vendor and device, "15b3:1017"
	Class   string `json:"class"`   // "020000"
	Driver  string `json:"driver"`  // "" without one
}

// Link is a network interface of the machine.
type Link struct {
	Name       string `json:"name"`
	MACPrefix  string `json:"mac_prefix"` // the first three bytes of the MAC address
	Driver     string `json:"driver"`
	PCIID      string `json:"product"` // PCI vendor and device
	Carrier    bool   `json:"carrier"`
	SpeedMbps  int    `json:"speed_mbps"` // 0 = unknown
	HasAddress bool   `json:"has_address"`
	LLDP       bool   `json:"lldp"` // the switch sends LLDP
}

// Disk is a disk with what erase_devices would do to it.
type Disk struct {
	Path           string `json:"path"`
	Model          string `json:"model"`
	Revision       string `json:"revision"` // of its firmware
	Size           int64  `json:"size"`
	Transport      string `json:"transport"`
	Rotational     bool   `json:"rotational"`
	LogicalSector  int64  `json:"logical_sector"`
	PhysicalSector int64  `json:"physical_sector"`
	Erase          string `json:"erase"`     // the method, followed by what would not be erased; "" if none
	Untouched      string `json:"untouched"` // why the disk would be left as it is; "" otherwise
	Error          string `json:"error"`     // why the step would fail; "" otherwise
}

// Write writes the report as text for people.
func (r *Report) Write(w io.Writer) error {
	var out strings.Builder
	for _, line := range r.Lines() {
		fmt.Fprintf(&out, "%-9s %s\n", line.Subject, line.Text)
	}
	_, err := io.WriteString(w, out.String())
	return err
}

// Line is a line of the report as text.
type Line struct{ Subject, Text string }

// Lines returns the report as text for people, the problems last.
func (r *Report) Lines() []Line {
	lines := []Line{
		{"program", r.Program},
		{"kernel", r.Kernel},
		{"machine", strings.Join(present(r.Machine.Manufacturer, r.Machine.Product), " ")},
		{"firmware", strings.Join(present(r.Machine.Firmware.Vendor, r.Machine.Firmware.Version,
			r.Machine.Firmware.BuildDate), ", ")},
		{"boot", r.Boot.text()},
		{"cpu", fmt.Sprintf("%d in %d sockets, %s, %s", r.CPU.Count, r.CPU.Sockets, r.CPU.Architecture, r.CPU.Model)},
		{"memory", fmt.Sprintf("%d MiB", r.Memory>>20)},
		{"clock", r.Clock.text()},
		{"bmc", r.BMC.text()},
	}
	for _, d := range r.Devices {
		text := d.Address + " " + d.ID + ", class " + d.Class + ", driver " + d.Driver
		if d.Driver == "" {
			text = d.Address + " " + d.ID + ", class " + d.Class + ", no driver"
		}
		lines = append(lines, Line{"pci", text})
	}
	for _, l := range r.Links {
		lines = append(lines, Line{"link", l.text()})
	}
	for _, d := range r.Disks {
		lines = append(lines, Line{"disk", d.text()})
	}
	if len(r.Problems) == 0 {
		return append(lines, Line{"problems", "none found"})
	}
	for _, p := range r.Problems {
		lines = append(lines, Line{"problem", p})
	}
	return lines
}

// present returns the words that are not empty.
func present(words ...string) []string {
	var list []string
	for _, word := range words {
		if word != "" {
			list = append(list, word)
		}
	}
	return list
}

func (b *Boot) text() string {
	words := []string{b.Mode}
	if b.SecureBoot != "" {
		words = append(words, "Secure Boot "+b.SecureBoot)
	}
	if b.Mode == modeUEFI {
		words = append(words, fmt.Sprintf("%d boot entries", b.Entries))
	}
	if len(b.Consoles) > 0 {
		words = append(words, "consoles "+strings.Join(b.Consoles, " "))
	}
	return strings.Join(words, ", ")
}

func (c *Clock) text() string {
	text := c.System.Format(time.RFC3339)
	if c.Hardware == nil {
		return text + ", no hardware clock"
	}
	return fmt.Sprintf("%s, hardware clock differs by %v", text, c.difference())
}

// difference returns the difference between the two clocks, rounded to seconds.
func (c *Clock) difference() time.Duration { return c.System.Sub(*c.Hardware).Abs().Round(time.Second) }

func (b *BMC) text() string {
	switch {
	case !b.Driver:
		return "no IPMI device"
	case !b.HasAddress:
		return "IPMI device, no address"
	}
	return "IPMI device, has an address"
}

func (l *Link) text() string {
	words := []string{l.Name + " (" + l.MACPrefix + ")"}
	if l.Driver != "" {
		words = append(words, "driver "+l.Driver)
	}
	if !l.Carrier {
		return strings.Join(append(words, "no carrier"), ", ")
	}
	if l.SpeedMbps > 0 {
		words = append(words, fmt.Sprintf("%d Mbit/s", l.SpeedMbps))
	}
	words = append(words, map[bool]string{true: "has an address", false: "no address"}[l.HasAddress])
	return strings.Join(append(words, map[bool]string{true: "LLDP", false: "no LLDP"}[l.LLDP]), ", ")
}

func (d *Disk) text() string {
	words := []string{
		strings.Join(present(d.Path, d.Model, d.Revision), " "),
		fmt.Sprintf("%d bytes", d.Size), fmt.Sprintf("sectors of %d/%d", d.LogicalSector, d.PhysicalSector),
	}
	words = append(words, present(d.Transport)...)
	switch {
	case d.Error != "":
		return strings.Join(append(words, "erase fails: "+d.Error), ", ")
	case d.Untouched != "":
		return strings.Join(append(words, "not erased: "+d.Untouched), ", ")
	}
	return strings.Join(append(words, "erased by "+d.Erase), ", ")
}
