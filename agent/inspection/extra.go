package inspection

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"ironroot/agent/inventory"
	"ironroot/agent/inventory/smbios"
)

// fact is an item of the extra data: kind, item, property and value.
type fact [4]string

// collectExtraHardware adds a list of facts about the machine, under the names of hardware-detect. It omits the
// kernel's command line, which can contain secrets. ipa-inspection-benchmarks adds benchmarks. If one fails, all other
// facts are added and an error is returned.
func collectExtraHardware(ctx context.Context, i *inspection) error {
	inv := i.found
	if inv == nil {
		var err error
		if inv, err = i.Inventory.Collect(ctx); err != nil {
			return err
		}
	}
	facts := &factList{list: []fact{}}
	facts.disks(inv.Disks)
	facts.system(inv, i)
	table := i.smbios()
	facts.memory(inv.Memory, table)
	facts.network(inv.Interfaces)
	facts.cpu(inv.CPU, table)
	if nodes, err := numbered(i.System.Sys("devices/system/node"), "node"); err == nil {
		facts.add("numa", "nodes", "count", strconv.Itoa(len(nodes)))
	}
	var err error
	if list := i.Config.Get().Params["ipa-inspection-benchmarks"]; list != "" {
		err = i.benchmarks(ctx, facts, inv, list)
	}
	i.set("data", facts.list)
	return err
}

// smbios returns the tables, or empty ones.
func (i *inspection) smbios() *smbios.Table {
	table, err := i.Inventory.SMBIOS()
	if err != nil {
		i.Log.Warn("extra data without SMBIOS tables", "err", err)
		return &smbios.Table{}
	}
	return table
}

// text returns the trimmed content of a file, "" if it cannot be read.
func (i *inspection) text(file string) string {
	data, err := i.Inventory.Read(file)
	if err != nil {
		return ""
	}
	return strings.TrimSpace(strings.Trim(string(data), "\x00"))
}

type factList struct{ list []fact }

// add adds a fact unless its value is empty.
func (f *factList) add(kind, item, property, value string) {
	if value != "" {
		f.list = append(f.list, fact{kind, item, property, value})
	}
}

func (f *factList) disks(disks []inventory.Disk) {
	f.add("disk", "logical", "count", strconv.Itoa(len(disks)))
	for _, d := range disks {
		name := strings.TrimPrefix(d.Name, "/dev/")
		add := func(property, value string) { f.add("disk", name, property, value) }
		add("size", strconv.FormatInt(d.Size/1e9, 10)) // GB
		add("vendor", known(d.Vendor))
		add("model", known(d.Model))
		add("wwn-id", known(d.WWN))
		add("serial", known(d.Serial))
		add("rotational", map[bool]string{true: "1", false: "0"}[d.Rotational])
		add("physical_block_size", strconv.FormatInt(d.PhysicalSectors, 10))
	}
}

func (f *factList) system(inv *inventory.Inventory, i *inspection) {
	dmi := func(name string) string { return i.text(i.System.Sys("class/dmi/id", name)) }
	v := inv.SystemVendor
	for _, p := range []fact{
		{"system", "product", "name", v.ProductName},
		{"system", "product", "vendor", v.Manufacturer},
		{"system", "product", "serial", v.SerialNumber},
		{"system", "product", "version", dmi("product_version")},
		{"system", "product", "uuid", dmi("product_uuid")},
		{"system", "motherboard", "name", dmi("board_name")},
		{"system", "motherboard", "vendor", dmi("board_vendor")},
		{"system", "motherboard", "version", dmi("board_version")},
		{"system", "motherboard", "serial", dmi("board_serial")},
		{"firmware", "bios", "version", v.Firmware.Version},
		{"firmware", "bios", "date", v.Firmware.BuildDate},
		{"firmware", "bios", "vendor", v.Firmware.Vendor},
		{"system", "kernel", "version", i.text(i.System.Proc("sys/kernel/osrelease"))},
		{"system", "kernel", "arch", inv.CPU.Architecture},
	} {
		f.add(p[0], p[1], p[2], p[3])
	}
}

func (f *factList) memory(m inventory.Memory, table *smbios.Table) {
	if m.PhysicalMB != nil {
		f.add("memory", "total", "size", strconv.FormatInt(*m.PhysicalMB<<20, 10))
	}
	devices := table.All(smbios.TypeMemoryDevice)
	f.add("memory", "banks", "count", strconv.Itoa(len(devices)))
	for n, d := range devices {
		name := fmt.Sprintf("bank:%d", n)
		f.add("memory", name, "slot", d.Text(0x10))
		size := d.MemorySize()
		if size == 0 {
			continue
		}
		f.add("memory", name, "size", strconv.FormatInt(size, 10))
		f.add("memory", name, "vendor", d.Text(0x17))
		f.add("memory", name, "serial", d.Text(0x18))
		f.add("memory", name, "product", d.Text(0x1a))
	}
}

func (f *factList) network(interfaces []inventory.Interface) {
	for _, n := range interfaces {
		f.add("network", n.Name, "serial", n.MACAddress)
		f.add("network", n.Name, "businfo", businfo(n.PCIAddress))
		f.add("network", n.Name, "vendor", known(n.Vendor))
		f.add("network", n.Name, "product", known(n.Product))
		f.add("network", n.Name, "driver", known(n.Driver))
		f.add("network", n.Name, "link", map[bool]string{true: "yes", false: "no"}[n.HasCarrier])
		f.add("network", n.Name, "ipv4", known(n.IPv4Address))
		if n.SpeedMbps != nil {
			f.add("network", n.Name, "capacity", strconv.FormatInt(int64(*n.SpeedMbps)*1e6, 10)) // bit/s
		}
	}
}

func (f *factList) cpu(c inventory.CPU, table *smbios.Table) {
	f.add("cpu", "physical", "number", strconv.Itoa(c.SocketCount))
	f.add("cpu", "logical", "number", strconv.Itoa(c.Count))
	f.add("cpu", "physical", "product", c.ModelName)
	f.add("cpu", "physical", "frequency", c.Frequency)
	for n, s := range table.All(smbios.TypeProcessor) {
		name := fmt.Sprintf("physical_%d", n)
		f.add("cpu", name, "vendor", s.Text(0x07))
		f.add("cpu", name, "version", s.Text(0x10))
		f.add("cpu", name, "slot", s.Text(0x04))
	}
}

func known(text *string) string {
	if text == nil {
		return ""
	}
	return *text
}

// businfo returns lshw's name of a PCI address, "" for devices of other buses.
func businfo(address *string) string {
	if address == nil || strings.Count(*address, ":") != 2 {
		return ""
	}
	return "pci@" + *address
}
