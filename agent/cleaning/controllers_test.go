package cleaning

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"ironroot/internal/test/raidtest"
	"ironroot/internal/test/testenv"
	"ironroot/storage/block"
	"ironroot/storage/erase"
	"ironroot/storage/sysfs"
)

// addController adds a controller on PCI Express with namespaces to a machine.
func addController(t *testing.T, sys sysfs.Root, name string, namespaces ...string) {
	t.Helper()
	dir := sys.Sys("class/nvme", name)
	for _, directory := range append([]string{"."}, namespaces...) {
		if err := os.MkdirAll(filepath.Join(dir, directory), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(dir, "transport"), []byte("pcie\n"), 0o600); err != nil {
		t.Fatal(err)
	}
}

// addNamespaces adds block devices for namespaces. The id of nvmeXnY is Y.
func addNamespaces(t *testing.T, sys sysfs.Root, names ...string) {
	t.Helper()
	raidtest.ListDisks(t, sys, "2048", names...)
	for _, name := range names {
		id := name[strings.LastIndex(name, "n")+1:]
		if err := os.WriteFile(sys.Sys("block", name, "nsid"), []byte(id+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// unattached is a controller of a private subsystem with an unattached namespace.
var unattached = erase.Controller{
	NotErased: "not erased: namespace 2, not attached to this controller",
	Remains:   fmt.Errorf("%w: namespace 2, not attached to the NVMe controller", erase.ErrRemains),
}

// Each step reads the namespaces of a controller without a block device.
func TestEraseExaminesControllers(t *testing.T) {
	broken := errors.New("broken")
	const info = `level=INFO msg="NVMe controller has no namespaces" device=`
	for name, c := range map[string]struct {
		found erase.Controller
		err   error
		want  map[string]string // text of the error by step; "" means all steps
		is    error
		note  string // in the result of the steps that succeed
		log   bool   // that there are no namespaces
	}{
		"private": {
			found: unattached, is: erase.ErrRemains, note: unattached.NotErased,
			want: map[string]string{
				"erase_devices":         "data remain out of reach: namespace 2, not attached to the NVMe controller",
				"erase_devices_express": "data remain out of reach: namespace 2, not attached to the NVMe controller",
			},
		},
		"shared": {
			found: erase.Controller{NotErased: "the NVMe subsystem is shared"}, note: "the NVMe subsystem is shared",
		},
		"unused": {
			found: erase.Controller{NoDevice: "namespaces 1, 2"},
			want:  map[string]string{"": "the kernel has no block device for namespaces 1, 2 of this NVMe controller"},
		},
		"unused and unattached": {
			found: erase.Controller{
				NoDevice: "namespace 1", NotErased: unattached.NotErased, Remains: unattached.Remains,
			},
			want: map[string]string{"": "the kernel has no block device for namespace 1 of this NVMe controller"},
		},
		"unreadable":    {err: broken, want: map[string]string{"": "broken"}, is: broken},
		"no namespaces": {log: true},
	} {
		m := newMachine(t)
		addController(t, m.o.System, "nvme0")
		addController(t, m.o.System, "nvme1", "nvme1n1") // one that the kernel has no block device for
		asked := map[string]int{}
		fake(m).controller = func(_ context.Context, path string, _ []uint32) (erase.Controller, error) {
			asked[path]++
			return c.found, c.err
		}
		var log strings.Builder
		m.o.Log = slog.New(slog.NewTextHandler(&log, nil))
		for step, run := range erasing(m) {
			log.Reset()
			clear(asked)
			result, err := run(t.Context(), nil)
			want := map[string]diskReport{}
			for _, controller := range []string{m.o.System.Dev("nvme0"), m.o.System.Dev("nvme1")} {
				if asked[controller] != 1 || len(asked) != 2 {
					t.Errorf("%s, %s: got controllers %v asked, want each once", name, step, asked)
				}
				text := c.want[step] + c.want[""]
				line := controller + ": " + text
				if text != "" && (typeOf(err) != "BlockDeviceEraseError" || !strings.Contains(err.Error(), line)) {
					t.Errorf("%s, %s: got %v, want a BlockDeviceEraseError with %q", name, step, err, line)
				}
				if c.note != "" {
					want[controller] = diskReport{Untouched: map[string]string{controller: c.note}}
				}
				if strings.Contains(log.String(), info+controller+"\n") != c.log {
					t.Errorf("%s, %s: got log %s, want a message that there are no namespaces: %v",
						name, step, &log, c.log)
				}
			}
			if c.want[step]+c.want[""] != "" {
				if c.is != nil && !errors.Is(err, c.is) {
					t.Errorf("%s, %s: got %v, want %v", name, step, err, c.is)
				}
				continue
			}
			if err != nil {
				t.Errorf("%s, %s: %v", name, step, err)
			}
			sameResult(t, result, want)
			if logged := strings.Count(log.String(), `msg="device left untouched"`); logged != len(want) {
				t.Errorf("%s, %s: got %d devices logged as untouched, want %d:\n%s",
					name, step, logged, len(want), &log)
			}
		}
	}
}

// The namespaces of a disk that the operator protects are kept, and so are the unattached ones of its subsystem.
func TestEraseSkippedControllers(t *testing.T) {
	for name, c := range map[string]struct {
		found erase.Controller
		err   error
		note  string
	}{
		"unattached": {
			found: erase.Controller{NotErased: unattached.NotErased, Remains: unattached.Remains},
			note:  unattached.NotErased,
		},
		"without a block device": {
			found: erase.Controller{NoDevice: "namespace 2"},
			note:  "not erased: namespace 2, for which the kernel has no block device",
		},
		"both": {
			found: erase.Controller{
				NoDevice: "namespace 3", NotErased: unattached.NotErased, Remains: unattached.Remains,
			},
			note: "not erased: namespace 3, for which the kernel has no block device; " + unattached.NotErased,
		},
		"no others": {},
		"unreadable": {
			err: errors.New("broken"), note: "namespaces without a block device, if any, are not known: broken",
		},
	} {
		disk := block.Device{Name: "nvme0n1", Path: "/dev/nvme0n1", Type: "disk", Size: mib}
		m := newMachine(t, disk)
		addNamespaces(t, m.o.System, "nvme0n1")
		addController(t, m.o.System, "nvme0", "nvme0n1")
		controller := m.o.System.Dev("nvme0")
		fake(m).controller = func(_ context.Context, path string, _ []uint32) (erase.Controller, error) {
			if path != controller {
				t.Errorf("%s: %s was asked", name, path)
			}
			return c.found, c.err
		}
		var log strings.Builder
		m.o.Log = slog.New(slog.NewTextHandler(&log, nil))
		want := map[string]diskReport{
			disk.Path: {Untouched: map[string]string{disk.Path: "named by skip_block_devices"}},
		}
		if c.note != "" {
			want[controller] = diskReport{Untouched: map[string]string{controller: c.note}}
		}
		skip := nodeWith(t, `"properties": {"skip_block_devices": [{"name": "/dev/nvme0n1"}]}`)
		for step, run := range erasing(m) {
			log.Reset()
			result, err := run(t.Context(), skip)
			if err != nil {
				t.Errorf("%s, %s: %v", name, step, err)
			}
			sameResult(t, result, want)
			if strings.Contains(log.String(), "has no namespaces") {
				t.Errorf("%s, %s: got log %s, want no message that there are no namespaces", name, step, &log)
			}
		}
	}
}

// A controller is examined even if one of its namespaces was erased: others can lack a block device, or be protected.
// The unattached ones are part of the report of the namespace that was erased.
func TestEraseAsksAllControllers(t *testing.T) {
	broken := errors.New("broken")
	for name, c := range map[string]struct {
		found erase.Controller
		err   error
		want  string // in the error; "" for none
	}{
		"all shown":  {},
		"unattached": {found: unattached},
		"hidden": {
			found: erase.Controller{NoDevice: "namespace 3"}, want: "the kernel has no block device for namespace 3",
		},
		"hidden and unattached": {
			found: erase.Controller{
				NoDevice: "namespace 3", NotErased: unattached.NotErased, Remains: unattached.Remains,
			},
			want: "the kernel has no block device for namespace 3",
		},
		"unreadable": {err: broken, want: "broken"},
	} {
		for _, policy := range []unattachedPolicy{unattachedNoted, unattachedFail} {
			m := newMachine(t)
			run := startErase(t, m)
			erased, protected := block.Device{Path: "/dev/nvme7n2"}, block.Device{Path: "/dev/nvme7n1"}
			run.record(erased, diskReport{Erased: map[string]erase.Report{erased.Path: {Technique: erase.NVMeUser}}})
			run.record(protected, untouched(protected, "named by skip_block_devices"))
			addController(t, m.o.System, "nvme7", "nvme7n1", "nvme7n2")
			addNamespaces(t, m.o.System, "nvme7n1", "nvme7n2")
			var asked [][]uint32
			fake(m).controller = func(_ context.Context, _ string, shown []uint32) (erase.Controller, error) {
				asked = append(asked, shown)
				return c.found, c.err
			}
			run.examineControllers(t.Context(), policy)
			result, err := run.finish()
			if text := errorText(err); text == "" != (c.want == "") || !strings.Contains(text, c.want) {
				t.Errorf("%s: got %v, want %q", name, err, c.want)
			}
			if c.want == "" && len(result.(map[string]any)) != 2 {
				t.Errorf("%s: got result %v, want that of the two disks", name, result)
			}
			if diff := cmp.Diff([][]uint32{{1, 2}}, asked); diff != "" {
				t.Errorf("%s: asked with the shown namespaces (-want +got):\n%s", name, diff)
			}
		}
	}
}

// A namespace counts as examined if it was erased, or was not erased because of an error.
func TestEraseExamined(t *testing.T) {
	run := startErase(t, newMachine(t))
	erased, protected := block.Device{Path: "/dev/nvme7n2"}, block.Device{Path: "/dev/nvme7n1"}
	run.record(erased, diskReport{Erased: map[string]erase.Report{erased.Path: {Technique: erase.NVMeUser}}})
	run.record(protected, untouched(protected, "named by skip_block_devices"))
	run.record(block.Device{Path: "/dev/failed"}, diskReport{})
	for device, want := range map[string]bool{
		erased.Path: true, protected.Path: false, "/dev/failed": true, "/dev/unlisted": false,
	} {
		if got := run.wasErased(block.NVMeNamespace{Path: device}); got != want {
			t.Errorf("%s: got examined %v, want %v", device, got, want)
		}
	}
}

// A controller is examined with the context of its step, and not after the context has ended.
func TestEraseControllersCancelled(t *testing.T) {
	m := newMachine(t)
	addController(t, m.o.System, "nvme0")
	ctx, cancel := context.WithCancel(t.Context())
	asked := 0
	fake(m).controller = func(ctx context.Context, _ string, _ []uint32) (erase.Controller, error) {
		asked++
		cancel()
		return erase.Controller{}, ctx.Err()
	}
	for _, when := range []string{"while it is asked", "before"} {
		run := startErase(t, m)
		run.examineControllers(ctx, unattachedFail)
		if _, err := run.finish(); !errors.Is(err, context.Canceled) || asked != 1 {
			t.Errorf("cancelled %s: got %v and %d controllers asked, want %v and 1", when, err, asked, context.Canceled)
		}
	}
}

// A controller that cannot be opened or described is an error of that controller alone.
func TestEraseControllerErrors(t *testing.T) {
	path := testenv.Loop(t, testenv.SparseFile(t, diskSize), 512)
	disk := block.Device{Name: filepath.Base(path), Path: path, Type: "disk", Size: diskSize}
	m := newMachine(t, disk)
	raidtest.ListDisks(t, m.o.System, strconv.Itoa(diskSize/512), disk.Name)
	if err := os.WriteFile(m.o.System.Sys("class/block", disk.Name, "ro"), []byte("0\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, dir := range []string{"class/nvme/nvme1/transport", "class/nvme/nvme2"} {
		if err := os.MkdirAll(m.o.System.Sys(dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	addController(t, m.o.System, "nvme0")
	_, err := m.EraseMetadata(t.Context(), nil)
	if typeOf(err) != "BlockDeviceEraseError" || !errors.Is(err, fs.ErrNotExist) || !errors.Is(err, unix.EISDIR) {
		t.Fatalf("got %v, want %v and %v", err, fs.ErrNotExist, unix.EISDIR)
	}
	for _, text := range []string{
		"erased: " + path + " (metadata); not erased: ",
		m.o.System.Dev("nvme0") + ": read the NVMe namespaces of ", "NVMe controller nvme1: ",
	} {
		if !strings.Contains(err.Error(), text) {
			t.Errorf("got %v, want an error with %q", err, text)
		}
	}
}
