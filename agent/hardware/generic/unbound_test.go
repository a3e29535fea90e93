package generic

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"ironroot/agent/config"
	"ironroot/agent/hardware"
	"ironroot/internal/sysfs"
	"ironroot/storage/block"
	"ironroot/storage/erase"
)

// addFunction adds a PCI function without a driver to a machine.
func addFunction(t *testing.T, sys sysfs.Root, address, class string) {
	t.Helper()
	for name, text := range map[string]string{"class": class, "vendor": "0x1000", "device": "0x005d"} {
		file := sys.Sys("bus/pci/devices", address, name)
		err := errors.Join(os.MkdirAll(filepath.Dir(file), 0o755), os.WriteFile(file, []byte(text+"\n"), 0o600))
		if err != nil {
			t.Fatal(err)
		}
	}
}

// A storage controller without a driver fails each step, because its disks are not known. If the ramdisk has no
// drivers for it or if the operator names it, it is part of the result instead.
func TestEraseUnboundControllers(t *testing.T) {
	const address = "0000:3b:00.0"
	const controller = "storage controller 1000:005d of class "
	const named = " not examined: named by skip_storage_controllers"
	for name, c := range map[string]struct {
		class, skip string
		info        string // the value in driver_info
		note        string // in the result; "" means an error
	}{
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
		"IDE":        {class: "0x01018a", note: controller + "0x01018a not examined: no driver"},
		"IDE, named": {class: "0x01018a", skip: address, note: controller + "0x01018a" + named},
		"other":      {class: "0x018000", note: controller + "0x018000 not examined: no driver"},
	} {
		m := newManager(t)
		addFunction(t, m.o.System, address, c.class)
		call := hardware.Call{}
		if c.info != "" {
			call.Node = nodeWith(t, `"driver_info": {"skip_storage_controllers": `+c.info+`}`)
		}
		m.o.Config.Update(func(live *config.Config) { live.SkipStorageControllers = strings.Split(c.skip, ",") })
		var log strings.Builder
		m.o.Log = slog.New(slog.NewTextHandler(&log, nil))
		for step, run := range erasing(m) {
			log.Reset()
			result, err := run(t.Context(), call)
			want := fmt.Sprintf("%s: %s%s has no driver, so its disks are not known: ", address, controller, c.class)
			switch {
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
	m := newManager(t, block.Device{Name: "sdz", Path: "/dev/none/sdz"})
	for value, want := range map[string]string{
		`7`:                     "got 7, want a list of PCI addresses",
		`{"3b:00.0": true}`:     "got map[3b:00.0:true], want a list of PCI addresses",
		`["0000:3b:00.0", 4.5]`: "got entry 4.5, want a PCI address",
	} {
		want = "driver_info skip_storage_controllers: " + want
		call := hardware.Call{Node: nodeWith(t, `"driver_info": {"skip_storage_controllers": `+value+`}`)}
		for step, run := range erasing(m) {
			_, err := run(t.Context(), call)
			if typeOf(err) != "BlockDeviceEraseError" || !strings.HasSuffix(errorText(err), want) {
				t.Errorf("%s, %s: got %v, want a BlockDeviceEraseError with %q", value, step, err, want)
			}
		}
	}
}

// Controllers that cannot be listed are an error.
func TestEraseUnboundControllersUnread(t *testing.T) {
	m := newManager(t)
	if err := os.MkdirAll(m.o.System.Sys("bus/pci/devices/0000:3b:00.0/class"), 0o755); err != nil {
		t.Fatal(err)
	}
	var log strings.Builder
	m.o.Log = slog.New(slog.NewTextHandler(&log, nil))
	for step, run := range erasing(m) {
		log.Reset()
		if _, err := run(t.Context(), hardware.Call{}); !errors.Is(err, block.ErrUnreadable) {
			t.Errorf("%s: got %v, want %v", step, err, block.ErrUnreadable)
		}
		if !strings.Contains(log.String(), `level=ERROR msg="storage controllers not examined" err=`) {
			t.Errorf("%s: got log %s, want the error", step, &log)
		}
	}
}

// The controllers are listed at the end of the step: until then drivers may be loaded.
func TestEraseUnboundControllersAtTheEnd(t *testing.T) {
	m := newManager(t)
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
	m := newManager(t)
	addController(t, m.o.System, "nvme0")
	addController(t, m.o.System, "nvme1")
	if err := os.WriteFile(m.o.System.Sys("class/nvme/nvme0/address"), []byte("0000:3b:00.0\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	m.o.Config.Update(func(c *config.Config) { c.SkipStorageControllers = []string{"0000:3b:00.0", ""} })
	m.controller = func(_ context.Context, path string, _ []uint32) (erase.Controller, error) {
		return erase.Controller{}, &fs.PathError{Op: "open", Path: path, Err: fs.ErrNotExist}
	}
	nvme0, nvme1 := m.o.System.Dev("nvme0"), m.o.System.Dev("nvme1")
	for step, run := range erasing(m) {
		_, err := run(t.Context(), hardware.Call{})
		if text := errorText(err); strings.Contains(text, nvme0) || !strings.Contains(text, nvme1+": ") {
			t.Errorf("%s: got %v, want an error of %s only", step, err, nvme1)
		}
	}
	run := startErase(t, m)
	run.examineControllers(t.Context(), unattachedFail)
	got, want := run.reports[nvme0].Untouched[nvme0], "not examined: named by skip_storage_controllers"
	if got != want {
		t.Errorf("got reason %q, want %q", got, want)
	}
}
