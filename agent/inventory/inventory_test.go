package inventory

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"ironroot/agent/config"
	"ironroot/internal/test/disktest"
	"ironroot/internal/test/testenv"
	"ironroot/netboot/lldp"
	"ironroot/storage/block"
	"ironroot/storage/sysfs"
)

// tree unpacks a description of sysfs and procfs below a directory of the test's own. A line is "path: content",
// "path -> target" or "path/". In content, \n is a line feed and \t a tab.
func tree(t *testing.T, file string) sysfs.Root {
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
	return sysfs.Root{Path: root}
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

// fakeNetwork replaces the kernel's netlink.
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

func addMemory(t *testing.T, sys sysfs.Root, devices ...[2]uint32) {
	t.Helper()
	entry, table := memoryTables(devices...)
	write(t, sys.Path, "sys/firmware/dmi/tables/smbios_entry_point", entry)
	write(t, sys.Path, "sys/firmware/dmi/tables/DMI", table)
}

// failing is a network whose facts cannot be read.
type failing struct{ err error }

func (f failing) facts(context.Context) (map[string]linkFacts, error) { return nil, f.err }

// Facts that cannot be read are missing from the inventory and logged. The others are present.
func TestCollectWithFailures(t *testing.T) {
	var log bytes.Buffer
	sys := tree(t, "testdata/qemu.tree")
	addMemory(t, sys, [2]uint32{3072, 0})
	broken := false
	s := New(Options{
		System: sys, Log: slog.New(slog.NewTextHandler(&log, nil)),
		Disks: disktest.Lister(func(context.Context) ([]block.Device, error) {
			disks := []block.Device{{Name: "vda", Path: "/dev/vda"}}
			if broken {
				return disks, errors.New("vdb: input/output error")
			}
			return disks, nil
		}),
	})
	for _, broken = range []bool{false, true} {
		if broken {
			s.net = failing{errors.New("netlink: permission denied")}
		}
		inv, err := s.Collect(t.Context())
		if err != nil || len(inv.Interfaces) != 1 || len(inv.Disks) != 1 {
			t.Fatalf("broken %v: got %+v and %v, want an interface and a disk", broken, inv, err)
		}
		for _, text := range []string{"permission denied", "vdb: input/output error"} {
			if strings.Contains(log.String(), text) != broken || !broken && log.Len() > 0 {
				t.Errorf("broken %v: got the log %q, want %q in it: %v", broken, &log, text, broken)
			}
		}
	}
}

// A cancelled inventory is an error, and so is one without a list of interfaces: Ironic finds the node by them.
func TestNoInventory(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	sys := tree(t, "testdata/qemu.tree")
	if _, err := New(Options{System: sys}).Collect(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: got %v, want %v", err, context.Canceled)
	}
	if err := os.RemoveAll(sys.Sys("class/net")); err != nil {
		t.Fatal(err)
	}
	inv, err := New(Options{System: sys}).Collect(t.Context())
	if inv != nil || !errors.Is(err, fs.ErrNotExist) || !strings.Contains(err.Error(), "class/net") {
		t.Errorf("no interfaces: got %+v and %v, want %v that names the directory", inv, err, fs.ErrNotExist)
	}
}

// Data of the machine that runs the test is not mixed into the data of a fixture. Both have an interface lo.
func TestOtherRoot(t *testing.T) {
	sys := sysfs.Root{Path: t.TempDir()}
	write(t, sys.Path, "sys/class/net/lo/address", []byte("52:54:00:1a:15:d6\n"))
	write(t, sys.Path, "sys/class/net/lo/device/vendor", []byte("0x1af4\n"))
	put(t, sys.Path, "dev/ipmi0", func(path string) error { return os.Symlink("/dev/null", path) })
	s := New(Options{System: sys})
	list, err := s.Interfaces(t.Context())
	if err != nil || len(list) != 1 || list[0].IPv4Address != nil {
		t.Errorf("got %+v and %v, want an interface without an address", list, err)
	}
	if s.o.BMC != nil {
		t.Error("the machine's BMC would be asked")
	}
	for _, root := range []string{"", "/"} {
		s := New(Options{System: sysfs.Root{Path: root}})
		if _, kernel := s.net.(kernelNetwork); !kernel || s.o.BMC == nil {
			t.Errorf("root %q: got network %T, BMC asked %v, want those of the machine", root, s.net, s.o.BMC != nil)
		}
	}
}

// hears returns frames or an error.
type hears struct {
	frames map[string]lldp.Frame
	err    error
	quiet  time.Duration // of the last call
}

func (h *hears) WaitLLDP(_ context.Context, quiet time.Duration) (map[string]lldp.Frame, error) {
	h.quiet = quiet
	return h.frames, h.err
}

// The interfaces have the frames of their neighbours if the configuration enables that, and otherwise null.
func TestNeighbours(t *testing.T) {
	frame := lldp.Frame{TLVs: []lldp.TLV{{Type: 5, Value: []byte("leaf1")}, {Type: 0}}}
	for _, tt := range []struct {
		name   string
		hears  *hears
		wanted bool
		want   string
	}{
		{"not wanted", &hears{frames: map[string]lldp.Frame{"enp0s2": frame}}, false, `null`},
		{"heard", &hears{frames: map[string]lldp.Frame{"enp0s2": frame}}, true, `[[5,"6c65616631"],[0,""]]`},
		{"heard by others", &hears{frames: map[string]lldp.Frame{"enp0s3": frame}}, true, `[]`},
		{"not permitted", &hears{err: errors.New("it needs CAP_NET_RAW")}, true, `[]`},
	} {
		var log bytes.Buffer
		s := New(Options{
			System: tree(t, "testdata/qemu.tree"), Log: slog.New(slog.NewTextHandler(&log, nil)), Neighbours: tt.hears,
			Config: config.NewLive(&config.Config{CollectLLDP: tt.wanted, LLDPTimeout: 30 * time.Second}),
		})
		inv, err := s.Collect(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		got, err := json.Marshal(inv.Interfaces[0].LLDP)
		if err != nil || string(got) != tt.want {
			t.Errorf("%s: got %s and %v, want %s", tt.name, got, err, tt.want)
		}
		if tt.wanted && tt.hears.quiet != 30*time.Second {
			t.Errorf("%s: got a wait of %v, want that of the configuration", tt.name, tt.hears.quiet)
		}
		if warned := strings.Contains(log.String(), "CAP_NET_RAW"); warned != (tt.hears.err != nil) {
			t.Errorf("%s: got the log %q", tt.name, &log)
		}
	}
}

// The golden file is the data that ironic-python-agent posted for this machine, with a shortened list of cpu flags.
func TestCollectIsWhatTheOtherAgentSays(t *testing.T) {
	sys := tree(t, "testdata/qemu.tree")
	addMemory(t, sys, [2]uint32{3072, 0})
	s := New(Options{
		System: sys,
		Config: config.NewLive(&config.Config{Params: config.Params{"BOOTIF": "52:54:00:1a:15:d6"}}),
		Disks: disktest.Lister(func(context.Context) ([]block.Device, error) {
			return []block.Device{{
				Name: "vda", Path: "/dev/vda", Type: "disk", Size: 8589934592, Rotational: true, Serial: "LABNODE00",
				Vendor: "0x1af4", ByPath: "/dev/disk/by-path/pci-0000:00:03.0", LogicalSector: 512, PhysicalSector: 512,
				Transport: "virtio",
			}}, nil
		}),
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
		{
			Name: "eno1", MACAddress: "ac:1f:6b:00:00:01", HasCarrier: true, Vendor: text("0x8086"),
			Product: text("0x1521"), SpeedMbps: &speed, PCIAddress: text("0000:3b:00.0"), Driver: text("igb"),
		},
		{
			Name: "eno2", MACAddress: "ac:1f:6b:00:00:02", Vendor: text("0x8086"), Product: text("0x1521"),
			SpeedMbps: &speed, PCIAddress: text("0000:3b:00.1"), Driver: text("igb"),
		},
		{Name: "bond0", MACAddress: "ac:1f:6b:00:00:01"},
		{Name: "bond0.100", MACAddress: "ac:1f:6b:00:00:01"},
	}
	if diff := cmp.Diff(want, list); diff != "" {
		t.Errorf("interfaces differ (-want +got):\n%s", diff)
	}
}

// Physical cards are among the first 64 interfaces, which are those that Ironic's hook parse-lldp reads, however many
// VLANs and virtual functions there are.
//
// Parity: U4
func TestInterfaceOrder(t *testing.T) {
	sys := sysfs.Root{Path: t.TempDir()}
	add := func(name, device string) {
		write(t, sys.Path, "sys/class/net/"+name+"/address", []byte("52:54:00:00:00:01\n"))
		if device != "" {
			link := func(path string) error { return os.Symlink("../../../devices/"+device, path) }
			put(t, sys.Path, "sys/class/net/"+name+"/device", link)
		}
	}
	want := []string{"ens10", "ens9", "eth0", "eth1", "bond0"}
	var functions, vlans []string
	for i := range 40 {
		address := fmt.Sprintf("0000:3b:02.%d", i)
		link := func(path string) error { return os.Symlink("../0000:3b:00.0", path) }
		put(t, sys.Path, "sys/devices/"+address+"/physfn", link)
		functions = append(functions, fmt.Sprintf("ens9v%d", i))
		add(functions[i], address)
	}
	for i := range 70 {
		vlans = append(vlans, fmt.Sprintf("eth0.%d", i+1))
		add(vlans[i], "")
	}
	for i, name := range want[:4] {
		write(t, sys.Path, fmt.Sprintf("sys/devices/card%d/device", i), []byte("0x1521\n"))
		add(name, fmt.Sprintf("card%d", i))
	}
	write(t, sys.Path, "sys/class/net/bond0/bonding/mode", nil)
	add("bond0", "")
	vlans = append(vlans, "bond0.5")
	add("bond0.5", "")
	slices.Sort(functions)
	slices.Sort(vlans)
	list, err := New(Options{System: sys}).Interfaces(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, i := range list {
		got = append(got, i.Name)
	}
	if diff := cmp.Diff(slices.Concat(want, functions, vlans), got); diff != "" {
		t.Errorf("names differ (-want +got):\n%s", diff)
	}
}

// Every interface and disk has these keys, also without a value, because Ironic's hooks require them.
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

func TestLinkFacts(t *testing.T) {
	var got linkFacts
	for _, address := range []string{"fe80::1", "192.0.2.7", "2001:db8::7", "192.0.2.8"} {
		got.add(net.ParseIP(address), "eth0")
	}
	want := linkFacts{ipv4: "192.0.2.7", ipv6: "fe80::1%eth0"}
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(linkFacts{})); diff != "" {
		t.Errorf("facts differ (-want +got):\n%s", diff)
	}
}

// lscpu gives the same names (util-linux, sys-utils/lscpu-arm.c).
func TestARMNames(t *testing.T) {
	for ids, want := range map[string]string{
		"0x41 0xd0c": "Neoverse-N1", "0x41 0xd84": "Neoverse-V3", "0x41 0xd83": "Neoverse-V3AE",
		"0x41 0xd8e": "Neoverse-N3", "0x41 0xd8f": "Cortex-A320", "0x41 0xd8c": "C1-Ultra",
		"0x43 0x0b8": "ThunderX3-T110", "0x46 0x003": "MONAKA", "0x48 0xd01": "Kunpeng-920",
		"0x48 0xd06": "Kunpeng-950", "0x4e 0x010": "Olympus", "0x51 0x001": "Oryon",
		"0x6d 0xd49": "Azure-Cobalt-100", "0x70 0x663": "FTC663", "0xc0 0xac4": "Ampere-1a",
		"0x41 0xfff": "", "0x99 0xd0c": "",
	} {
		implementer, part, _ := strings.Cut(ids, " ")
		info := parseCPUInfo([]byte("CPU implementer\t: " + implementer + "\nCPU part\t: " + part + "\n"))
		if got := info.model(); got != want {
			t.Errorf("%s: got %q, want %q", ids, got, want)
		}
	}
}

func TestCPU(t *testing.T) {
	sys := sysfs.Root{Path: t.TempDir()}
	write(t, sys.Path, "proc/cpuinfo", []byte("processor\t: 0\nBogoMIPS\t: 50.00\nFeatures\t: fp asimd\n"+
		"CPU implementer\t: 0x41\nCPU part\t: 0xd0c\n\nprocessor\t: 1\nCPU part\t: 0xd0c\n"))
	write(t, sys.Path, "proc/sys/kernel/arch", []byte("aarch64\n"))
	write(t, sys.Path, "sys/devices/system/cpu/present", []byte("0-3,8\n"))
	for cpu, freq := range map[string]string{"cpu0": "2800000", "cpu1": "3900001"} {
		write(t, sys.Path, "sys/devices/system/cpu/"+cpu+"/cpufreq/cpuinfo_max_freq", []byte(freq+"\n"))
		write(t, sys.Path, "sys/devices/system/cpu/"+cpu+"/topology/physical_package_id", []byte(cpu[3:]+"\n"))
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

// A kernel before 6.1 has no file for the architecture, and one without sysfs no list of processors.
func TestCPUOfOldKernels(t *testing.T) {
	sys := sysfs.Root{Path: t.TempDir()}
	long := strings.Repeat("long ", 20<<10) // more than the 64 KiB a scanner takes by itself
	write(t, sys.Path, "proc/cpuinfo",
		[]byte("processor\t: 0\nflags\nflags\t: "+long+"\nmodel name\t: A\n\nprocessor\t: 1\nmodel name\t: B\n"))
	got := New(Options{System: sys}).cpu()
	if got.Count != 2 || got.ModelName != "A" || len(got.Flags) != 20<<10 {
		t.Errorf("got %d processors, model %q, %d flags, want 2, A, %d",
			got.Count, got.ModelName, len(got.Flags), 20<<10)
	}
	if want := strings.TrimSpace(testenv.Run(t, "uname", "-m")); got.Architecture != want {
		t.Errorf("architecture: got %q, want %q", got.Architecture, want)
	}
}

// Without frequency scaling, the frequency is taken from /proc/cpuinfo, as text.
// Parity: G5
func TestFrequencyFallback(t *testing.T) {
	for _, test := range []struct{ name, cpuinfo, max, want string }{
		{"scaled", "cpu MHz\t\t: 2445.404\n", "3900001", "3900.0010"},
		{
			"not scaled", "processor\t: 0\ncpu MHz\t\t: 2445.404\n\nprocessor\t: 1\ncpu MHz\t\t: 800.000\n",
			"", "2445.404",
		},
		{"unreadable maximum", "cpu MHz\t\t: 2445.404\n", "unknown", "2445.404"},
		{"neither, as on ARM", "processor\t: 0\nBogoMIPS\t: 50.00\n", "", ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			sys := sysfs.Root{Path: t.TempDir()}
			write(t, sys.Path, "proc/cpuinfo", []byte(test.cpuinfo))
			if test.max != "" {
				write(t, sys.Path, "sys/devices/system/cpu/cpu0/cpufreq/cpuinfo_max_freq", []byte(test.max+"\n"))
			}
			if got := New(Options{System: sys}).cpu().Frequency; got != test.want {
				t.Errorf("got frequency %q, want %q", got, test.want)
			}
		})
	}
}

func TestMemTotal(t *testing.T) {
	for text, want := range map[string]int64{
		"MemTotal:        2971144 kB\nMemFree: 1 kB\n":         2971144 << 10,
		"MemFree:  1 kB\nMemTotal: 7 kB\nMemAvailable: 1 kB\n": 7 << 10,
		"MemFree:  1 kB\n":      -1,
		"MemTotal: many kB\n":   -1,
		"SwapTotal:     0 kB\n": -1,
		"":                      -1,
	} {
		got, err := sysfs.ParseMeminfo([]byte(text), "MemTotal")
		if (err != nil) != (want < 0) || err == nil && got != want {
			t.Errorf("%q: got %d and %v, want %d", text, got, err, want)
		}
		var log bytes.Buffer
		sys := sysfs.Root{Path: t.TempDir()}
		write(t, sys.Path, "proc/meminfo", []byte(text))
		entry, table := memoryTables()
		write(t, sys.Path, "sys/firmware/dmi/tables/smbios_entry_point", entry)
		write(t, sys.Path, "sys/firmware/dmi/tables/DMI", table)
		m := New(Options{System: sys, Log: slog.New(slog.NewTextHandler(&log, nil))}).memory()
		if m.Total != max(want, 0) || strings.Contains(log.String(), "level=WARN") != (want < 0) {
			t.Errorf("%q: got %d bytes and the log %q, want %d and a warning: %v",
				text, m.Total, &log, max(want, 0), want < 0)
		}
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
			sys := sysfs.Root{Path: t.TempDir()}
			addMemory(t, sys, tt.devices...)
			m := New(Options{System: sys}).memory()
			if m.PhysicalMB == nil || *m.PhysicalMB != tt.want {
				t.Errorf("got %v MiB, want %d", m.PhysicalMB, tt.want)
			}
		})
	}
}

func TestPhysicalMemoryUnknown(t *testing.T) {
	sys := sysfs.Root{Path: t.TempDir()}
	if m := New(Options{System: sys}).memory(); m.PhysicalMB != nil {
		t.Errorf("without tables: got %d MiB, want null", *m.PhysicalMB)
	}
	entry, table := memoryTables([2]uint32{16384, 0})
	write(t, sys.Path, "sys/firmware/dmi/tables/smbios_entry_point", entry)
	write(t, sys.Path, "sys/firmware/dmi/tables/DMI", table[:20])
	if m := New(Options{System: sys}).memory(); m.PhysicalMB != nil {
		t.Errorf("with a broken table: got %d MiB, want null", *m.PhysicalMB)
	}
}

// The structures before a fault count, as with dmidecode, and the fault is logged.
func TestPhysicalMemoryBeforeFault(t *testing.T) {
	sys := sysfs.Root{Path: t.TempDir()}
	entry, table := memoryTables([2]uint32{16384, 0})
	table = append(bytes.TrimSuffix(table, []byte{127, 4, 0xff, 0xfe, 0, 0}), 17, 3, 1, 0x11, 0, 0)
	write(t, sys.Path, "sys/firmware/dmi/tables/smbios_entry_point", entry)
	write(t, sys.Path, "sys/firmware/dmi/tables/DMI", table)
	var log bytes.Buffer
	m := New(Options{System: sys, Log: slog.New(slog.NewTextHandler(&log, nil))}).memory()
	if m.PhysicalMB != nil {
		t.Errorf("got %d MiB, want none: devices after the fault would be missing", *m.PhysicalMB)
	}
	if want := "SMBIOS structure 1: type 17: got a length of 3"; !strings.Contains(log.String(), want) {
		t.Errorf("got the log %q, want %q in it", &log, want)
	}
}

func TestSystemVendor(t *testing.T) {
	sys := sysfs.Root{Path: t.TempDir()}
	write(t, sys.Path, "sys/class/dmi/id/product_name", []byte("PowerEdge R640\n"))
	write(t, sys.Path, "sys/class/dmi/id/product_sku", []byte("SKU=NotProvided\n"))
	got := New(Options{System: sys}).systemVendor()
	if want := (SystemVendor{ProductName: "PowerEdge R640 (SKU=NotProvided)"}); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
	odd := sysfs.Root{Path: t.TempDir()}
	write(t, odd.Path, "sys/class/dmi/id/product_name", []byte("Board\x01 1\xff\n"))
	write(t, odd.Path, "sys/class/dmi/id/product_serial", []byte("\xff\xff\xff\xff\n"))
	got = New(Options{System: odd}).systemVendor()
	if want := (SystemVendor{ProductName: "Board 1"}); got != want {
		t.Errorf("bytes that are not text: got %+v, want %+v", got, want)
	}
	arm := sysfs.Root{Path: t.TempDir()}
	write(t, arm.Path, "proc/device-tree/model", []byte("linux,dummy-virt\x00"))
	write(t, arm.Path, "proc/device-tree/serial-number", []byte("0000000000000001\x00"))
	got = New(Options{System: arm}).systemVendor()
	if want := (SystemVendor{ProductName: "linux,dummy-virt", SerialNumber: "0000000000000001"}); got != want {
		t.Errorf("device tree: got %+v, want %+v", got, want)
	}
}
