package imaging

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"ironroot/agent/config"
	"ironroot/agent/node"
	"ironroot/agent/softraid"
	"ironroot/internal/test/disktest"
	"ironroot/storage/block"
	"ironroot/storage/raid"
	"ironroot/storage/sysfs"
)

func flag(value bool) *bool { return &value }

// arrayDisk is an array among the disks of a fake machine. It has the metadata in sysfs that the check for booting
// reads.
func arrayDisk(t *testing.T, sys sysfs.Root, size int64) block.Device {
	t.Helper()
	for file, text := range map[string]string{"md/metadata_version": "1.2\n", "slaves/none": ""} {
		path := sys.Sys("class/block/md0", file)
		err := os.MkdirAll(filepath.Dir(path), 0o755)
		if err = errors.Join(err, os.WriteFile(path, []byte(text), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	return block.Device{Name: "md0", Path: "/dev/md0", Type: "raid1", Size: size}
}

// fakeHardware implements [Hardware] by functions, which can be nil.
type fakeHardware struct {
	wait     func(n *node.Node) error
	assemble func() ([]*softraid.Volume, error)
	release  func(except string) error
}

func (h fakeHardware) WaitDisks(_ context.Context, n *node.Node) error {
	if h.wait == nil {
		return nil
	}
	return h.wait(n)
}

func (h fakeHardware) AssembleVolumes(context.Context, *node.Node) (softraid.Assembled, error) {
	if h.assemble == nil {
		return softraid.Assembled{}, nil
	}
	volumes, err := h.assemble()
	return softraid.Assembled{Volumes: volumes}, err
}

func (h fakeHardware) ReleaseVolumes(_ context.Context, _ softraid.Assembled, except string) error {
	if h.release == nil {
		return nil
	}
	return h.release(except)
}

// A root volume is the root disk. Another array is not if is_root_volume is false, nor are its disks. Without the flag
// the size decides. Arrays that were started are stopped, except the root disk.
//
// Parity: J5
func TestDeployDisk(t *testing.T) {
	incomplete := errors.New("got 1 members, want 2")
	const hints = `"properties": {"root_device": {"name": "/dev/sdc"}}`
	for name, tt := range map[string]struct {
		root   *bool
		err    error
		fields string
		size   int64 // of the array
		want   string
		fails  string
	}{
		"root volume":           {flag(true), nil, `"properties": {}`, 9 * gib, "/dev/md0", ""},
		"root volume and hints": {flag(true), nil, hints, 9 * gib, "/dev/md0", ""},
		"not root":              {flag(false), nil, `"properties": {}`, 4 * gib, "/dev/sdc", ""},
		"not root, hints": {
			flag(false), nil, `"properties": {"root_device": {"name": "/dev/sda"}}`, 4 * gib, "", "no suitable disk",
		},
		"no flag, smallest": {nil, nil, `"properties": {}`, 4 * gib, "/dev/md0", ""},
		"no flag, larger":   {nil, nil, `"properties": {}`, 9 * gib, "/dev/sda", ""},
		"no flag, hint": {
			nil, nil, `"properties": {"root_device": {"name": "/dev/md0"}}`, 9 * gib, "/dev/md0", "",
		},
		"incomplete root volume": {flag(true), incomplete, hints, 9 * gib, "", "got 1 members"},
		"incomplete":             {nil, incomplete, hints, 9 * gib, "/dev/sdc", ""},
	} {
		t.Run(name, func(t *testing.T) {
			sys := sysfs.Root{Path: t.TempDir()}
			array := arrayDisk(t, sys, tt.size)
			disks := []block.Device{
				{Name: "sda", Path: "/dev/sda", Type: "disk", Size: 5 * gib},
				{Name: "sdb", Path: "/dev/sdb", Type: "disk", Size: 5 * gib},
				{Name: "sdc", Path: "/dev/sdc", Type: "disk", Size: 8 * gib},
			}
			i := newImager(t, testNode(t, `{"uuid": "u", `+tt.fields+`}`))
			i.o.System = sys
			assembled, released := false, []string{}
			i.o.Disks = disktest.Lister(func(context.Context) ([]block.Device, error) {
				if assembled && tt.err == nil {
					return append(slices.Clone(disks), array), nil
				}
				return disks, nil
			})
			i.o.Hardware = fakeHardware{assemble: func() ([]*softraid.Volume, error) {
				assembled = true
				v := &softraid.Volume{Name: "root", Root: tt.root, Running: array.Path, Members: raid.Array{
					{Disk: disks[0]}, {Disk: disks[1]},
				}}
				if tt.err != nil {
					v = &softraid.Volume{Name: "root", Root: tt.root, Err: tt.err}
				}
				return []*softraid.Volume{v}, nil
			}, release: func(except string) error {
				released = append(released, except)
				return nil
			}}
			got, err := i.DeployDisk(t.Context(), false)
			if got.Path != tt.want || (tt.want == "") != (typeOf(err) == "DeviceNotFound") ||
				!strings.Contains(errorText(err), tt.fails) {
				t.Errorf("got %q and %v, want %q or an error with %q", got.Path, err, tt.want, tt.fails)
			}
			if !slices.Equal(released, []string{tt.want}) {
				t.Errorf("released all arrays except %q, want %q", released, tt.want)
			}
		})
	}
}

func errorText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// RootDisk, which the inspection calls, assembles no arrays.
func TestRootDiskAssemblesNothing(t *testing.T) {
	disk := block.Device{Name: "sda", Path: "/dev/sda", Type: "disk", Size: 5 * gib}
	i := newImager(t, testNode(t, `{"uuid": "u"}`), disk)
	i.o.Hardware = fakeHardware{assemble: func() ([]*softraid.Volume, error) {
		t.Error("arrays were assembled")
		return nil, nil
	}}
	if _, err := i.RootDisk(t.Context(), true); err != nil {
		t.Fatal(err)
	}
}

// Errors of the arrays end the choice.
func TestDeployDiskFails(t *testing.T) {
	broken := errors.New("broken")
	disk := block.Device{Name: "sda", Path: "/dev/sda", Type: "disk", Size: 5 * gib}
	for name, hardware := range map[string]fakeHardware{
		"assembly": {assemble: func() ([]*softraid.Volume, error) { return nil, broken }},
		"release":  {release: func(string) error { return broken }},
	} {
		i := newImager(t, testNode(t, `{"uuid": "u"}`), disk)
		i.o.Hardware = hardware
		got, err := i.DeployDisk(t.Context(), false)
		if typeOf(err) != "DeviceNotFound" || !errors.Is(err, broken) || got.Path != "" {
			t.Errorf("%s: got %q and %v, want DeviceNotFound", name, got.Path, err)
		}
	}
}

// An image is not written to an array that firmware cannot boot from, unless the boot loader may fail.
func TestPrepareArray(t *testing.T) {
	for _, ignore := range []bool{false, true} {
		sys := sysfs.Root{Path: t.TempDir()}
		array := arrayDisk(t, sys, 9*gib)
		i := newImager(t, testNode(t, `{"uuid": "u"}`), array)
		i.o.System = sys
		i.o.Config.Update(func(c *config.Config) { c.IgnoreBootloaderFailure = ignore })
		_, err := i.Prepare(t.Context(), ImageInfo{ID: "id", Source: source("http://127.0.0.1:1/", "", Digest{})}, "")
		const text = "firmware cannot read this RAID array"
		if refused := typeOf(err) == "ImageWriteError" && strings.Contains(errorText(err), text); refused == ignore ||
			err == nil {
			t.Errorf("ignore %v: got %v, want an ImageWriteError: %v", ignore, err, !ignore)
		}
	}
}
