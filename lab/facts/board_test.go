package facts

import (
	"encoding/json"
	"strconv"
	"strings"
	"testing"

	"ironroot/agent/inventory"
)

// checkCPU compares the processors with lscpu. If frequency scaling is not available, recent versions of lscpu report
// no frequency: on x86_64 the inventory then has the frequency of /proc/cpuinfo, which the kernel measures at each
// boot, on aarch64 none.
func checkCPU(t *testing.T, f found) {
	values := f.lscpu(t)
	count, _ := strconv.Atoi(values["CPU(s)"])
	sockets, _ := strconv.Atoi(values["Socket(s)"])
	frequency := values["CPU max MHz"]
	if frequency == "" {
		frequency = values["CPU MHz"]
	}
	if measured := f.ours(t).Inventory.CPU.Frequency; frequency == "" && values["Architecture"] == "x86_64" {
		if mhz, err := strconv.ParseFloat(measured, 64); err != nil || mhz <= 0 {
			t.Errorf("got frequency %q, want a number of MHz", measured)
		}
		frequency = measured
	}
	same(t, "cpu", inventory.CPU{
		ModelName: values["Model name"], Frequency: frequency, Count: count, SocketCount: sockets,
		Architecture: values["Architecture"], Flags: strings.Fields(values["Flags"]),
	}, f.ours(t).Inventory.CPU)
}

// lscpu returns the fields of lscpu by name.
func (f found) lscpu(t *testing.T) map[string]string {
	t.Helper()
	type field struct {
		Field, Data string
		Children    []json.RawMessage
	}
	values := map[string]string{}
	var walk func(raw json.RawMessage)
	walk = func(raw json.RawMessage) {
		var x field
		if err := json.Unmarshal(raw, &x); err != nil {
			t.Fatalf("lscpu: %v", err)
		}
		values[strings.TrimSuffix(x.Field, ":")] = x.Data
		for _, child := range x.Children {
			walk(child)
		}
	}
	var root struct{ LSCPU []json.RawMessage }
	f.decode(t, "lscpu.json", &root)
	for _, raw := range root.LSCPU {
		walk(raw)
	}
	return values
}

// checkMemory compares the memory with the kernel and lshw.
func checkMemory(t *testing.T, f found, wantMiB int64) {
	m := f.ours(t).Inventory.Memory
	_, rest, _ := strings.Cut(string(f["meminfo.txt"]), "MemTotal:")
	kib, err := strconv.ParseInt(strings.Fields(rest)[0], 10, 64)
	if err != nil || m.Total != kib<<10 {
		t.Errorf("got %d bytes of memory, want %d (%v)", m.Total, kib<<10, err)
	}
	for _, n := range f.lshw(t).all() {
		if n.ID == "memory" && n.Class == "memory" && n.Size>>20 != wantMiB {
			t.Errorf("lshw has %d MiB of memory, want %d", n.Size>>20, wantMiB)
		}
	}
	if m.PhysicalMB == nil || *m.PhysicalMB != wantMiB {
		t.Errorf("got %v MiB of physical memory, want %d", m.PhysicalMB, wantMiB)
	}
}

// checkVendor compares the vendor and firmware with lshw and dmidecode.
func checkVendor(t *testing.T, f found) {
	root, bios := f.lshw(t), f.dmidecode().first("0")
	same(t, "system_vendor", inventory.SystemVendor{
		ProductName: root.Product, SerialNumber: root.Serial, Manufacturer: root.Vendor,
		Firmware: inventory.Firmware{
			Vendor: bios["Vendor"].(string), Version: bios["Version"].(string),
			BuildDate: bios["Release Date"].(string),
		},
	}, f.ours(t).Inventory.SystemVendor)
}

// structure is an SMBIOS structure as dmidecode prints it: strings and lists of strings.
type structure map[string]any

// structures are keyed by type.
type structures map[string][]structure

func (s structures) first(kind string) structure {
	if len(s[kind]) == 0 {
		return structure{"Vendor": "", "Version": "", "Release Date": ""}
	}
	return s[kind][0]
}

// dmidecode parses dmidecode's output.
func (f found) dmidecode() structures {
	all := structures{}
	for paragraph := range strings.SplitSeq(string(f["dmidecode.txt"]), "\n\n") {
		lines := strings.Split(strings.TrimSpace(paragraph), "\n")
		_, rest, ok := strings.Cut(lines[0], "DMI type ")
		if !ok {
			continue
		}
		kind, _, _ := strings.Cut(rest, ",")
		s, last := structure{"Handle": lines[0]}, ""
		for _, line := range lines[1:] {
			if item, ok := strings.CutPrefix(line, "\t\t"); ok {
				list, _ := s[last].([]any)
				s[last] = append(list, item)
			} else if key, value, ok := strings.Cut(line, ":"); ok {
				last = strings.TrimSpace(key)
				s[last] = strings.TrimSpace(value)
			}
		}
		all[kind] = append(all[kind], s)
	}
	return all
}

// checkDMI compares the collector dmi-decode with dmidecode.
func checkDMI(t *testing.T, f found) {
	all := f.dmidecode()
	memory, devices := structure{}, []any{}
	for key, value := range all.first("16") {
		memory[key] = value
	}
	delete(memory, "Handle")
	slots, _ := strconv.Atoi(memory["Number Of Devices"].(string))
	memory["Number Of Devices"] = slots
	for _, d := range all["17"] {
		devices = append(devices, d)
	}
	memory["devices"] = devices
	if len(devices) == 0 || len(all["4"]) == 0 {
		t.Errorf("got %d memory devices and %d processors from dmidecode, want some", len(devices), len(all["4"]))
	}
	theirs, err := json.Marshal(map[string]any{"bios": all.first("0"), "cpu": all["4"], "memory": memory})
	if err != nil {
		t.Fatal(err)
	}
	var want map[string]any
	if err := json.Unmarshal(theirs, &want); err != nil {
		t.Fatal(err)
	}
	same(t, "dmi", want, f.ours(t).DMI)
}
