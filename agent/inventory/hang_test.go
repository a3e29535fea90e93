package inventory

import (
	"bytes"
	"context"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"ironroot/agent/config"
	"ironroot/agent/inventory/machinetest"
	"ironroot/storage/sysfs"
)

// Ways in which a file of sysfs can fail.
const (
	hangs  = "hangs"
	fails  = "fails"     // EIO
	denied = "is denied" // EACCES, for root too
)

// spoil replaces a file by one that fails.
func spoil(t *testing.T, path, how string) {
	t.Helper()
	err := os.Remove(path)
	if err != nil {
		t.Fatal(err)
	}
	switch how {
	case hangs: // a pipe without a writer
		err = unix.Mkfifo(path, 0o600)
		t.Cleanup(func() { // ends the read that still blocks
			if f, err := os.OpenFile(path, os.O_RDWR, 0); err == nil {
				_ = f.Close()
			}
		})
	case fails: // nothing is mapped at address 0
		err = os.Symlink("/proc/self/mem", path)
	case denied: // a command of the kernel, which cannot be read
		err = os.Symlink("/proc/sys/net/ipv4/route/flush", path)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// If a file hangs or fails, only its fact is missing, a warning names it, and the delay is limited. All other facts are
// reported.
func TestSpoiltFiles(t *testing.T) {
	const disk = "sys/class/block/sda/"
	none := ""
	intact, err := New(Options{System: machinetest.System(t, "dell-r640")}).Collect(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	// No file but the one that hangs reaches the limit on a busy machine. All cases wait for it at the same time.
	const limit = 10 * time.Second
	var cases sync.WaitGroup
	for _, tt := range []struct {
		file string
		lost func(*Inventory)
	}{
		{"sys/class/dmi/id/product_serial", func(i *Inventory) { i.SystemVendor.SerialNumber = none }},
		{"sys/class/dmi/id/bios_version", func(i *Inventory) { i.SystemVendor.Firmware.Version = none }},
		{"sys/firmware/dmi/tables/DMI", func(i *Inventory) { i.Memory.PhysicalMB = nil }},
		{"sys/firmware/dmi/tables/smbios_entry_point", func(i *Inventory) { i.Memory.PhysicalMB = nil }},
		{"proc/meminfo", func(i *Inventory) { i.Memory.Total = 0 }},
		{"proc/cpuinfo", func(i *Inventory) { i.CPU.ModelName, i.CPU.Flags = none, []string{} }},
		{"proc/sys/kernel/hostname", func(i *Inventory) { i.Hostname = none }},
		{"sys/devices/system/cpu/cpu1/cpufreq/cpuinfo_max_freq", func(*Inventory) {}}, // others have it too
		{"sys/devices/system/cpu/cpu1/topology/physical_package_id", func(*Inventory) {}},
		{"sys/class/net/eno1/address", func(i *Inventory) { i.Interfaces = i.Interfaces[1:] }},
		{"sys/class/net/enp59s0f0/speed", func(i *Inventory) { i.Interfaces[4].SpeedMbps = nil }},
		{"sys/class/net/eno1/device/vendor", func(i *Inventory) { i.Interfaces[0].Vendor = nil }},
		{disk + "size", func(i *Inventory) { i.Disks = i.Disks[1:] }},
		{disk + "queue/logical_block_size", func(i *Inventory) { i.Disks[0].LogicalSectors = 512 }},
		{disk + "device/model", func(i *Inventory) { i.Disks[0].Model = nil }},
		{disk + "device/vendor", func(i *Inventory) { i.Disks[0].Vendor = nil }},
	} {
		cases.Go(func() {
			t.Run(tt.file, func(t *testing.T) {
				sys := machinetest.System(t, "dell-r640")
				path, err := filepath.EvalSymlinks(filepath.Join(sys.Path, tt.file))
				if err != nil {
					t.Fatal(err)
				}
				for _, how := range []string{hangs, fails, denied} {
					want := *intact
					want.Interfaces, want.Disks = slices.Clone(want.Interfaces), slices.Clone(want.Disks)
					tt.lost(&want)
					spoil(t, path, how)
					var log bytes.Buffer
					sys.Files = &sysfs.Reader{Limit: limit, Log: slog.New(slog.NewTextHandler(&log, nil))}
					started := time.Now()
					got, err := New(Options{System: sys}).Collect(t.Context())
					if err != nil {
						t.Fatal(err)
					}
					if took := time.Since(started); took > 10*limit { // far above the limit, for busy machines
						t.Errorf("%s: got the inventory after %v, want it within %v", how, took, 10*limit)
					}
					if diff := cmp.Diff(&want, got); diff != "" {
						t.Errorf("%s: inventory differs (-want +got):\n%s", how, diff)
					}
					if !strings.Contains(log.String(), "level=WARN") ||
						!strings.Contains(log.String(), filepath.Base(path)) {
						t.Errorf("%s: got the log %q, want a warning that names %s", how, &log, filepath.Base(path))
					}
				}
			})
		})
	}
	cases.Wait()
}

// Without a Reader, a Source has its own, which logs to the Source's log.
func TestOwnReader(t *testing.T) {
	sys := machinetest.System(t, "qemu-q35")
	spoil(t, filepath.Join(sys.Path, "sys/class/dmi/id/product_serial"), fails)
	var log bytes.Buffer
	s := New(Options{System: sys, Log: slog.New(slog.NewTextHandler(&log, nil))})
	for range 2 {
		if _, err := s.Collect(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if got := strings.Count(log.String(), "product_serial"); got != 1 {
		t.Errorf("got the log %q, want one warning that names the file", &log)
	}
}

// If all files hang, the inventory lacks most facts and is returned in time.
func TestEverythingHangs(t *testing.T) {
	sys := machinetest.System(t, "dell-r640")
	const limit = 200 * time.Millisecond
	var files []string
	directories := map[string]bool{}
	err := filepath.WalkDir(sys.Path, func(path string, entry fs.DirEntry, err error) error {
		if err == nil && entry.Type().IsRegular() {
			files, directories[filepath.Dir(path)] = append(files, path), true
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		spoil(t, file, hangs)
	}
	sys.Files = &sysfs.Reader{Limit: limit}
	started := time.Now()
	source := New(Options{
		System: sys, Config: config.NewLive(&config.Config{Params: config.Params{"BOOTIF": "01-52-54-00-1a-15-d6"}}),
	})
	inv, err := source.Collect(t.Context())
	if err != nil || inv.Boot.PXEInterface == nil {
		t.Errorf("got %+v and %v, want an inventory", inv, err)
	}
	first := time.Since(started)
	// The first file of a directory takes the whole limit. One after another they would take this long, on any machine.
	if most := time.Duration(len(directories)) * limit / 2; first > most {
		t.Errorf("got the inventory after %v, want it within %v", first, most)
	}
	sys.Files.Limit = 10 * time.Minute // for a retry; a tenth of it if other files have hung
	started = time.Now()
	if _, err := source.Collect(t.Context()); err != nil {
		t.Error(err)
	}
	if second := time.Since(started); second >= sys.Files.Limit/10 {
		t.Errorf("got the second inventory after %v, want it at once: what hangs is known", second)
	}
}

// deafBMC does not answer until the test ends.
type deafBMC struct{ until <-chan struct{} }

func (b deafBMC) LAN(byte, byte, byte) ([]byte, error) {
	<-b.until
	return nil, context.Canceled
}

func (deafBMC) Close() error { return nil }

func TestBMCHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sys := tree(t, "testdata/qemu.tree")
		put(t, sys.Path, "dev/ipmi0", func(path string) error { return os.Symlink("/dev/null", path) })
		var log bytes.Buffer
		s := New(Options{System: sys, Log: slog.New(slog.NewTextHandler(&log, nil))})
		over := make(chan struct{})
		s.o.BMC = opener(func(string) (BMC, error) { return deafBMC{over}, nil })
		for _, want := range []time.Duration{bmcTimeout, 0} { // it is asked once in the process's life
			started := time.Now()
			if got := s.bmc(t.Context()); got != (bmcAddresses{}) {
				t.Errorf("got %+v, want nothing", got)
			}
			if took := time.Since(started); took != want {
				t.Errorf("got an answer after %v, want one after %v", took, want)
			}
		}
		if !strings.Contains(log.String(), "BMC did not answer") || !strings.Contains(log.String(), "ipmi0") {
			t.Errorf("got the log %q, want a warning that names the device", &log)
		}
		close(over)
	})
}
