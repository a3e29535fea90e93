package cleaning

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"testing"

	"ironroot/internal/test/disktest"
	"ironroot/internal/test/raidtest"
	"ironroot/internal/test/testenv"
	"ironroot/storage/block"
	"ironroot/storage/partition"
	"ironroot/storage/sysfs"
)

// While drivers are being loaded, disks can be missing: a step erases the present ones, and fails.
func TestEraseUnsettled(t *testing.T) {
	closed := make(chan struct{})
	close(closed)
	for name, settled := range map[string]chan struct{}{
		"settled": closed, "nothing to wait for": nil, "unsettled": make(chan struct{}),
	} {
		disk := raidtest.PartitionedDisk(t, partition.TypeLinux)
		m := onThisMachine(t, disk)
		m.o.Settled = settled
		var log strings.Builder
		m.o.Log = slog.New(slog.NewTextHandler(&log, nil))
		for step, run := range erasing(m) {
			testenv.GPT(t, disk.Path)
			log.Reset()
			n := nodeWith(t, `"driver_internal_info": {"agent_erase_devices_iterations": 0}`)
			_, err := run(t.Context(), n)
			if table, err := partition.Read(t.Context(), disk.Path); !errors.Is(err, partition.ErrNoTable) {
				t.Errorf("%s, %s: got table %+v and %v, want none", name, step, table, err)
			}
			if name != "unsettled" {
				if err != nil || strings.Contains(log.String(), "disks may be missing") {
					t.Errorf("%s, %s: got %v and log %s, want no error", name, step, err, &log)
				}
				continue
			}
			erased, failed, _ := strings.Cut(errorText(err), "; not erased: ")
			if typeOf(err) != "BlockDeviceEraseError" || !strings.Contains(erased, disk.Path) ||
				failed != errUnsettled.Error() {
				t.Errorf("%s: got %v, want a BlockDeviceEraseError with %q", step, err, errUnsettled)
			}
			if !strings.Contains(log.String(), `"disks may be missing"`) {
				t.Errorf("%s: got log %s, want the missing disks", step, &log)
			}
		}
	}
}

// A missing disk could hold the array with the protected name.
func TestEraseProtectedNameUnsettled(t *testing.T) {
	disk := raidtest.MemberDisk(t, testenv.RAID{Name: "root", Level: 1})
	m := onThisMachine(t, disk)
	m.o.Settled = make(chan struct{})
	n := nodeWith(t, `"properties": {"skip_block_devices": [{"volume_name": "root"}]}`)
	_, err := m.EraseMetadata(t.Context(), n)
	if want := "its name cannot be checked: " + errUnsettled.Error(); !strings.Contains(errorText(err), want) {
		t.Errorf("got %v, want %q", err, want)
	}
}

// appearing returns a manager that lists first once and then second. It calls appear before it lists second.
func appearing(t *testing.T, first, second func() ([]block.Device, error), appear func(sysfs.Root)) *Steps {
	t.Helper()
	m := newMachine(t)
	calls := 0
	m.o.Disks = disktest.Lister(func(context.Context) ([]block.Device, error) {
		if calls++; calls == 1 {
			return first()
		}
		appear(m.o.System)
		return second()
	})
	return m
}

// The error names each disk that was missing when the step began.
func TestEraseNamesAppearedDisks(t *testing.T) {
	broken, unread := errors.New("broken"), fmt.Errorf("%w: sdx", block.ErrUnreadable)
	read := func(disks ...block.Device) func() ([]block.Device, error) {
		return func() ([]block.Device, error) { return disks, nil }
	}
	failing := func(err error) func() ([]block.Device, error) {
		return func() ([]block.Device, error) { return nil, err }
	}
	sda := block.Device{Name: "sda", Path: "/dev/sda", Serial: "200", Serials: []string{"200"}}
	sdb := block.Device{Name: "sdb", Path: "/dev/sdb", Serial: "50", Serials: []string{"50"}}
	text := block.Device{Name: "sdc", Path: "/dev/sdc", Serial: "S3X9", Serials: []string{"S3X9"}}
	joined := func(paths ...string) block.Device {
		d := block.Device{Name: "dm-0", Path: "/dev/dm-0", Type: "mpath", Serial: "50", Serials: []string{"50"}}
		for _, path := range paths {
			d.Components = append(d.Components, block.Device{Path: path})
		}
		return d
	}
	array := block.Device{Name: "dm-0", Path: "/dev/dm-0", Type: "raid1", Serial: "50", Serials: []string{"50"}}
	none := func(sysfs.Root) {}
	slaves := func(sys sysfs.Root) { // sda is a component of the array
		if err := os.MkdirAll(sys.Sys("class/block/dm-0/slaves/sda"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	const again = "disks that appeared during the step: "
	for _, tt := range []struct {
		name          string
		first, second func() ([]block.Device, error)
		appear        func(sysfs.Root)
		want          []string // lines of the error, in order; nil for none
	}{
		{"no disks", read(), read(), none, nil},
		{"the same, on the skip list", read(sda), read(sda), none, nil},
		{"another on the skip list", read(), read(sda), none, nil},
		{"another", read(sda), read(sda, sdb), none, []string{"/dev/sdb: the disk appeared"}},
		{"paths joined", read(sda), read(joined("/dev/sda", "/dev/sdz")), none, nil},
		{
			"paths joined, none known", read(sda), read(joined("/dev/sdz")), none,
			[]string{"/dev/dm-0: the disk appeared"},
		},
		{"paths not known", read(sda), read(joined()), none, []string{"/dev/dm-0: the disk appeared"}},
		{"an array of a known disk", read(sda), read(array), slaves, []string{"/dev/dm-0: the disk appeared"}},
		{"list fails", read(), failing(broken), none, []string{again + "list disks: broken"}},
		{"unreadable", read(), failing(unread), none, []string{unread.Error()}},
		{"unreadable twice", failing(unread), failing(unread), none, []string{unread.Error()}},
		{"skip list fails later", read(), read(text), none, []string{again + "entry 1 of skip_block_devices: "}},
		{
			"without a capacity", read(), read(),
			func(sys sysfs.Root) { raidtest.ListDisks(t, sys, "0", "vda", "nvme0n1") },
			[]string{"/dev/nvme0n1: " + block.ErrUnusableNamespace.Error(), "/dev/vda: " + block.ErrNoCapacity.Error()},
		},
		{
			"the kernel's list fails", read(), read(), func(sys sysfs.Root) {
				err := errors.Join(os.MkdirAll(sys.Sys(), 0o755), os.WriteFile(sys.Sys("block"), nil, 0o600))
				if err != nil {
					t.Fatal(err)
				}
			},
			[]string{again + "list disks: "},
		},
	} {
		for _, step := range []string{"erase_devices", "erase_devices_metadata", "erase_devices_express"} {
			m := appearing(t, tt.first, tt.second, tt.appear)
			n := nodeWith(t, `"properties": {"skip_block_devices": [{"serial": ">= 100"}]}`)
			_, err := erasing(m)[step](t.Context(), n)
			if len(tt.want) == 0 {
				if err != nil {
					t.Errorf("%s, %s: got %v, want no error", tt.name, step, err)
				}
				continue
			}
			_, failed, _ := strings.Cut(errorText(err), "erased: none; not erased: ")
			lines := strings.Split(failed, "\n")
			same := typeOf(err) == "BlockDeviceEraseError" && len(lines) == len(tt.want)
			for i := 0; same && i < len(lines); i++ {
				same = strings.HasPrefix(lines[i], tt.want[i])
			}
			if !same {
				t.Errorf("%s, %s: got %v, want a BlockDeviceEraseError with %q", tt.name, step, err, tt.want)
			}
		}
	}
}

// An entry of the skip list that cannot be compared with a disk ends the step before it erases anything. As with
// ironic-python-agent, the error is no BlockDeviceEraseError, so that it becomes a CleaningError of the step.
func TestEraseSkipListFails(t *testing.T) {
	disk := raidtest.MemberDisk(t, testenv.RAID{Name: "plain", Level: 1})
	disk.Serial, disk.Serials = "S3X9", []string{"S3X9"}
	before := content(t, disk)
	n := nodeWith(t, `"properties": {"skip_block_devices": [{"serial": ">= 100"}]}`)
	for name, step := range erasing(onThisMachine(t, disk)) {
		result, err := step(t.Context(), n)
		const want = "entry 1 of skip_block_devices"
		if result != nil || typeOf(err) != "" || !strings.Contains(errorText(err), want) {
			t.Errorf("%s: got %v and %v, want an error with %q and without a type", name, result, err, want)
		}
		if !bytes.Equal(content(t, disk), before) {
			t.Errorf("%s wrote to the disk", name)
		}
	}
}

// A disk that the kernel could not use from the start is one error.
func TestEraseNamesUnusableDisksOnce(t *testing.T) {
	m := newMachine(t)
	raidtest.ListDisks(t, m.o.System, "0", "vda")
	if _, err := m.EraseMetadata(t.Context(), nil); strings.Count(errorText(err), "/dev/vda") != 1 {
		t.Errorf("got %v, want one error of /dev/vda", err)
	}
}

// A disk that loses its capacity while it is erased is a known disk.
func TestEraseKnownDiskWithoutCapacity(t *testing.T) {
	vda := func() ([]block.Device, error) { return []block.Device{{Name: "vda", Path: "/dev/vda"}}, nil }
	run := startErase(t, appearing(t, vda, vda, func(sys sysfs.Root) { raidtest.ListDisks(t, sys, "0", "vda") }))
	run.failAppeared(t.Context())
	if result, err := run.finish(); err != nil {
		t.Errorf("got %v and %v, want no error", result, err)
	}
}

func errorText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}
