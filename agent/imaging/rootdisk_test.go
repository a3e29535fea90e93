package imaging

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"ironroot/internal/sysfs"
	"ironroot/internal/testenv"
	"ironroot/storage/block"
	"ironroot/storage/partition"
)

// memberDisk makes a disk whose only partition is a member of an array.
func memberDisk(t *testing.T, size int64, array string) block.Device {
	t.Helper()
	file := testenv.SparseFile(t, size)
	testenv.Run(t, "sgdisk", "-n", "1:2048:+8M", "-t", "1:FD00", file)
	f, err := os.OpenFile(file, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.WriteAt(testenv.RAID{Name: array, Level: 1, Size: 8 * mib}.Superblock(4096), mib+4096); err != nil {
		t.Fatal(err)
	}
	path := testenv.Loop(t, file, 512)
	if err := partition.Sync(t.Context(), sysfs.Root{}, path); err != nil {
		t.Fatal(err)
	}
	return block.Device{Name: filepath.Base(path), Path: path, Type: "disk", Size: size}
}

// Disks of an array that the skip list protects by its name are not chosen; those of other arrays can be.
func TestRootDiskSparesProtectedArrays(t *testing.T) {
	t.Parallel() // sgdisk sleeps
	testenv.Programs(t, "sgdisk", "blkid")
	small, large := memberDisk(t, 4*gib, "here:data"), memberDisk(t, 5*gib, "scratch")
	part := block.PartitionPath(sysfs.Root{}, small.Path, 1)
	found, err := block.Probe(t.Context(), part)
	if err != nil {
		t.Fatal(err)
	}
	for tag, got := range map[string]string{"TYPE": found.Type, "LABEL": found.Label, "UUID": found.UUID} {
		if want := strings.TrimSpace(testenv.Run(t, "blkid", "-p", "-o", "value", "-s", tag, part)); got != want {
			t.Errorf("%s of the member: got %q, want blkid's %q", tag, got, want)
		}
	}
	for list, want := range map[string]string{
		`[]`:                           small.Path,
		`[{"volume_name": "other"}]`:   small.Path,
		`[{"volume_name": "here"}]`:    small.Path,
		`[{"volume_name": "data"}]`:    large.Path,
		`[{"volume_name": "scratch"}]`: small.Path,
		`[{"volume_name": "data"}, {"volume_name": "scratch"}]`:     "",
		`[{"volume_name": "data"}, {"name": "` + large.Path + `"}]`: "",
		`[{"volume_name": 5}]`:  "",
		`[{"volume_name": ""}]`: "",
		`["data"]`:              "",
	} {
		i := newImager(t, testNode(t, `{"uuid": "u", "properties": {"skip_block_devices": `+list+`}}`), small, large)
		i.o.System = sysfs.Root{}
		got, err := i.RootDisk(t.Context(), false)
		if want == "" && typeOf(err) != "DeviceNotFound" || want != "" && (err != nil || got.Path != want) {
			t.Errorf("%s: got %q and %v, want %q", list, got.Path, err, want)
		}
	}
}

// The chosen disk is an error if it holds a member of an array that Ironic created. No other disk is chosen instead.
func TestRootDiskSparesCreatedArrays(t *testing.T) {
	t.Parallel() // sgdisk sleeps
	testenv.Programs(t, "sgdisk")
	small, large := memberDisk(t, 4*gib, "here:root"), memberDisk(t, 5*gib, "scratch")
	const software = `"controller": "software", "raid_level": "1", "size_gb": "MAX"`
	part := block.PartitionPath(sysfs.Root{}, small.Path, 1)
	problem := "root disk " + small.Path + ": " + part +
		` is a member of raid1 array "here:root", which Ironic created ` +
		`(logical disk 1 of raid_config`
	hint := `"properties": {"root_device": {"name": "` + large.Path + `"}}, `
	for name, c := range map[string]struct{ fields, want, problem string }{
		"no arrays": {`"raid_config": {}`, small.Path, ""},
		"its name":  {`"raid_config": {"logical_disks": [{` + software + `, "volume_name": "root"}]}`, "", problem},
		"its level": {`"raid_config": {"logical_disks": [{` + software + `}]}`, "", problem},
		"another name": {
			`"raid_config": {"logical_disks": [{` + software + `, "volume_name": "other"}]}`, small.Path, "",
		},
		"hardware": {`"raid_config": {"logical_disks": [{"raid_level": "1", "controller": "RAID.1"}]}`, small.Path, ""},
		"chosen by a hint": {
			hint + `"raid_config": {"logical_disks": [{` + software + `, "volume_name": "root"}]}`, large.Path, "",
		},
	} {
		i := newImager(t, testNode(t, `{"uuid": "u", `+c.fields+`}`), small, large)
		i.o.System = sysfs.Root{}
		got, err := i.RootDisk(t.Context(), false)
		if c.want != "" && (err != nil || got.Path != c.want) {
			t.Errorf("%s: got %q and %v, want %q", name, got.Path, err, c.want)
		}
		if c.want == "" && (typeOf(err) != "DeviceNotFound" || !strings.Contains(err.Error(), c.problem)) {
			t.Errorf("%s: got %q and %v, want DeviceNotFound with %q", name, got.Path, err, c.problem)
		}
	}
}

// If the skip list may name a disk whose identity cannot be read, choosing the disk is an error.
func TestRootDiskUnread(t *testing.T) {
	disk := block.Device{Name: "sda", Path: "/dev/sda", Type: "disk", Size: 5 * gib, Unread: sysfs.ErrHangs}
	for list, want := range map[string]bool{`{"serial": "S1"}`: true, `{"name": "/dev/sdb"}`: false} {
		n := testNode(t, `{"uuid": "u", "properties": {"skip_block_devices": [`+list+`]}}`)
		_, err := newImager(t, n, disk).RootDisk(t.Context(), false)
		if want != (typeOf(err) == "DeviceNotFound" && errors.Is(err, block.ErrUnreadable)) || !want && err != nil {
			t.Errorf("%s: got %v, want an error: %v", list, err, want)
		}
	}
}

// A skip list that cannot be compared with a disk is an error: the disk may be protected.
func TestRootDiskNotCompared(t *testing.T) {
	d := disk("sda", 4*gib) // its serial number is no number
	n := testNode(t, `{"uuid": "u", "properties": {"skip_block_devices": [{"serial": ">= 100"}]}}`)
	if chosen, err := ChooseRootDisk(n, []block.Device{d}); err == nil ||
		!strings.Contains(err.Error(), "entry 1 of skip_block_devices") {
		t.Errorf("got %q and %v, want an error of the entry", chosen.Path, err)
	}
}
