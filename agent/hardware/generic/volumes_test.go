package generic

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"ironroot/agent/config"
	"ironroot/agent/hardware"
	"ironroot/agent/softraid"
	"ironroot/internal/test/disktest"
	"ironroot/internal/test/raidtest"
	"ironroot/internal/test/testenv"
	"ironroot/storage/block"
	"ironroot/storage/raid"
)

// createdDisks makes two disks with the arrays root and md1 of raid_config.
func createdDisks(t *testing.T) []block.Device {
	t.Helper()
	disks := []block.Device{raidtest.BlankDisk(t, 3*gib), raidtest.BlankDisk(t, 3*gib+mib)}
	config := `{"logical_disks": [` + raidtest.LogicalDisk("1", "1", `"volume_name": "root"`) + ", " +
		raidtest.LogicalDisk("0", `"MAX"`, "") + `]}`
	m, kernel := onThisMachine(t, disks...), raidtest.NewKernel(t)
	m.kernel = kernel
	n := nodeWith(t, `"properties": {"capabilities": "boot_mode:bios,disk_label:gpt"}, "target_raid_config": `+config)
	if _, err := m.createConfiguration(t.Context(), hardware.Call{Node: n}); err != nil {
		t.Fatal(err)
	}
	kernel.StopAll(t)
	return disks
}

// volumeDisks makes the disks of createdDisks. The node's arrays have is_root_volume as given, "" for none.
func volumeDisks(t *testing.T, roots ...string) (disks []block.Device, fields string) {
	t.Helper()
	disks = createdDisks(t)
	for i, root := range roots {
		if root != "" {
			roots[i] = `"is_root_volume": ` + root
		}
	}
	second := raidtest.LogicalDisk("0", `"MAX"`, roots[1])
	first := `"volume_name": "root"`
	if roots[0] != "" {
		first += ", " + roots[0]
	}
	return disks, `"raid_config": {"logical_disks": [` + raidtest.LogicalDisk("1", "1", first) + ", " + second + `]}`
}

// runningRoot is the array of the first partitions of the disks.
func runningRoot(m *Manager, disks []block.Device) raid.Status {
	array := raid.Status{Name: "md0", Path: "/dev/md0"}
	for _, d := range disks {
		array.Slots = append(array.Slots, raid.Slot{Path: block.PartitionPath(m.o.System, d.Path, 1)})
	}
	return array
}

// addEvents adds to the event count of a superblock of version 1.2. Its checksum is a sum.
func addEvents(t *testing.T, path string, events uint32) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for _, at := range []int64{4096 + 200, 4096 + 216} {
		word := make([]byte, 4)
		if _, err := f.ReadAt(word, at); err != nil {
			t.Fatal(err)
		}
		binary.LittleEndian.PutUint32(word, binary.LittleEndian.Uint32(word)+events)
		if _, err := f.WriteAt(word, at); err != nil {
			t.Fatal(err)
		}
	}
	if err := f.Sync(); err != nil {
		t.Fatal(err)
	}
}

// described describes volumes: name, root, whether it has a device, number of disks, and error.
func described(list []*softraid.Volume) []string {
	var words []string
	for _, v := range list {
		root := "none"
		if v.Root != nil {
			root = fmt.Sprint(*v.Root)
		}
		reason := errorText(v.Err)
		if before, _, found := strings.Cut(reason, ": /dev/"); found && strings.HasPrefix(reason, "events ") {
			reason = before
		}
		reason = strings.TrimSpace(reason[strings.LastIndex(reason, ":")+1:])
		words = append(words, fmt.Sprintf("%s root=%s device=%v disks=%d %s", v.Name, root, v.Path() != "",
			len(v.Members), reason))
	}
	return words
}

// The arrays of raid_config are assembled for a deployment, and those that are not needed are stopped again. If one is
// the root volume, it is the only one.
func TestVolumes(t *testing.T) {
	for name, tt := range map[string]struct {
		roots   []string
		prepare func(t *testing.T, m *Manager, k *raidtest.StubKernel, disks []block.Device)
		fields  string
		want    []string
		calls   []string
	}{
		"no flags": {
			[]string{"", ""},
			nil, "",
			[]string{"root root=none device=true disks=2 ", "md1 root=none device=true disks=2 "},
			[]string{"assemble md0 root of 2", "assemble md1 md1 of 2", "stop root", "stop md1"},
		},
		"root": {
			[]string{"true", "false"},
			nil, "",
			[]string{"root root=true device=true disks=2 "},
			[]string{"assemble md0 root of 2", "stop root"},
		},
		"second is root": {
			[]string{"", "true"},
			nil, "",
			[]string{"md1 root=true device=true disks=2 "},
			[]string{"assemble md1 md1 of 2", "stop md1"},
		},
		"not root": {
			[]string{"false", "false"},
			nil, "",
			[]string{"root root=false device=true disks=2 ", "md1 root=false device=true disks=2 "},
			[]string{"assemble md0 root of 2", "assemble md1 md1 of 2", "stop root", "stop md1"},
		},
		"runs": {
			[]string{"true", ""},
			func(_ *testing.T, m *Manager, k *raidtest.StubKernel, disks []block.Device) {
				k.Running = []raid.Status{runningRoot(m, disks)}
			}, "",
			[]string{"root root=true device=true disks=2 "},
			nil,
		},
		"runs, superblocks were read at different times": {
			[]string{"true", ""},
			func(t *testing.T, m *Manager, k *raidtest.StubKernel, disks []block.Device) {
				addEvents(t, block.PartitionPath(m.o.System, disks[1].Path, 1), 40)
				k.Running = []raid.Status{runningRoot(m, disks)}
			}, "",
			[]string{"root root=true device=true disks=2 "},
			nil,
		},
		"events differ": {
			[]string{"true", ""},
			func(t *testing.T, m *Manager, _ *raidtest.StubKernel, disks []block.Device) {
				addEvents(t, block.PartitionPath(m.o.System, disks[1].Path, 1), 40)
			}, "",
			[]string{"root root=true device=false disks=0 events of members differ by 40"},
			nil,
		},
		"number in use": {
			[]string{"true", ""},
			func(_ *testing.T, _ *Manager, k *raidtest.StubKernel, _ []block.Device) {
				k.Running = []raid.Status{{Name: "md0", Path: "/dev/md0"}, {Name: "md1", Path: "/dev/md1"}}
			}, "",
			[]string{"root root=true device=true disks=2 "},
			[]string{"assemble md2 root of 2", "stop root"},
		},
		"incomplete": {
			[]string{"true", ""},
			func(t *testing.T, m *Manager, _ *raidtest.StubKernel, disks []block.Device) {
				raidtest.Write(t, block.PartitionPath(m.o.System, disks[1].Path, 1), 4096, make([]byte, 4096))
			}, "",
			[]string{"root root=true device=false disks=0 got 1 members, want 2"},
			nil,
		},
		"not assembled": {
			[]string{"true", ""},
			func(_ *testing.T, _ *Manager, k *raidtest.StubKernel, _ []block.Device) {
				k.AssembleErr = errors.New("broken")
			}, "",
			[]string{"root root=true device=false disks=2 broken"},
			nil,
		},
		"protected": {
			[]string{"true", ""},
			nil, `, "properties": {"skip_block_devices": [{"volume_name": "root"}]}`,
			nil, nil, // every array then needs a name
		},
	} {
		t.Run(name, func(t *testing.T) {
			disks, fields := volumeDisks(t, tt.roots...)
			m, kernel := onThisMachine(t, disks...), &raidtest.StubKernel{}
			m.kernel = kernel
			kernel.Attach(t, disks)
			if tt.prepare != nil {
				tt.prepare(t, m, kernel, disks)
			}
			volumes, err := m.AssembleVolumes(t.Context(), nodeWith(t, fields+tt.fields))
			if tt.want == nil {
				if err == nil {
					t.Errorf("got %+v, want an error", volumes)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.want, described(volumes.Volumes)); diff != "" {
				t.Errorf("volumes differ (-want +got):\n%s", diff)
			}
			if err := volumes.Release(t.Context(), "/dev/none"); err != nil {
				t.Error(err)
			}
			if diff := cmp.Diff(tt.calls, kernel.Calls); diff != "" {
				t.Errorf("calls differ (-want +got):\n%s", diff)
			}
		})
	}
}

// The root disk stays assembled, and an array that cannot be stopped is an error.
func TestVolumesRelease(t *testing.T) {
	disks, fields := volumeDisks(t, "", "")
	m, kernel := onThisMachine(t, disks...), raidtest.NewKernel(t)
	m.kernel = kernel
	volumes, err := m.AssembleVolumes(t.Context(), nodeWith(t, fields))
	if err != nil {
		t.Fatal(err)
	}
	broken := errors.New("broken")
	kernel.OnStop = func(string) error { return broken }
	if err := volumes.Release(t.Context(), volumes.Volumes[0].Path()); !errors.Is(err, broken) {
		t.Errorf("got %v, want %v", err, broken)
	}
	if !slices.Equal(kernel.Stopped, []string{"/dev/md1"}) {
		t.Errorf("got stopped %q, want md1", kernel.Stopped)
	}
}

// Without arrays of raid_config nothing is read. An error fails the deployment only if the root volume may be among the
// arrays.
func TestVolumesErrors(t *testing.T) {
	missing := block.Device{Name: "missing", Path: "/dev/missing", Type: "disk"}
	for fields, want := range map[string]string{
		`"properties": {}`: "",
		`"raid_config": {"logical_disks": [` + raidtest.LogicalDisk("1", `"MAX"`, "") + `]}`: "",
		`"raid_config": {"logical_disks": [` +
			raidtest.LogicalDisk("1", `"MAX"`, `"is_root_volume": true`) + `]}`: "/dev/missing",
		`"raid_config": {"logical_disks": [` +
			raidtest.LogicalDisk("9", `"MAX"`, `"is_root_volume": true`) + `]}`: "RAID-1",
		`"raid_config": {"logical_disks": [` + raidtest.LogicalDisk("9", `"MAX"`, `"is_root_volume": false`) + `]}`: "",
		`"raid_config": []`: "raid_config is not an object",
	} {
		m := onThisMachine(t, missing)
		kernel := raidtest.NewKernel(t)
		m.kernel = kernel
		volumes, err := m.AssembleVolumes(t.Context(), nodeWith(t, fields))
		if (err == nil) != (want == "") || !strings.Contains(errorText(err), want) || len(volumes.Volumes) > 0 {
			t.Errorf("%s: got %+v and %v, want %q", fields, volumes, err, want)
		}
		if calls := append(kernel.Assembled, kernel.Stopped...); len(calls) > 0 {
			t.Errorf("%s: got calls for %q, want none", fields, calls)
		}
	}
	if volumes, err := onThisMachine(t).AssembleVolumes(t.Context(), nil); err != nil || len(volumes.Volumes) > 0 {
		t.Errorf("no node: got %+v and %v, want nothing", volumes, err)
	}
	m := onThisMachine(t)
	broken := errors.New("broken")
	m.o.Disks = disktest.Lister(func(context.Context) ([]block.Device, error) { return nil, broken })
	if _, err := m.AssembleVolumes(t.Context(), nodeWith(t, `"raid_config": {"logical_disks": [`+
		raidtest.LogicalDisk("1", `"MAX"`, "")+`]}`)); !errors.Is(err, broken) {
		t.Errorf("got %v, want %v", err, broken)
	}
}

// The members of arrays of raid_config are waited for, but not the arrays: the deployment assembles them.
func TestWaitDisksWithArrays(t *testing.T) {
	for fields, waits := range map[string]bool{
		`"raid_config": {"logical_disks": [` + raidtest.LogicalDisk("1", `"MAX"`, "") + `]}`: true,
		`"raid_config": {"logical_disks": [` + raidtest.LogicalDisk("9", `"MAX"`, "") + `]}`: false, // not valid
		`"raid_config": {}`: true,
	} {
		var log testenv.Log
		m := newManager(t)
		m.o.Log = slog.New(slog.NewTextHandler(&log, nil))
		m.o.Config.Update(func(c *config.Config) { c.DiskWaitAttempts, c.DiskWaitDelay = 1, time.Millisecond })
		for _, dir := range []string{"block", "class/block"} {
			if err := os.MkdirAll(m.o.System.Sys(dir), 0o755); err != nil {
				t.Fatal(err)
			}
		}
		if err := m.WaitDisks(t.Context(), nodeWith(t, fields)); err != nil {
			t.Error(err)
		}
		if got := strings.Contains(log.String(), "no root disk appeared in time"); got != waits {
			t.Errorf("%s: waited %v, want %v; log %s", fields, got, waits, log.String())
		}
	}
}

// An array that lacks members is waited for, one that skip_block_devices protects is not.
func TestMissingVolume(t *testing.T) {
	for name, tt := range map[string]struct {
		present int // disks
		skip    string
		want    string
	}{
		"complete":  {2, "other", ""},
		"one disk":  {1, "other", `RAID array "root": raid1 array "any:root" on`},
		"protected": {2, "root", ""},
	} {
		disks := createdDisks(t)
		n := nodeWith(t, `"properties": {"skip_block_devices": [{"volume_name": "`+tt.skip+`"}]}, "raid_config": `+
			`{"logical_disks": [`+raidtest.LogicalDisk("1", "1", `"volume_name": "root"`)+", "+
			raidtest.LogicalDisk("0", `"MAX"`, `"volume_name": "md1"`)+`]}`)
		arrays, err := softraid.RulesOf(n)
		if err != nil {
			t.Fatal(err)
		}
		err = onThisMachine(t).raidArrays(n).Missing(t.Context(), arrays, disks[:tt.present])
		if (err == nil) != (tt.want == "") || !strings.HasPrefix(errorText(err), tt.want) {
			t.Errorf("%s: got %v, want %q", name, err, tt.want)
		}
	}
}
