package imaging

import (
	"cmp"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"ironroot/agent/config"
	"ironroot/agent/softraid"
	"ironroot/internal/test/testenv"
	"ironroot/storage/block"
	"ironroot/storage/partition"
	"ironroot/storage/sysfs"
)

// memberDisk makes a disk whose only partition is a member of an array.
func memberDisk(t *testing.T, size int64, array string) block.Device {
	t.Helper()
	file := testenv.SparseFile(t, size)
	testenv.GPT(t, file, "start=2048, size=8MiB, type=raid")
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

// Disks of an array that the skip list protects by its name are not chosen; disks of other arrays can be.
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
	if chosen, err := ChooseRootDisk(new(config.Config), n, []block.Device{d}); err == nil ||
		!strings.Contains(err.Error(), "entry 1 of skip_block_devices") {
		t.Errorf("got %q and %v, want an error of the entry", chosen.Path, err)
	}
}

// In a signed image, disks that are reached over a network are no root disks unless its command line allows them: not
// without hints, not by a hint, and not as a root volume. Other images use them.
func TestNetworkRootDisk(t *testing.T) {
	local, remote, unknown := disk("sda", 8*gib), disk("sdb", 5*gib), disk("sdc", 4*gib)
	remote.Network, unknown.NetworkUnread = "iscsi", errors.New("sysfs is broken")
	signed := &config.Config{Signed: true}
	allowing := &config.Config{Signed: true, Params: config.Params{"ironroot.network_disks": "1"}}
	const note = "the signed image lacks ironroot.network_disks=1 in its command line, which excludes "
	for _, tt := range []struct {
		name   string
		c      *config.Config
		hints  string
		disks  []block.Device
		volume string
		want   string // the disk, or else the error
	}{
		{name: "not signed", c: new(config.Config), disks: []block.Device{local, remote, unknown}, want: "/dev/sdc"},
		{name: "allowed", c: allowing, disks: []block.Device{local, remote, unknown}, want: "/dev/sdc"},
		{name: "signed", c: signed, disks: []block.Device{local, remote, unknown}, want: "/dev/sda"},
		{
			name: "hint", c: signed, hints: `{"name": "/dev/sdb"}`, disks: []block.Device{local, remote},
			want: note + "/dev/sdb (reached over iscsi)",
		},
		{
			name: "only these", c: signed, disks: []block.Device{remote, unknown},
			want: note + "/dev/sdb (reached over iscsi), " +
				"/dev/sdc (not known whether /dev/sdc is reached over a network: sysfs is broken)",
		},
		{
			name: "root volume", c: signed, disks: []block.Device{remote}, volume: "/dev/sdb",
			want: "use root volume: " + note + "/dev/sdb (reached over iscsi)",
		},
		{
			name: "root volume, allowed", c: allowing, disks: []block.Device{remote}, volume: "/dev/sdb",
			want: "/dev/sdb",
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			n := testNode(t, `{"uuid": "u", "properties": {"root_device": `+cmp.Or(tt.hints, "{}")+`}}`)
			i := newImager(t, n, tt.disks...)
			i.o.Config = config.NewLive(tt.c)
			if tt.volume != "" {
				isRoot := true
				i.o.Hardware = fakeHardware{assemble: func() ([]*softraid.Volume, error) {
					return []*softraid.Volume{{Name: "root", Running: tt.volume, Root: &isRoot}}, nil
				}}
			}
			got, err := i.DeployDisk(t.Context(), false)
			switch {
			case strings.HasPrefix(tt.want, "/dev/"):
				if err != nil || got.Path != tt.want {
					t.Errorf("got %q and %v, want %s", got.Path, err, tt.want)
				}
			case err == nil || typeOf(err) != "DeviceNotFound" || !strings.Contains(err.Error(), tt.want):
				t.Errorf("got %q and %v, want a DeviceNotFound with %q", got.Path, err, tt.want)
			}
		})
	}
}
