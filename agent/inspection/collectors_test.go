package inspection

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"ironroot/agent/config"
	"ironroot/agent/inventory"
	"ironroot/agent/inventory/machinetest"
	"ironroot/internal/pciids"
	"ironroot/internal/test/testenv"
	"ironroot/storage/block"
	"ironroot/storage/sysfs"
)

// collect runs one collector on a machine and returns the keys that it added.
func collect(t *testing.T, sys sysfs.Root, collector string, into any) error {
	t.Helper()
	m := newMachine(t, &config.Config{InspectionCollectors: collector})
	m.System = sys
	m.Inventory = inventory.New(inventory.Options{System: sys})
	_, err := Run(t.Context(), m.Options)
	at := slices.IndexFunc(Collectors(), func(c Collector) bool { return c.Name == collector })
	if at < 0 {
		t.Fatalf("no collector is called %s", collector)
	}
	if raw, ok := m.posted[Collectors()[at].Keys[0]]; ok {
		if err := json.Unmarshal(raw, into); err != nil {
			t.Fatal(err)
		}
	}
	if failed := string(m.posted["error"]) != "null"; failed != (err != nil) {
		t.Errorf("posted the error %s, returned %v", m.posted["error"], err)
	}
	return err
}

// Each collector adds exactly the keys that it lists.
func TestCollectorKeys(t *testing.T) {
	for _, c := range Collectors() {
		m := newMachine(t,
			&config.Config{InspectionCollectors: c.Name, Params: config.Params{"BOOTIF": "01-52-54-00-1a-15-d6"}})
		m.System = machinetest.System(t, "dell-r640")
		write(t, m.System, "proc/uptime", "1.0 1.0\n")
		m.Inventory = inventory.New(inventory.Options{System: m.System})
		m.disk = &block.Device{Name: "sda", Path: "/dev/sda", Size: 8 << 30}
		m.Neighbours = hearing(func() {})
		if _, err := Run(t.Context(), m.Options); err != nil {
			t.Errorf("%s: %v", c.Name, err)
		}
		want := slices.Sorted(slices.Values(append(c.Keys, "error")))
		if diff := cmp.Diff(want, slices.Sorted(maps.Keys(m.posted))); diff != "" {
			t.Errorf("%s: keys differ (-listed +posted):\n%s", c.Name, diff)
		}
	}
}

// Collectors lists every function that is one.
func TestCollectorsAreListed(t *testing.T) {
	var functions []any
	for _, c := range Collectors() {
		functions = append(functions, c.run)
	}
	testenv.CheckListed(t, ".", "func(context.Context, *inspection) error",
		"Collectors in agent/inspection/inspection.go", functions...)
}

func expected(t *testing.T, name string) any {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	var want any
	if err := json.Unmarshal(data, &want); err != nil {
		t.Fatal(err)
	}
	return want
}

// The golden files are the output of ironic-python-agent's dmi_inspector for these tables with dmidecode 3.4.
func TestDMI(t *testing.T) {
	for _, name := range machinetest.Names(t) {
		t.Run(name, func(t *testing.T) {
			var got any
			if err := collect(t, machinetest.System(t, name), "dmi-decode", &got); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(expected(t, name+".dmi.json"), got); diff != "" {
				t.Errorf("dmi differs (-want +got):\n%s", diff)
			}
		})
	}
}

// A value of spaces is an empty list, because dmidecode prints nothing and ironic-python-agent reports a list.
func TestDMIEmptyText(t *testing.T) {
	var got dmi
	sys := machinetest.Unpack(t, "smbios 0 0x0 0x18 04:s=_ 08:s=1.2\nsmbios 16 0x1 0x17 0d:w=1\n")
	if err := collect(t, sys, "dmi-decode", &got); err != nil {
		t.Fatal(err)
	}
	if list, ok := got.BIOS["Vendor"].([]any); !ok || len(list) > 0 {
		t.Errorf("vendor: got %#v, want an empty list", got.BIOS["Vendor"])
	}
	if got := got.BIOS["Release Date"]; got != "1.2" {
		t.Errorf("release date: got %#v, want 1.2", got)
	}
}

func TestDMIWithoutTables(t *testing.T) {
	var got any
	err := collect(t, machinetest.Unpack(t, "sys/class/net/"), "dmi-decode", &got)
	if err == nil || !strings.Contains(err.Error(), "smbios_entry_point") || got != nil {
		t.Errorf("got %v and %v, want an error that names the file", got, err)
	}
	err = collect(t, machinetest.Unpack(t, "smbios 16 0x1 0x08"), "dmi-decode", &got)
	if err == nil || !strings.Contains(err.Error(), "0x0001") || got != nil {
		t.Errorf("got %v and %v, want an error that names the structure", got, err)
	}
}

// dmidecode prints the structures before a broken one, and ends with status 0.
func TestDMIBeforeFault(t *testing.T) {
	sys := machinetest.Unpack(t, "smbios 0 0x0 0x18 04:s=Maker\nsmbios 16 0x1 0x17 0d:w=1\n")
	file := sys.Sys("firmware/dmi/tables/DMI")
	table, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	table = append(bytes.TrimSuffix(table, []byte{127, 4, 0xff, 0xfe, 0, 0}), 17, 3, 2, 0, 0, 0)
	if err := os.WriteFile(file, table, 0o644); err != nil {
		t.Fatal(err)
	}
	var got dmi
	if err := collect(t, sys, "dmi-decode", &got); err != nil {
		t.Fatal(err)
	}
	if got.BIOS["Vendor"] != "Maker" || got.Memory["Number Of Devices"] != 1.0 {
		t.Errorf("got %+v, want the BIOS and the memory array", got)
	}
}

// The golden files are the output of ironic-python-agent's numa_inspector for these trees, sorted by number.
func TestNUMA(t *testing.T) {
	for _, name := range machinetest.Names(t) {
		t.Run(name, func(t *testing.T) {
			var got any
			if err := collect(t, machinetest.System(t, name), "numa-topology", &got); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(expected(t, name+".numa.json"), got); diff != "" {
				t.Errorf("topology differs (-want +got):\n%s", diff)
			}
		})
	}
}

// The topology is complete or absent. Its absence does not fail the inspection.
func TestNUMANotReadable(t *testing.T) {
	const node = "sys/devices/system/node/node0/"
	for name, path := range map[string]string{
		"memory of a node": node + "meminfo",
		"core of a thread": node + "cpu1/topology/core_id",
		"node of a NIC":    "sys/class/net/enp0s2/device/numa_node",
	} {
		t.Run(name, func(t *testing.T) {
			sys := machinetest.Unpack(t,
				node+"meminfo: Node 0 MemTotal: 1024 kB\\n\n"+node+"cpu1/topology/core_id: 0\n"+
					"sys/class/net/enp0s2/device/numa_node: 0\n")
			var got any
			if err := collect(t, sys, "numa-topology", &got); err != nil || got == nil {
				t.Fatalf("whole: got %v and %v", got, err)
			}
			got = nil
			machinetest.Write(t, sys, path, "colour\n")
			if err := collect(t, sys, "numa-topology", &got); err != nil || got != nil {
				t.Errorf("broken: got %v and %v, want neither", got, err)
			}
		})
	}
	for name, tree := range map[string]string{
		"without nodes":                "sys/class/net/",
		"node without meminfo":         "sys/class/net/\n" + node + "cpu0/topology/core_id: 0\n",
		"without a list of interfaces": node + "meminfo: Node 0 MemTotal: 1024 kB\\n\n",
	} {
		var got any
		if err := collect(t, machinetest.Unpack(t, tree), "numa-topology", &got); err != nil || got != nil {
			t.Errorf("%s: got %v and %v, want neither", name, got, err)
		}
	}
}

// A directory of sysfs that cannot be listed is an error that names it. One that does not exist means that the machine
// has no such bus.
func TestListsNotReadable(t *testing.T) {
	for collector, dir := range map[string]string{
		"pci-devices": "sys/bus/pci/devices", "usb-devices": "sys/bus/usb/devices",
	} {
		var got []any
		if err := collect(t, machinetest.Unpack(t, "sys/class/net/"), collector, &got); err != nil || got == nil ||
			len(got) > 0 {
			t.Errorf("%s, no bus: got %v and %v, want an empty list", collector, got, err)
		}
		got = nil
		err := collect(t, machinetest.Unpack(t, dir+": no directory"), collector, &got)
		if err == nil || !strings.Contains(err.Error(), dir) || got != nil {
			t.Errorf("%s: got %v and %v, want an error that names %s", collector, got, err, dir)
		}
	}
}

func TestNodeMemory(t *testing.T) {
	for _, tt := range []struct {
		text string
		want int64 // -1: an error
	}{
		{"Node 0 MemTotal:       1560000 kB\n", 1560000},
		{"Node 0 SwapCached: 1 kB\nno colon\nNode 0 MemTotal: 7 kB\nNode 0 MemFree: 2 kB\n", 7},
		{"Node 0 MemFree: 7 kB\n", -1},
		{"Node 0 MemTotal: 7 MB\n", -1},
		{"Node 0 MemTotal: -7 kB\n", -1},
		{"Node 0 MemTotal: many kB\n", -1},
		{"", -1},
	} {
		got, err := parseNodeMemory([]byte(tt.text))
		if (err != nil) != (tt.want < 0) || err == nil && got != tt.want {
			t.Errorf("%q: got %d and %v, want %d", tt.text, got, err, tt.want)
		}
	}
}

func FuzzNodeMemory(f *testing.F) {
	f.Add([]byte("Node 0 MemTotal:       1560000 kB\nNode 0 MemFree: 1 kB\n"))
	f.Add([]byte("MemTotal: 1 MB"))
	f.Add([]byte(":MemTotal:-1 kB"))
	f.Fuzz(func(t *testing.T, data []byte) {
		if size, err := parseNodeMemory(data); err == nil && size < 0 {
			t.Errorf("got %d", size)
		}
	})
}

// Hubs, input, storage and network devices are omitted.
func TestUSBDevices(t *testing.T) {
	for name, want := range map[string][]usbDevice{
		"supermicro-1029p": {{Product: "Token JC", Vendor: "SafeNet", Handle: "USB:1:c"}},
		"dell-r640":        {},
		"qemu-q35":         {}, // no such bus
	} {
		var got []usbDevice
		if err := collect(t, machinetest.System(t, name), "usb-devices", &got); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s: devices differ (-want +got):\n%s", name, diff)
		}
	}
}

func TestPCIDevicesOfAServer(t *testing.T) {
	text := func(s string) *string { return &s }
	var got []pciDevice
	if err := collect(t, machinetest.System(t, "dell-r640"), "pci-devices", &got); err != nil {
		t.Fatal(err)
	}
	want := pciDevice{
		VendorID: "1b4b", ProductID: "9230", Class: "010601", Revision: text("11"), Bus: "0000:d8:00.0",
		NUMANode: text("1"),
	}
	if diff := cmp.Diff(want, got[len(got)-1]); len(got) != 12 || diff != "" {
		t.Errorf("got %d devices, the last differs (-want +got):\n%s", len(got), diff)
	}
}

func TestExtraHardware(t *testing.T) {
	var got [][]any
	if err := collect(t, machinetest.System(t, "hpe-dl360-gen10"), "extra-hardware", &got); err != nil {
		t.Fatal(err)
	}
	lines := map[string]bool{}
	for _, item := range got {
		if len(item) != 4 {
			t.Fatalf("got an item of %d values, want 4: %q", len(item), item)
		}
		lines[fmt.Sprintf("%v|%v|%v|%#v", item...)] = true // texts are quoted, numbers are not
	}
	for _, want := range []string{
		`disk|logical|count|"1"`, `disk|sda|size|"256"`, `disk|sda|model|"TS256GSSD230S"`, `disk|sda|vendor|"ATA"`,
		`disk|sda|rotational|"0"`, `disk|sda|physical_block_size|"512"`,
		`system|product|name|"ProLiant DL360 Gen10 (867960-B21)"`, `system|product|vendor|"HPE"`,
		`system|product|serial|"ANON-148"`, `system|motherboard|name|"ProLiant DL360 Gen10"`,
		`system|kernel|version|"6.12.41"`, `system|kernel|arch|"x86_64"`, `firmware|bios|version|"U32"`,
		`firmware|bios|date|"01/23/2021"`, `memory|total|size|"412316860416"`, `memory|banks|count|"24"`,
		`memory|bank:0|vendor|"UNKNOWN"`, `memory|bank:0|serial|"ANON-38"`, `memory|bank:0|product|"NOT AVAILABLE"`,
		`memory|bank:1|slot|"PROC 1 DIMM 2"`, `memory|bank:7|size|"34359738368"`, `memory|bank:7|slot|"PROC 1 DIMM 8"`,
		`network|eno1|serial|"b4:7a:f1:00:10:20"`, `network|eno1|businfo|"pci@0000:02:00.0"`, `network|eno1|link|"yes"`,
		`network|eno4|link|"no"`, `network|eno1|driver|"tg3"`, `disk|sda|wwn-id|"wwn-0x57c354800000a1b2"`,
		`network|eno1|vendor|"0x14e4"`,
		`network|eno1|product|"0x1657"`, `cpu|physical|number|2`,
		`cpu|logical|number|12`,
		`cpu|physical_0|vendor|"GenuineIntel"`, `cpu|physical_1|product|"Intel(R) Xeon(R) Bronze 3104 CPU @ 1.70GHz"`,
		`cpu|physical_0|cores|6`, `cpu|physical_0|threads|6`, `cpu|physical_0|threads_per_core|1`,
		`cpu|physical_0|max_Mhz|1700`, `cpu|physical_0|family|6`, `numa|nodes|count|2`, `numa|node_0|cpu_count|6`,
	} {
		if !lines[want] {
			t.Errorf("got no item %q", want)
		}
	}
	for line := range lines {
		if strings.HasPrefix(line, "memory|bank:1|") && line != `memory|bank:1|slot|"PROC 1 DIMM 2"` {
			t.Errorf("an empty slot has the item %q", line)
		}
	}
}

// The facts contain what machines of package machinetest lack: an address, and the speed of a link.
func TestExtraHardwareNetwork(t *testing.T) {
	address, vendor, product, bus, unnamed := "192.0.2.1", "0x8086", "0x1572", "0000:02:00.0", "0xffff"
	i := &inspection{Options: Options{System: machinetest.Unpack(t, "sys/class/net/eth0/speed: 10000\n\n"+
		"sys/class/net/eth0/duplex: full\n\nsys/class/net/eth1/speed: -1\n\nsys/class/net/eth1/duplex: unknown\n\n"+
		"sys/devices/virtio2/\nsys/class/net/eth1/device -> ../../../devices/virtio2\n")}}
	write(t, i.System, pciids.File, "8086  Intel Corporation\n\t1572  Ethernet Controller X710 for 10GbE SFP+\n")
	i.Inventory = inventory.New(inventory.Options{System: i.System})
	facts := factList{}
	i.networkFacts(&facts, []inventory.Interface{
		{
			Name: "eth0", MACAddress: "52:54:00:1a:15:d6", IPv4Address: &address, PCIAddress: &bus,
			Vendor: &vendor, Product: &product,
		},
		{Name: "eth1", MACAddress: "52:54:00:1a:15:d7", HasCarrier: true, Vendor: &vendor},
		{Name: "eth2", MACAddress: "52:54:00:1a:15:d8", PCIAddress: &bus, Vendor: &vendor, Product: &unnamed},
	})
	want := []fact{
		{"network", "eth0", "businfo", "pci@0000:02:00.0"},
		{"network", "eth0", "vendor", "Intel Corporation"},
		{"network", "eth0", "product", "Ethernet Controller X710 for 10GbE SFP+"},
		{"network", "eth0", "size", "10000000000"},
		{"network", "eth0", "ipv4", address},
		{"network", "eth0", "link", "no"},
		{"network", "eth0", "duplex", "full"},
		{"network", "eth0", "speed", "10Gbit/s"},
		{"network", "eth0", "serial", "52:54:00:1a:15:d6"},
		{"network", "eth1", "businfo", "virtio@2"},
		{"network", "eth1", "link", "yes"},
		{"network", "eth1", "serial", "52:54:00:1a:15:d7"},
		{"network", "eth2", "businfo", "pci@0000:02:00.0"},
		{"network", "eth2", "vendor", "Intel Corporation"},
		{"network", "eth2", "product", unnamed},
		{"network", "eth2", "link", "no"},
		{"network", "eth2", "serial", "52:54:00:1a:15:d8"},
	}
	if diff := cmp.Diff(want, facts.list, cmp.AllowUnexported(fact{})); diff != "" {
		t.Errorf("facts differ (-want +got):\n%s", diff)
	}
}

// lscpu writes sizes of caches in this form.
func TestCacheSize(t *testing.T) {
	for _, tt := range []struct {
		bytes     int64
		instances int
		want      string
	}{
		{32 << 10, 1, "32 KiB (1 instance)"},
		{64 << 10, 2, "64 KiB (2 instances)"},
		{1 << 20, 2, "1 MiB (2 instances)"},
		{1280 << 10, 1, "1.3 MiB (1 instance)"},
		{1536 << 10, 1, "1.5 MiB (1 instance)"},
		{512 << 20, 16, "512 MiB (16 instances)"},
	} {
		if got := cacheSize(tt.bytes, tt.instances); got != tt.want {
			t.Errorf("%d bytes: got %q, want %q", tt.bytes, got, tt.want)
		}
	}
	for mask, want := range map[string]string{"00000000,0000000f": "f", "0": "0", "1,00000000": "100000000"} {
		if got := shortMask(mask); got != want {
			t.Errorf("mask %s: got %s, want %s", mask, got, want)
		}
	}
}
