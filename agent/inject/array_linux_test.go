package inject

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"ironroot/agent/node"
	"ironroot/agent/softraid"
	"ironroot/internal/test/raidtest"
	"ironroot/internal/test/testenv"
	"ironroot/internal/timelimit"
	"ironroot/storage/block"
	"ironroot/storage/partition"
	"ironroot/storage/sysfs"
)

// arrayDisks implements [block.Lister], [Assembler] and [softraid.Disks] for disks with the arrays of a node.
type arrayDisks struct {
	disks  []block.Device
	kernel *raidtest.FakeKernel
}

func (a arrayDisks) Disks(ctx context.Context) ([]block.Device, error) {
	arrays, err := a.kernel.List(ctx)
	disks := append([]block.Device{}, a.disks...)
	for _, array := range arrays {
		disks = append(disks, block.Device{Name: filepath.Base(array.Path), Path: array.Path, Type: array.Level})
	}
	return disks, err
}

func (a arrayDisks) List(ctx context.Context) ([]block.Device, error) { return a.Disks(ctx) }

func (a arrayDisks) Local(disks []block.Device) (local, remote []block.Device, err error) {
	return disks, nil, nil
}

func (a arrayDisks) of(n *node.Node) *softraid.Arrays {
	return softraid.New(softraid.Options{
		Node: n, Disks: a, Kernel: a.kernel, Log: slog.New(slog.DiscardHandler), Scheme: partition.GPT,
		Limits: func(block.Device) timelimit.Limits { return timelimit.Disk },
	})
}

func (a arrayDisks) Assemble(ctx context.Context, n *node.Node) (softraid.Assembled, error) {
	return a.of(n).AssembleAll(ctx)
}

// A file on a named array is written while the arrays of raid_config run: they are assembled before and stopped after,
// also those that are not the root volume, and if the file cannot be written. Files on other devices assemble none.
func TestInjectFilesIntoArray(t *testing.T) {
	testenv.Programs(t, "mkfs.ext4", "debugfs")
	disks := arrayDisks{
		[]block.Device{raidtest.BlankDisk(t, 3*raidtest.GiB), raidtest.BlankDisk(t, 3*raidtest.GiB)},
		raidtest.NewKernel(t),
	}
	config := `{"logical_disks": [` + raidtest.LogicalDisk("1", "1", `"volume_name": "root", "is_root_volume": true`) +
		", " + raidtest.LogicalDisk("0", `"MAX"`, "") + "]}"
	n := nodeWith(t, `"target_raid_config": `+config+`, "raid_config": `+config)
	if _, err := disks.of(n).Create(t.Context()); err != nil {
		t.Fatal(err)
	}
	arrays, err := disks.kernel.List(t.Context())
	if err != nil || len(arrays) != 2 {
		t.Fatalf("got arrays %+v and %v, want two", arrays, err)
	}
	tree, path := t.TempDir(), arrays[1].Path // not the root volume
	if err := fillRoot(tree); err != nil {
		t.Fatal(err)
	}
	testenv.Run(t, "mkfs.ext4", "-q", "-L", "onarray", "-d", tree, path)
	disks.kernel.StopAll(t)
	const link = "/dev/disk/by-label/onarray"
	both := []string{"/dev/md0", "/dev/md1"}
	for _, tt := range []struct {
		name, device       string
		held               bool // the first member of md0
		stopErr            error
		kind               string
		assembled, stopped []string
	}{
		{"array", link, false, nil, "", both, both},
		{"no partition", "/dev/md0p7", false, nil, "DeviceNotFound", both, both},
		{"not assembled", "/dev/md0", true, nil, "DeviceNotFound", both[1:], both[1:]},
		{"not stopped", link, false, errors.New("busy"), "CommandExecutionError", both, both},
		{"disk", "/dev/sdx", false, nil, "DeviceNotFound", nil, nil},
	} {
		k := disks.kernel
		k.Assembled, k.Stopped, k.OnStop = nil, nil, func(string) error { return tt.stopErr }
		release := func() {}
		if tt.held {
			member := block.PartitionPath(sysfs.Root{}, disks.disks[0].Path, 1)
			f, err := os.OpenFile(member, os.O_RDWR|unix.O_EXCL, 0)
			if err != nil {
				t.Fatal(err)
			}
			release = func() { _ = f.Close() }
		}
		in := newInjector(t)
		in.System, in.Disks, in.Arrays, in.Node = sysfs.Root{}, disks, disks, n
		err := in.Run(t.Context(), map[string]json.RawMessage{"files": fmt.Appendf(nil,
			`[{"path": "/etc/new", "partition": %q, "content": %q}]`, tt.device, encoded(tt.name))})
		release()
		if typeOf(err) != tt.kind {
			t.Errorf("%s: got %v, want type %q", tt.name, err, tt.kind)
		}
		if diff := cmp.Diff([][]string{tt.assembled, tt.stopped}, [][]string{k.Assembled, k.Stopped}); diff != "" {
			t.Errorf("%s: arrays that were assembled and stopped differ (-want +got):\n%s", tt.name, diff)
		}
		if tt.kind == "" {
			if got := testenv.Run(t, "debugfs", "-R", "cat /etc/new", path); !strings.HasSuffix(got, tt.name) {
				t.Errorf("%s: got content %q, want %q", tt.name, got, tt.name)
			}
		}
		k.OnStop = nil
		k.StopAll(t)
	}
	// Without arrays, nothing is assembled.
	disks.kernel.Assembled = nil
	for _, fields := range []string{`"properties": {}`, `"raid_config": {}`} {
		in := newInjector(t)
		in.Disks, in.Arrays, in.Node = disks, disks, nodeWith(t, fields)
		err := in.Run(t.Context(), map[string]json.RawMessage{"files": fmt.Appendf(nil,
			`[{"path": "/etc/new", "partition": "/dev/md0", "content": ""}]`)})
		if typeOf(err) != "DeviceNotFound" {
			t.Errorf("%s: got %v, want a DeviceNotFound", fields, err)
		}
	}
	if len(disks.kernel.Assembled) > 0 {
		t.Errorf("got %q assembled, want none", disks.kernel.Assembled)
	}
}
