package selftest

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"ironroot/agent/cleaning"
	"ironroot/agent/config"
	"ironroot/agent/hardware"
	"ironroot/agent/hardware/generic"
	"ironroot/agent/inventory"
	"ironroot/agent/inventory/machinetest"
	"ironroot/agent/node"
	"ironroot/agent/status"
	"ironroot/internal/test/testenv"
	"ironroot/netboot/lldp"
	"ironroot/storage/block"
	"ironroot/storage/erase"
	"ironroot/storage/sysfs"
)

var now = time.Date(2026, 11, 26, 12, 0, 0, 0, time.UTC)

// machine returns the sources of a machine whose clock is right.
func machine(sys sysfs.Root) Options {
	if sys.Files == nil {
		sys.Files = &sysfs.Reader{}
	}
	inventories := inventory.New(inventory.Options{System: sys})
	manager := generic.New(generic.Options{Config: config.NewLive(&config.Config{}), System: sys})
	return Options{
		System: sys, Program: "ironroot 1.0.0", Inventory: inventories, Cleaner: manager,
		Kernel: &clocks{now: now, hardware: now.Add(2 * time.Second)},
	}
}

// clocks implements [Kernel].
type clocks struct {
	now, hardware       time.Time
	hardwareErr, logErr error
	log                 string
}

func (c *clocks) Now() time.Time               { return c.now }
func (c *clocks) Hardware() (time.Time, error) { return c.hardware, c.hardwareErr }
func (c *clocks) KernelLog() ([]byte, error)   { return []byte(c.log), c.logErr }

// previews implements [ErasePreviewer].
type previews func() ([]cleaning.Decision, error)

func (p previews) PreviewErase(context.Context, *node.Node) ([]cleaning.Decision, error) {
	return p()
}

// hearing implements [inventory.Neighbours].
type hearing func() (map[string]lldp.Frame, error)

func (h hearing) WaitLLDP(context.Context, time.Duration) (map[string]lldp.Frame, error) { return h() }

// collecting implements [Inventory].
type collecting func() (*inventory.Inventory, error)

func (c collecting) Collect(context.Context) (*inventory.Inventory, error) { return c() }

// The report of each recorded machine contains no serial number, address or name of it.
func TestReportCanBePublished(t *testing.T) {
	for _, name := range machinetest.Names(t) {
		t.Run(name, func(t *testing.T) {
			o := machine(machinetest.System(t, name))
			inv, err := o.Inventory.Collect(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			disks, err := block.Disks(t.Context(), o.System)
			if err != nil {
				t.Fatal(err)
			}
			private := []string{inv.SystemVendor.SerialNumber, inv.Hostname}
			for _, i := range inv.Interfaces {
				private = append(private, i.MACAddress, strings.ReplaceAll(i.MACAddress, ":", ""), text(i.IPv4Address),
					text(i.IPv6Address), text(i.ClientID))
			}
			for _, d := range disks {
				private = slices.Concat(private, d.Serials, d.WWNs, []string{d.Serial, d.WWN, d.WWID})
			}
			private = slices.DeleteFunc(private, func(text string) bool { return text == "" })
			if len(private) < len(inv.Interfaces) {
				t.Fatalf("got %d private texts of %d interfaces", len(private), len(inv.Interfaces))
			}
			report := Collect(t.Context(), o)
			data, err := json.Marshal(report)
			if err != nil {
				t.Fatal(err)
			}
			var shown bytes.Buffer
			if err := report.Write(&shown); err != nil {
				t.Fatal(err)
			}
			for _, text := range private {
				if strings.Contains(string(data), text) || strings.Contains(shown.String(), text) {
					t.Errorf("report contains %q:\n%s", text, shown.String())
				}
			}
			if len(report.Links) != len(inv.Interfaces) || len(report.Disks) != len(disks) || len(report.Devices) == 0 {
				t.Errorf("got %d links, %d disks, %d PCI devices, want %d, %d and some", len(report.Links),
					len(report.Disks), len(report.Devices), len(inv.Interfaces), len(disks))
			}
			if report.Machine.Product != inv.SystemVendor.ProductName {
				t.Errorf("got product %q, want %q", report.Machine.Product, inv.SystemVendor.ProductName)
			}
		})
	}
}

// bare is a machine with a network card and a storage controller that have no driver, one network card with a driver,
// and UEFI variables.
const bare = `
proc/sys/kernel/osrelease: 6.12.57-amd64\n
proc/consoles: ttyS0                -W- (EC p a)    4:64\n
sys/firmware/efi/efivars/Boot0001-8be4df61-93ca-11d2-aa0d-00e098032b8c: x
sys/firmware/efi/efivars/Boot001F-8be4df61-93ca-11d2-aa0d-00e098032b8c: x
sys/firmware/efi/efivars/BootOrder-8be4df61-93ca-11d2-aa0d-00e098032b8c: x
sys/firmware/efi/efivars/SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c= 0600000001
sys/bus/pci/devices/0000:01:00.0/class: 0x020000\n
sys/bus/pci/devices/0000:01:00.0/vendor: 0x15b3\n
sys/bus/pci/devices/0000:01:00.0/device: 0x1017\n
sys/bus/pci/devices/0000:01:00.1/class: 0x020000\n
sys/bus/pci/devices/0000:01:00.1/vendor: 0x15b3\n
sys/bus/pci/devices/0000:01:00.1/device: 0x1018\n
sys/bus/pci/devices/0000:01:00.1/physfn -> ../0000:01:00.0
sys/bus/pci/devices/0000:02:00.0/class: 0x010400\n
sys/bus/pci/devices/0000:02:00.0/vendor: 0x1000\n
sys/bus/pci/devices/0000:02:00.0/device: 0x005d\n
sys/bus/pci/devices/0000:03:00.0/class: 0x020000\n
sys/bus/pci/devices/0000:03:00.0/vendor: 0x8086\n
sys/bus/pci/devices/0000:03:00.0/device: 0x1521\n
sys/bus/pci/devices/0000:03:00.0/driver -> ../../drivers/igb
sys/class/net/eno1/address: 52:54:00:aa:bb:cc\n
sys/class/net/eno1/carrier: 1\n
sys/class/net/eno1/device/vendor: 0x8086\n
sys/class/net/eno1/device/device: 0x1521\n
sys/class/net/eno1/speed: 1000\n
`

// Every problem of a machine is named, with what to do.
func TestProblems(t *testing.T) {
	testenv.ExpectPanics(t)
	healthy := func(t *testing.T) Options {
		t.Helper()
		o := machine(machinetest.Unpack(t, bare))
		o.Cleaner = previews(func() ([]cleaning.Decision, error) {
			return []cleaning.Decision{{
				Disk:   block.Device{Path: "/dev/nvme0n1", Model: "X", Transport: "nvme", Size: 1 << 40},
				Report: erase.Report{Technique: erase.NVMeCrypto},
			}}, nil
		})
		o.Neighbours = hearing(func() (map[string]lldp.Frame, error) {
			return map[string]lldp.Frame{"eno1": {TLVs: []lldp.TLV{{Type: 1, Value: []byte("switch")}}}}, nil
		})
		for _, address := range []string{"0000:01:00.0", "0000:02:00.0"} {
			bind(t, o.System, address)
		}
		return o
	}
	broken := errors.New("broken")
	for _, c := range []struct {
		name   string
		change func(t *testing.T, o *Options)
		want   []string // the problems, each beginning with one
	}{
		{name: "none", change: func(*testing.T, *Options) {}},
		{
			name: "adapters without a driver",
			change: func(t *testing.T, o *Options) {
				t.Helper()
				unbind(t, o.System, "0000:01:00.0")
				unbind(t, o.System, "0000:02:00.0")
				o.Board = status.NewBoard("1", nil)
				o.Board.Adapters([]status.Adapter{
					{Address: "0000:01:00.0", ID: "15b3:1017", Missing: []string{"mlx5_core"}},
				})
			},
			want: []string{
				"network adapter 0000:01:00.0 (PCI ID 15b3:1017) needs module mlx5_core, which this image lacks",
				"storage controller 0000:02:00.0 (PCI ID 1000:005d) has no driver",
			},
		},
		{
			name: "storage controller without media",
			change: func(t *testing.T, o *Options) {
				t.Helper()
				unbind(t, o.System, "0000:02:00.0")
				for name, text := range map[string]string{"class": "0x018000\n", "device": "0xc010\n"} {
					file := o.System.Sys("bus/pci/devices/0000:02:00.0", name)
					if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
						t.Fatal(err)
					}
				}
			},
		},
		{
			name: "firmware",
			change: func(_ *testing.T, o *Options) {
				message := "[    3.1] bnx2x 0000:01:00.0: Direct firmware load for bnx2x/a.fw failed with error -2\n"
				o.Kernel = &clocks{now: now, hardware: now, log: "[ 1.0] other\n" + message + message}
			},
			want: []string{"firmware missing: bnx2x/a.fw (bnx2x)"},
		},
		{
			name: "disks",
			change: func(_ *testing.T, o *Options) {
				o.Cleaner = previews(func() ([]cleaning.Decision, error) {
					return []cleaning.Decision{
						{Disk: block.Device{Path: "/dev/sda"}, Err: errors.Join(broken, broken)},
						{Disk: block.Device{Path: "/dev/sdb"}, Untouched: "floppy"},
					}, fmt.Errorf("%w: sdc", block.ErrUnreadable)
				})
			},
			want: []string{"disk /dev/sda cannot be erased: broken; broken", "disks cannot be used: "},
		},
		{
			name: "no disk",
			change: func(_ *testing.T, o *Options) {
				o.Cleaner = previews(func() ([]cleaning.Decision, error) { return nil, nil })
			},
			want: []string{"no disk"},
		},
		{
			name: "no carrier",
			change: func(t *testing.T, o *Options) {
				t.Helper()
				machinetest.Write(t, o.System, "sys/class/net/eno1/carrier", "0\n")
			},
			want: []string{"no network interface has a carrier"},
		},
		{
			name: "clocks",
			change: func(_ *testing.T, o *Options) {
				o.Kernel = &clocks{now: now, hardware: now.Add(-time.Hour)}
			},
			want: []string{"hardware clock differs from the system clock by 1h0m0s"},
		},
		{
			name: "empty battery",
			change: func(_ *testing.T, o *Options) {
				wrong := time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)
				o.Kernel = &clocks{now: wrong, hardware: wrong}
			},
			want: []string{"system clock: implausible time", "hardware clock: implausible time"},
		},
		{
			name: "no hardware clock",
			change: func(_ *testing.T, o *Options) {
				o.Kernel = &clocks{now: now, hardwareErr: os.ErrNotExist}
			},
			want: []string{"no hardware clock"},
		},
		{
			name: "no variables",
			change: func(t *testing.T, o *Options) {
				t.Helper()
				if err := os.RemoveAll(o.System.Sys("firmware/efi/efivars")); err != nil {
					t.Fatal(err)
				}
			},
			want: []string{"UEFI variables cannot be read: "},
		},
		{
			name: "sources fail",
			change: func(_ *testing.T, o *Options) {
				o.Inventory = collecting(func() (*inventory.Inventory, error) { return nil, broken })
				o.Kernel = &clocks{now: now, hardwareErr: broken, logErr: broken}
				o.Neighbours = hearing(func() (map[string]lldp.Frame, error) { return nil, broken })
			},
			want: []string{
				"inventory is incomplete: broken", "missing firmware is not known: broken",
				"hardware clock cannot be read: broken", "LLDP is not received: broken",
			},
		},
		{
			name: "panic",
			change: func(_ *testing.T, o *Options) {
				o.Neighbours = hearing(func() (map[string]lldp.Frame, error) { panic("boom") })
			},
			want: []string{"self-test is incomplete: "},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			o := healthy(t)
			c.change(t, &o)
			got := Collect(t.Context(), o).Problems
			if len(got) != len(c.want) {
				t.Fatalf("got problems %q, want %q", got, c.want)
			}
			for i, want := range c.want {
				if !strings.HasPrefix(got[i], want) {
					t.Errorf("got problem %q, want %q", got[i], want)
				}
			}
		})
	}
}

func bind(t *testing.T, sys sysfs.Root, address string) {
	t.Helper()
	if err := os.Symlink("../../drivers/x", sys.Sys("bus/pci/devices", address, "driver")); err != nil {
		t.Fatal(err)
	}
}

func unbind(t *testing.T, sys sysfs.Root, address string) {
	t.Helper()
	if err := os.Remove(sys.Sys("bus/pci/devices", address, "driver")); err != nil {
		t.Fatal(err)
	}
}

// The kernel or udev can name a link by its MAC address.
func TestNamesOfMACAddresses(t *testing.T) {
	o := machine(machinetest.Unpack(t, strings.ReplaceAll(bare, "/eno1/", "/enx525400aabbcc/")))
	o.Neighbours = hearing(func() (map[string]lldp.Frame, error) {
		const name = "enx525400aabbcc"
		return map[string]lldp.Frame{name: {TLVs: []lldp.TLV{{Type: 1}}}}, errors.New(name + ": broken")
	})
	report := Collect(t.Context(), o)
	if len(report.Links) != 1 || report.Links[0].Name != "enx525400..." || !report.Links[0].LLDP {
		t.Errorf("got links %+v, want enx525400... with LLDP", report.Links)
	}
	const problem = "LLDP is not received: enx525400...: broken"
	if !slices.Contains(report.Problems, problem) {
		t.Errorf("got problems %q, want %q among them", report.Problems, problem)
	}
}

// The report as text.
func TestText(t *testing.T) {
	o := machine(machinetest.Unpack(t, bare))
	o.Cleaner = previews(func() ([]cleaning.Decision, error) {
		return []cleaning.Decision{
			{
				Disk: block.Device{
					Path: "/dev/sda", Vendor: "HGST", Model: "HUS", Size: 4000, Transport: "sas", LogicalSector: 512,
					PhysicalSector: 4096, Serial: "secret",
				},
				Report: erase.Report{Technique: erase.SCSISanitizeBlock},
			},
			{Disk: block.Device{Path: "/dev/sdb", LogicalSector: 512, PhysicalSector: 512}, Untouched: "floppy"},
		}, nil
	})
	o.Inventory = collecting(func() (*inventory.Inventory, error) {
		driver, vendor, product, speed, address := "igb", "0x8086", "0x1521", 1000, "192.0.2.7"
		return &inventory.Inventory{
			Interfaces: []inventory.Interface{
				{
					Name: "eno1", MACAddress: "52:54:00:aa:bb:cc", HasCarrier: true, Driver: &driver, Vendor: &vendor,
					Product: &product, SpeedMbps: &speed, IPv4Address: &address,
				},
				{Name: "eno2", MACAddress: "52:54:00:aa:bb:cd"},
			},
			CPU:    inventory.CPU{ModelName: "Xeon", Architecture: "x86_64", Count: 8, SocketCount: 2},
			Memory: inventory.Memory{Total: 64 << 30},
			SystemVendor: inventory.SystemVendor{
				Manufacturer: "Dell Inc.", ProductName: "PowerEdge", SerialNumber: "secret",
				Firmware: inventory.Firmware{Vendor: "Dell Inc.", Version: "2.19.1"},
			},
			Boot: inventory.Boot{CurrentBootMode: "uefi"}, Hostname: "secret",
		}, nil
	})
	var got bytes.Buffer
	if err := Collect(t.Context(), o).Write(&got); err != nil {
		t.Fatal(err)
	}
	want, err := os.ReadFile(filepath.Join("testdata", "report.txt"))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got.String()); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

// reporter implements [Reporter].
type reporter struct {
	report *Report
	given  *node.Node
}

func (r *reporter) SelfTest(_ context.Context, n *node.Node) (*Report, error) {
	r.given = n
	return r.report, nil
}

// The step is offered where the operator requests it, and never runs by itself. Its result is the report.
func TestStep(t *testing.T) {
	report := &Report{Program: "x"}
	r := &reporter{report: report}
	m := &Manager{Reporter: r}
	if steps := m.Steps(hardware.Deploy, nil, nil); len(steps) != 0 {
		t.Errorf("deployment: got steps %v, want none", steps)
	}
	for _, kind := range []hardware.Kind{hardware.Clean, hardware.Service} {
		steps := m.Steps(kind, nil, nil)
		if len(steps) != 1 || steps[0].Name != "selftest" || steps[0].Priority != 0 || !*steps[0].Abortable {
			t.Fatalf("%s: got steps %+v", kind, steps)
		}
		n := &node.Node{}
		got, err := steps[0].Run(t.Context(), hardware.Call{Node: n})
		if err != nil || got != any(report) || r.given != n {
			t.Errorf("%s: got %v and %v, for node %p, want the report of %p", kind, got, err, r.given, n)
		}
		_, err = steps[0].Run(t.Context(), hardware.Call{Args: map[string]json.RawMessage{"x": nil}})
		if err == nil {
			t.Errorf("%s: an unknown argument is not an error", kind)
		}
	}
}
