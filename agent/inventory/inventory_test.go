package inventory

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"ironroot/agent/config"
	"ironroot/storage/block"
)

// tree unpacks a description of sysfs and procfs below a folder of the test's own. A line is "path: content",
// "path -> target" or "path/"; \n and \t stand for themselves.
func tree(t *testing.T, file string) block.System {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	root := t.TempDir()
	for line := range strings.Lines(string(data)) {
		line = strings.TrimSuffix(line, "\n")
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		if path, target, ok := strings.Cut(line, " -> "); ok {
			put(t, root, path, func(path string) error { return os.Symlink(target, path) })
		} else if path, ok := strings.CutSuffix(line, "/"); ok {
			put(t, root, path, func(path string) error { return os.Mkdir(path, 0o755) })
		} else if path, content, ok := strings.Cut(line, ": "); ok {
			write(t, root, path, []byte(strings.NewReplacer(`\n`, "\n", `\t`, "\t").Replace(content)))
		} else {
			t.Fatalf("%s: line %q", file, line)
		}
	}
	return block.System{Root: root}
}

func write(t *testing.T, root, path string, content []byte) {
	t.Helper()
	put(t, root, path, func(path string) error { return os.WriteFile(path, content, 0o644) })
}

func put(t *testing.T, root, path string, make func(path string) error) {
	t.Helper()
	path = filepath.Join(root, path)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := make(path); err != nil {
		t.Fatal(err)
	}
}

// fakeNetwork stands in for the kernel's netlink.
type fakeNetwork map[string]linkFacts

func (n fakeNetwork) facts(context.Context) (map[string]linkFacts, error) { return n, nil }

// memoryTables makes an SMBIOS 3 entry point and a table with one type 17 structure for each size word; the second
// number is the extended size in MiB.
func memoryTables(devices ...[2]uint32) (entry, table []byte) {
	for i, d := range devices {
		s := make([]byte, 34)
		s[0], s[1] = 17, 34
		binary.LittleEndian.PutUint16(s[2:], uint16(0x1100+i))
		binary.LittleEndian.PutUint16(s[0x0c:], uint16(d[0]))
		binary.LittleEndian.PutUint32(s[0x1c:], d[1])
		table = append(append(table, s...), 0, 0) // no strings
	}
	table = append(table, 127, 4, 0xff, 0xfe, 0, 0)
	entry = append([]byte("_SM3_\x00\x18\x03\x02\x00\x01\x00"), make([]byte, 12)...)
	binary.LittleEndian.PutUint32(entry[12:], uint32(len(table)))
	var sum byte
	for _, b := range entry {
		sum += b
	}
	entry[5] = -sum
	return entry, table
}

func addMemory(t *testing.T, sys block.System, devices ...[2]uint32) {
	t.Helper()
	entry, table := memoryTables(devices...)
	write(t, sys.Root, "sys/firmware/dmi/tables/smbios_entry_point", entry)
	write(t, sys.Root, "sys/firmware/dmi/tables/DMI", table)
}

// The golden file is what ironic-python-agent posted of this machine, with the list of cpu flags cut short.
func TestCollectIsWhatTheOtherAgentSays(t *testing.T) {
	sys := tree(t, "testdata/qemu.tree")
	addMemory(t, sys, [2]uint32{3072, 0})
	s := New(Options{
		System: sys,
		Params: func() config.Params { return config.Params{"BOOTIF": "52:54:00:1a:15:d6"} },
		Disks: func(context.Context) ([]block.Device, error) {
			return []block.Device{{
				Name: "vda", Path: "/dev/vda", Type: "disk", Size: 8589934592, Rotational: true, Serial: "LABNODE00",
				Vendor: "0x1af4", ByPath: "/dev/disk/by-path/pci-0000:00:03.0", LogicalSector: 512, PhysicalSector: 512,
				Transport: "virtio",
			}}, nil
		},
	})
	s.net = fakeNetwork{"enp0s2": {
		permanent: net.HardwareAddr{0x52, 0x54, 0, 0x1a, 0x15, 0xd6},
		ipv4:      "172.30.0.112", ipv6: "fe80::5054:ff:fe1a:15d6%enp0s2",
	}}
	inv, err := s.Collect(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	got, err := json.Marshal(inv)
	if err != nil {
		t.Fatal(err)
	}
	want, err := os.ReadFile("testdata/qemu.json")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(decoded(t, want), decoded(t, got)); diff != "" {
		t.Errorf("inventory differs (-want +got):\n%s", diff)
	}
}

func decoded(t *testing.T, data []byte) any {
	t.Helper()
	d := json.NewDecoder(bytes.NewReader(data))
	d.UseNumber()
	var v any
	if err := d.Decode(&v); err != nil {
		t.Fatal(err)
	}
	return v
}

func TestInterfaces(t *testing.T) {
	s := New(Options{System: tree(t, "testdata/server.tree")})
	s.net = fakeNetwork{
		"eno1": {permanent: net.HardwareAddr{0xac, 0x1f, 0x6b, 0, 0, 1}, speedMbps: 1000},
		"eno2": {permanent: make(net.HardwareAddr, 6)}, // all zero: not known
	}
	list, err := s.Interfaces(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	speed := 1000
	text := func(s string) *string { return &s }
	want := []Interface{
		{Name: "bond0", MACAddress: "ac:1f:6b:00:00:01"},
		{Name: "bond0.100", MACAddress: "ac:1f:6b:00:00:01"},
		{
			Name: "eno1", MACAddress: "ac:1f:6b:00:00:01", HasCarrier: true, Vendor: text("0x8086"), Product: text("0x1521"),
			SpeedMbps: &speed, PCIAddress: text("0000:3b:00.0"), Driver: text("igb"),
		},
		{
			Name: "eno2", MACAddress: "ac:1f:6b:00:00:02", Vendor: text("0x8086"), Product: text("0x1521"),
			SpeedMbps: &speed, PCIAddress: text("0000:3b:00.1"), Driver: text("igb"),
		},
	}
	if diff := cmp.Diff(want, list); diff != "" {
		t.Errorf("interfaces differ (-want +got):\n%s", diff)
	}
}

// What every interface and every disk has, also when it is not known, because Ironic's hooks take the keys for granted.
func TestKeysAreAlwaysThere(t *testing.T) {
	for _, tt := range []struct {
		name  string
		value any
		keys  int
	}{{"interface", Interface{}, 13}, {"disk", Disk{}, 14}} {
		data, err := json.Marshal(tt.value)
		if err != nil {
			t.Fatal(err)
		}
		if got := len(decoded(t, data).(map[string]any)); got != tt.keys {
			t.Errorf("%s: got %d keys, want %d", tt.name, got, tt.keys)
		}
	}
}

func TestModeSpeed(t *testing.T) {
	for name, want := range map[string]int{"10baseT/Half": 10, "10000baseT/Full": 10000, "400000baseSR8/Full": 400000, "TP": 0, "": 0} {
		if got := modeSpeed(name); got != want {
			t.Errorf("modeSpeed(%q): got %d, want %d", name, got, want)
		}
	}
}

func TestKernelNetwork(t *testing.T) {
	facts, err := kernelNetwork{slog.New(slog.DiscardHandler)}.facts(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if got, want := facts["lo"].ipv4, "127.0.0.1"; got != want {
		t.Errorf("IPv4 address of lo: got %q, want %q", got, want)
	}
}

func TestCPU(t *testing.T) {
	sys := block.System{Root: t.TempDir()}
	write(t, sys.Root, "proc/cpuinfo", []byte("processor\t: 0\nBogoMIPS\t: 50.00\nFeatures\t: fp asimd\n"+
		"CPU implementer\t: 0x41\nCPU part\t: 0xd0c\n\nprocessor\t: 1\nCPU part\t: 0xd0c\n"))
	write(t, sys.Root, "proc/sys/kernel/arch", []byte("aarch64\n"))
	write(t, sys.Root, "sys/devices/system/cpu/present", []byte("0-3,8\n"))
	for cpu, freq := range map[string]string{"cpu0": "2800000", "cpu1": "3900001"} {
		write(t, sys.Root, "sys/devices/system/cpu/"+cpu+"/cpufreq/cpuinfo_max_freq", []byte(freq+"\n"))
		write(t, sys.Root, "sys/devices/system/cpu/"+cpu+"/topology/physical_package_id", []byte(cpu[3:]+"\n"))
	}
	got := New(Options{System: sys}).cpu()
	want := CPU{
		ModelName: "Neoverse-N1", Frequency: "3900.0010", Count: 5, Architecture: "aarch64",
		Flags: []string{"fp", "asimd"}, SocketCount: 2,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("cpu differs (-want +got):\n%s", diff)
	}
}

// Without frequency scaling, the frequency is that of /proc/cpuinfo, as text.
// Parity: G5
func TestFrequencyFallback(t *testing.T) {
	for _, test := range []struct{ name, cpuinfo, max, want string }{
		{"scaled", "cpu MHz\t\t: 2445.404\n", "3900001", "3900.0010"},
		{"not scaled", "processor\t: 0\ncpu MHz\t\t: 2445.404\n\nprocessor\t: 1\ncpu MHz\t\t: 800.000\n", "", "2445.404"},
		{"unreadable maximum", "cpu MHz\t\t: 2445.404\n", "unknown", "2445.404"},
		{"neither, as on ARM", "processor\t: 0\nBogoMIPS\t: 50.00\n", "", ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			sys := block.System{Root: t.TempDir()}
			write(t, sys.Root, "proc/cpuinfo", []byte(test.cpuinfo))
			if test.max != "" {
				write(t, sys.Root, "sys/devices/system/cpu/cpu0/cpufreq/cpuinfo_max_freq", []byte(test.max+"\n"))
			}
			if got := New(Options{System: sys}).cpu().Frequency; got != test.want {
				t.Errorf("got frequency %q, want %q", got, test.want)
			}
		})
	}
}

func TestPhysicalMemory(t *testing.T) {
	for _, tt := range []struct {
		name    string
		devices [][2]uint32
		want    int64 // MiB
	}{
		{"two modules and an empty slot", [][2]uint32{{16384, 0}, {0, 0}, {16384, 0}}, 32768},
		{"size in KiB", [][2]uint32{{0x8000 | 2048, 0}}, 2},
		{"extended size", [][2]uint32{{0x7fff, 65536}}, 65536},
		{"size not known", [][2]uint32{{0xffff, 0}}, 0},
		{"no memory device", nil, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			sys := block.System{Root: t.TempDir()}
			addMemory(t, sys, tt.devices...)
			m := New(Options{System: sys}).memory()
			if m.PhysicalMB == nil || *m.PhysicalMB != tt.want {
				t.Errorf("got %v MiB, want %d", m.PhysicalMB, tt.want)
			}
		})
	}
}

func TestPhysicalMemoryUnknown(t *testing.T) {
	sys := block.System{Root: t.TempDir()}
	if m := New(Options{System: sys}).memory(); m.PhysicalMB != nil {
		t.Errorf("without tables: got %d MiB, want null", *m.PhysicalMB)
	}
	entry, table := memoryTables([2]uint32{16384, 0})
	write(t, sys.Root, "sys/firmware/dmi/tables/smbios_entry_point", entry)
	write(t, sys.Root, "sys/firmware/dmi/tables/DMI", table[:20])
	if m := New(Options{System: sys}).memory(); m.PhysicalMB != nil {
		t.Errorf("with a broken table: got %d MiB, want null", *m.PhysicalMB)
	}
}

func TestSystemVendor(t *testing.T) {
	sys := block.System{Root: t.TempDir()}
	write(t, sys.Root, "sys/class/dmi/id/product_name", []byte("PowerEdge R640\n"))
	write(t, sys.Root, "sys/class/dmi/id/product_sku", []byte("SKU=NotProvided\n"))
	got := New(Options{System: sys}).systemVendor()
	if want := (SystemVendor{ProductName: "PowerEdge R640 (SKU=NotProvided)"}); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
	arm := block.System{Root: t.TempDir()}
	write(t, arm.Root, "proc/device-tree/model", []byte("linux,dummy-virt\x00"))
	got = New(Options{System: arm}).systemVendor()
	if want := (SystemVendor{ProductName: "linux,dummy-virt"}); got != want {
		t.Errorf("device tree: got %+v, want %+v", got, want)
	}
}
