package inspection

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"ironroot/agent/config"
	"ironroot/agent/inventory"
	"ironroot/agent/inventory/machinetest"
	"ironroot/storage/block"
)

// collect runs one collector on a machine and returns what it added.
func collect(t *testing.T, sys block.System, collector string, into any) error {
	t.Helper()
	m := newMachine(t, &config.Config{InspectionCollectors: collector})
	m.System = sys
	m.Inventory = inventory.New(inventory.Options{System: sys})
	_, err := Run(t.Context(), m.Options)
	key := map[string]string{
		"dmi-decode": "dmi", "numa-topology": "numa_topology", "usb-devices": "usb_devices", "extra-hardware": "data",
		"pci-devices": "pci_devices",
	}[collector]
	if raw, ok := m.posted[key]; ok {
		if err := json.Unmarshal(raw, into); err != nil {
			t.Fatal(err)
		}
	}
	if failed := string(m.posted["error"]) != "null"; failed != (err != nil) {
		t.Errorf("posted the error %s, returned %v", m.posted["error"], err)
	}
	return err
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

// The golden files are what ironic-python-agent's dmi_inspector makes of the output of dmidecode 3.4 for these tables.
func TestDMI(t *testing.T) {
	for _, name := range machinetest.Names() {
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

// The golden files are what ironic-python-agent's numa_inspector makes of these trees, in the order of the numbers.
func TestNUMA(t *testing.T) {
	for _, name := range machinetest.Names() {
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

// The topology is whole or absent, and its absence is no error that Ironic would fail the inspection for.
func TestNUMANotReadable(t *testing.T) {
	const node = "sys/devices/system/node/node0/"
	for name, path := range map[string]string{
		"memory of a node": node + "meminfo",
		"core of a thread": node + "cpu1/topology/core_id",
		"node of a NIC":    "sys/class/net/enp0s2/device/numa_node",
	} {
		t.Run(name, func(t *testing.T) {
			sys := machinetest.Unpack(t, node+"meminfo: Node 0 MemTotal: 1024 kB\\n\n"+node+"cpu1/topology/core_id: 0\n"+
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
	var got any
	if err := collect(t, machinetest.Unpack(t, "sys/class/net/"), "numa-topology", &got); err != nil || got != nil {
		t.Errorf("without nodes: got %v and %v, want neither", got, err)
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

// Hubs, input, storage and network devices are left out.
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
	want := pciDevice{VendorID: "1b4b", ProductID: "9230", Class: "010601", Revision: text("11"), Bus: "0000:d8:00.0", NUMANode: text("1")}
	if diff := cmp.Diff(want, got[len(got)-1]); len(got) != 12 || diff != "" {
		t.Errorf("got %d devices, the last differs (-want +got):\n%s", len(got), diff)
	}
}

func TestExtraHardware(t *testing.T) {
	var got [][]string
	if err := collect(t, machinetest.System(t, "hpe-dl360-gen10"), "extra-hardware", &got); err != nil {
		t.Fatal(err)
	}
	lines := map[string]bool{}
	for _, item := range got {
		if len(item) != 4 {
			t.Fatalf("got an item of %d texts, want 4: %q", len(item), item)
		}
		lines[strings.Join(item, "|")] = true
	}
	for _, want := range []string{
		"disk|logical|count|1", "disk|sda|size|256", "disk|sda|model|TS256GSSD230S",
		"system|product|name|ProLiant DL360 Gen10 (867960-B21)", "system|product|vendor|HPE", "system|product|serial|ANON-148",
		"system|motherboard|name|ProLiant DL360 Gen10", "system|kernel|version|6.12.41", "system|kernel|arch|x86_64",
		"firmware|bios|version|U32", "firmware|bios|date|01/23/2021",
		"memory|total|size|412316860416", "memory|bank:7|size|34359738368", "memory|bank:7|slot|PROC 1 DIMM 8",
		"network|eno1|serial|b4:7a:f1:00:10:20", "network|eno1|businfo|pci@0000:02:00.0", "network|eno1|link|yes", "network|eno4|link|no",
		"cpu|physical|number|2", "cpu|logical|number|12", "cpu|physical_0|vendor|Intel(R) Corporation", "numa|nodes|count|2",
	} {
		if !lines[want] {
			t.Errorf("got no item %q", want)
		}
	}
	if lines["memory|bank:0|size|0"] {
		t.Error("an empty slot has a size")
	}
}

// A request for benchmarks is an error in the posted data, which also contain all facts.
//
// Parity: H8
func TestExtraHardwareBenchmarks(t *testing.T) {
	m := newMachine(t, &config.Config{InspectionCollectors: "extra-hardware", Params: config.Params{"ipa-inspection-benchmarks": "cpu,mem"}})
	if _, err := Run(t.Context(), m.Options); err == nil {
		t.Error("got success, want a failed inspection")
	}
	const want = `collector extra-hardware failed: ipa-inspection-benchmarks=cpu,mem: benchmarks are not supported`
	if got := string(m.posted["error"]); !strings.Contains(got, want) {
		t.Errorf("got the error %s, want %q in it", got, want)
	}
	if got := string(m.posted["data"]); !strings.Contains(got, `["disk","logical","count",`) {
		t.Errorf("got the data %q, want facts", got)
	}
}
