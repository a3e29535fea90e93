package cleaning

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"ironroot/agent/config"
	"ironroot/agent/node"
	"ironroot/internal/test/testenv"
	"ironroot/storage/block"
	"ironroot/storage/erase"
	"ironroot/storage/sysfs"
)

// addFunction adds a PCI function without a driver to a machine. Its ID is 1000:005d.
func addFunction(t *testing.T, sys sysfs.Root, address, class string) {
	t.Helper()
	addUnbound(t, sys, address, class, "1000:005d", "")
}

// addUnbound adds a PCI function without a driver to a machine. It decodes I/O ports, of one IDE channel with the
// given alternate status, "" means none.
func addUnbound(t *testing.T, sys sysfs.Root, address, class, id, status string) {
	t.Helper()
	vendor, device, _ := strings.Cut(id, ":")
	config := make([]byte, 64)
	config[0x04] = 1
	files := map[string]string{
		"class": class + "\n", "vendor": "0x" + vendor + "\n", "device": "0x" + device + "\n", "config": string(config),
	}
	if status != "" {
		files["resource"] = "0x1f0 0x1f7 0x110\n0x3f6 0x3f6 0x110\n" + strings.Repeat("0x0 0x0 0x0\n", 5)
		files["resource1"] = status
	}
	for name, text := range files {
		file := sys.Sys("bus/pci/devices", address, name)
		err := errors.Join(os.MkdirAll(filepath.Dir(file), 0o755), os.WriteFile(file, []byte(text), 0o600))
		if err != nil {
			t.Fatal(err)
		}
	}
}

// A storage controller without a driver fails each step, because its disks are not known. If there can be none, or if
// the operator names it, it is part of the result instead.
//
// Parity: P6 (controllers without a driver)
func TestEraseUnboundControllers(t *testing.T) {
	const address = "0000:3b:00.0"
	const controller = "storage controller 1000:005d of class "
	const named = " not examined: named by skip_storage_controllers"
	const unknown = " has no driver, so its disks are not known"
	for name, c := range map[string]struct {
		class, id, status string // without an ID, 1000:005d
		skip, info        string // the option, and the value in driver_info
		note              string // in the result; "" means an error
		err               string // at the end of the error; "" is a function that is not of class IDE
	}{
		"SCSI":              {class: "0x010000"},
		"floppy":            {class: "0x010200"},
		"ATA":               {class: "0x010520"},
		"SAS":               {class: "0x010700"},
		"UFS":               {class: "0x010901"},
		"reserved":          {class: "0x010a00"},
		"NVMe":              {class: "0x010802"},
		"RAID":              {class: "0x010400"},
		"SATA, other named": {class: "0x010601", skip: "0000:3b:00.1,3b:00.1,0001:3b:00.0"},
		"RAID, named": {
			class: "0x010400", skip: "0000:3b:00.1,0000:3B:00.0", note: controller + "0x010400" + named,
		},
		"without its domain": {class: "0x010700", skip: "3b:00.0", note: controller + "0x010700" + named},
		"named in driver_info": {
			class: "0x010400", info: `["0000:5e:00.0", "3b:00.0"]`, note: controller + "0x010400" + named,
		},
		"named in driver_info, as text": {
			class: "0x010400", info: `"0000:5e:00.0, 0000:3B:00.0"`, note: controller + "0x010400" + named,
		},
		"other named in driver_info": {class: "0x010400", skip: "0000:5e:00.0", info: `["0000:5f:00.0"]`},
		"both": {
			class: "0x010400", skip: address, info: `"0000:5f:00.0"`, note: controller + "0x010400" + named,
		},
		"IDE, drive": {
			class: "0x01018a", status: "\x50", err: ": a drive can be there, status 0x50 at I/O port 0x3f6",
		},
		"IDE, perhaps": {
			class: "0x01018a", status: "\x00", err: ": a drive can be there, status 0x00 at I/O port 0x3f6",
		},
		"IDE, unknown": {class: "0x01018a", err: ", and whether a drive answers is not known either: "},
		"IDE, named":   {class: "0x01018a", status: "\x50", skip: address, note: controller + "0x01018a" + named},
		"IDE, named in driver_info": {
			class: "0x01018a", status: "\x50", info: `"3b:00.0"`, note: controller + "0x01018a" + named,
		},
		"IDE, no drive": {
			class: "0x01018a", status: "\xff",
			note: controller + "0x01018a not examined: no driver, no drive answers: status 0xff at I/O port 0x3f6",
		},
		"IDE redirection": {
			class: "0x010185", id: "8086:a1bc", status: "\x50",
			note: "storage controller 8086:a1bc of class 0x010185 not examined: no driver, IDE redirection of the " +
				"management engine, which shows images of a remote console",
		},
		"other":        {class: "0x018000"},
		"other, named": {class: "0x018000", skip: address, note: controller + "0x018000" + named},
		"PCI Express switch": {
			class: "0x018000", id: "1000:c010",
			note: "storage controller 1000:c010 of class 0x018000 not examined: no driver, management function of a " +
				"PCI Express switch",
		},
		"ID of a switch, SAS": {class: "0x010700", id: "1000:c010"},
	} {
		m := newMachine(t)
		id := c.id
		if id == "" {
			id = "1000:005d"
		}
		addUnbound(t, m.o.System, address, c.class, id, c.status)
		var n *node.Node
		if c.info != "" {
			n = nodeWith(t, `"driver_info": {"skip_storage_controllers": `+c.info+`}`)
		}
		m.o.Config.Update(func(live *config.Config) { live.SkipStorageControllers = strings.Split(c.skip, ",") })
		var log strings.Builder
		m.o.Log = slog.New(slog.NewTextHandler(&log, nil))
		for step, run := range erasing(m) {
			log.Reset()
			result, err := run(t.Context(), n)
			want := fmt.Sprintf("%s: storage controller %s of class %s%s%s", address, id, c.class, unknown, c.err)
			switch {
			case c.note == "" && !strings.Contains(errorText(err), "or name the address in skip_storage_controllers"):
				t.Errorf("%s, %s: got %v, want an error that names skip_storage_controllers", name, step, err)
			case c.note == "" && (typeOf(err) != "BlockDeviceEraseError" || !strings.Contains(err.Error(), want)):
				t.Errorf("%s, %s: got %v, want a BlockDeviceEraseError with %q", name, step, err, want)
			case c.note == "" && !strings.Contains(log.String(), `level=ERROR msg="disk not erased" device=`+address):
				t.Errorf("%s, %s: got log %s, want an error of %s", name, step, &log, address)
			case c.note != "" && err != nil:
				t.Errorf("%s, %s: %v", name, step, err)
			case c.note != "":
				sameResult(t, result, map[string]diskReport{address: {Untouched: map[string]string{address: c.note}}})
				if !strings.Contains(log.String(), `level=WARN msg="device left untouched" device=`+address) {
					t.Errorf("%s, %s: got log %s, want a warning of %s", name, step, &log, address)
				}
			}
		}
	}
}

// An invalid value in driver_info fails the step before a disk is written.
func TestEraseUnusedControllersInvalid(t *testing.T) {
	m := newMachine(t, block.Device{Name: "sdz", Path: "/dev/none/sdz"})
	for value, want := range map[string]string{
		`7`:                     "got 7, want a list of PCI addresses",
		`{"3b:00.0": true}`:     "got map[3b:00.0:true], want a list of PCI addresses",
		`["0000:3b:00.0", 4.5]`: "got entry 4.5, want a PCI address",
	} {
		want = "driver_info skip_storage_controllers: " + want
		n := nodeWith(t, `"driver_info": {"skip_storage_controllers": `+value+`}`)
		for step, run := range erasing(m) {
			_, err := run(t.Context(), n)
			if typeOf(err) != "" || !strings.HasSuffix(errorText(err), want) {
				t.Errorf("%s, %s: got %v, want an error without a type that ends with %q", value, step, err, want)
			}
		}
	}
}

// refusing has the modules whose modalias matches storage controllers that they do not drive: by their class, or by the
// manufacturer and the class.
var refusing = map[string]func(testenv.Controller) bool{
	// It has an own list of IDE controllers, and drives IDE redirection only if its ports are switched on.
	"ata_generic": func(testenv.Controller) bool { return true },
	// It drives arrays of disks by their subsystem, of which this is none.
	"hpsa": func(c testenv.Controller) bool { return c.ID == "103c:193f" },
}

// unboundOfServers has the controllers of recorded servers that the image does not drive, and what a step does for
// them. Each was reviewed.
var unboundOfServers = []string{
	// PERC S300: software RAID that has drivers for Windows only. The disks on it are not known.
	"Dell PowerEdge R410: 010400:1028:0016 fails",
	// The SAS unit of a C600 chipset under an ID that Linux does not know, FreeBSD does. It can have disks.
	"Fujitsu PRIMERGY RX200 S8: 010700:8086:1d6f fails",

	// iLO's function for the software RAID of disks that AHCI controllers have. It has no disks itself, but is a RAID
	// controller by its class. The kernel's log has "hpsa: unrecognized board ID" and a timeout.
	"HPE ProLiant Gen10 with iLO 5: 010400:103c:193f fails",
	"HPE ProLiant ML110 Gen10: 010400:103c:193f fails",
	// The iSCSI function of network cards. It can have disks of a network only, but is a SCSI controller by its class.
	"HP ProLiant DL20 Gen9: 010000:1425:5501 fails",
	"Supermicro X10SLM+-LN4F: 010000:1425:4501 fails",
	"Supermicro X8DTH-i-6-iF-6F: 010000:1425:4501 fails",

	// IDE redirection.
	"Dell Precision 7820 Tower: 010185:8086:a1bc noted",
	"Lenovo ThinkStation P720 30BAS1HX00: 010185:8086:a1bc noted",
	// The management function of a PCI Express switch. Disks behind the switch have controllers of their own.
	"Fujitsu PRIMERGY RX2540 M6: 018000:1000:c010 noted",
	"NVIDIA DGX A100: 018000:1000:c010 noted",
}

// Steps succeed for recorded servers, except for those with controllers that the image does not drive and that can have
// disks. In the worst case, a drive answers behind each IDE controller.
func TestEraseServers(t *testing.T) {
	var got []string
	servers := testenv.Servers(t)
	if got, want := len(servers), 100; got < want {
		t.Errorf("got %d servers, want at least %d", got, want)
	}
	for _, server := range servers {
		m := newMachine(t)
		unbound := map[string]string{}
		for i, c := range server.Controllers {
			driven := slices.ContainsFunc(c.Modules, func(module string) bool {
				refuses := refusing[module]
				return refuses == nil || !refuses(c)
			})
			if !driven {
				address := fmt.Sprintf("0000:%02x:00.0", i)
				unbound[address] = c.Class + ":" + c.ID
				addUnbound(t, m.o.System, address, "0x"+c.Class, c.ID, "\x50")
			}
		}
		run := startErase(t, m)
		run.examineUnbound(t.Context())
		failures := errorText(run.results.err())
		if (failures != "") != strings.Contains(failures, "has no driver") {
			t.Errorf("%s: got %s", server.Model, failures)
		}
		for address, controller := range unbound {
			verdict := "fails"
			if run.results.reports()[address].Untouched[address] != "" {
				verdict = "noted"
			}
			if strings.Contains(failures, address+": ") != (verdict == "fails") {
				t.Errorf("%s: got %s for %s, want that it %s", server.Model, failures, address, verdict)
			}
			got = append(got, server.Model+": "+controller+" "+verdict)
		}
	}
	slices.Sort(got)
	want := slices.Sorted(slices.Values(unboundOfServers))
	if diff := cmp.Diff(want, slices.Compact(got)); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

// Controllers that cannot be listed are an error.
func TestEraseUnboundControllersUnread(t *testing.T) {
	m := newMachine(t)
	if err := os.MkdirAll(m.o.System.Sys("bus/pci/devices/0000:3b:00.0/class"), 0o755); err != nil {
		t.Fatal(err)
	}
	var log strings.Builder
	m.o.Log = slog.New(slog.NewTextHandler(&log, nil))
	for step, run := range erasing(m) {
		log.Reset()
		if _, err := run(t.Context(), nil); !errors.Is(err, block.ErrUnreadable) {
			t.Errorf("%s: got %v, want %v", step, err, block.ErrUnreadable)
		}
		if !strings.Contains(log.String(), `level=ERROR msg="storage controllers not examined" err=`) {
			t.Errorf("%s: got log %s, want the error", step, &log)
		}
	}
}

// The controllers are listed at the end of the step: until then drivers may be loaded.
func TestEraseUnboundControllersAtTheEnd(t *testing.T) {
	m := newMachine(t)
	addFunction(t, m.o.System, "0000:3b:00.0", "0x010802")
	run := startErase(t, m)
	if err := os.Symlink("../nvme", m.o.System.Sys("bus/pci/devices/0000:3b:00.0/driver")); err != nil {
		t.Fatal(err)
	}
	if result, err := run.end(t.Context(), unattachedFail); err != nil {
		t.Errorf("got %v and %v, want no error", result, err)
	}
}

// An NVMe controller that the operator names is not examined: its firmware can have failed after the driver was bound.
func TestEraseUnusedNVMeController(t *testing.T) {
	m := newMachine(t)
	addController(t, m.o.System, "nvme0")
	addController(t, m.o.System, "nvme1")
	if err := os.WriteFile(m.o.System.Sys("class/nvme/nvme0/address"), []byte("0000:3b:00.0\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	m.o.Config.Update(func(c *config.Config) { c.SkipStorageControllers = []string{"0000:3b:00.0", ""} })
	fake(m).controller = func(_ context.Context, path string, _ []uint32) (erase.Controller, error) {
		return erase.Controller{}, &fs.PathError{Op: "open", Path: path, Err: fs.ErrNotExist}
	}
	nvme0, nvme1 := m.o.System.Dev("nvme0"), m.o.System.Dev("nvme1")
	for step, run := range erasing(m) {
		_, err := run(t.Context(), nil)
		if text := errorText(err); strings.Contains(text, nvme0) || !strings.Contains(text, nvme1+": ") {
			t.Errorf("%s: got %v, want an error of %s only", step, err, nvme1)
		}
	}
	run := startErase(t, m)
	run.examineControllers(t.Context(), unattachedFail)
	got, want := run.results.reports()[nvme0].Untouched[nvme0], "not examined: named by skip_storage_controllers"
	if got != want {
		t.Errorf("got reason %q, want %q", got, want)
	}
}
