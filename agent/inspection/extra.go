package inspection

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"

	"ironroot/agent/inventory"
	"ironroot/agent/inventory/smbios"
)

// fact is an item of the extra data. Its value is a text or, where hardware-detect has a number, an int, int64 or
// float64.
type fact struct {
	kind, item, property string
	value                any
}

// MarshalJSON implements [json.Marshaler]: hardware-detect prints a fact as a list.
func (f fact) MarshalJSON() ([]byte, error) {
	return json.Marshal([]any{f.kind, f.item, f.property, f.value})
}

// collectExtraHardware adds a list of facts about the machine, under the names of hardware-detect
// (https://github.com/redhat-cip/hardware) and with its types. It omits the kernel's command line, which can contain
// secrets. ipa-inspection-benchmarks adds benchmarks. If one fails, all other facts are added and an error is returned.
func collectExtraHardware(ctx context.Context, i *inspection) error {
	inv := i.found
	if inv == nil {
		var err error
		if inv, err = i.Inventory.Collect(ctx); err != nil {
			return err
		}
	}
	facts := &factList{list: []fact{}}
	i.diskFacts(facts, inv.Disks)
	facts.system(inv, i)
	facts.memory(inv.Memory, i.smbios())
	i.networkFacts(facts, inv.Interfaces)
	i.processorFacts(facts, inv.CPU)
	facts.bmc(inv)
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
	if table == nil {
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
		f.addValue(kind, item, property, value)
	}
}

// addValue adds a fact with a value of any type.
func (f *factList) addValue(kind, item, property string, value any) {
	f.list = append(f.list, fact{kind, item, property, value})
}

func (f *factList) system(inv *inventory.Inventory, i *inspection) {
	dmi := i.Inventory.DMI
	v := inv.SystemVendor
	for _, p := range [][4]string{
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

// bmc adds the addresses of the BMC, under the names of ipmitool. A BMC without an address reports 0.0.0.0, which is
// omitted.
func (f *factList) bmc(inv *inventory.Inventory) {
	if address := known(inv.BMCAddress); address != "0.0.0.0" {
		f.add("ipmi", "lan", "ip-address", address)
	}
	f.add("ipmi", "lan", "mac-address", known(inv.BMCMAC))
}

// known returns the text, or "" for nil.
func known(text *string) string {
	if text == nil {
		return ""
	}
	return *text
}
