package softraid

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"ironroot/agent/node"
	"ironroot/internal/test/raidtest"
	"ironroot/internal/test/testenv"
	"ironroot/storage/block"
	"ironroot/storage/partition"
	"ironroot/storage/sysfs"
)

// put writes a file of a machine in a directory.
func put(t *testing.T, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// machine returns a machine with disks and arrays, whose components are listed by name.
func machine(t *testing.T, disks []block.Device, arrays map[string][]string) sysfs.Root {
	t.Helper()
	sys := sysfs.Root{Path: t.TempDir()}
	for _, d := range disks {
		put(t, sys.Sys("class/block", d.Name, "size"), "16384\n")
	}
	for array, components := range arrays {
		put(t, sys.Sys("class/block", array, "size"), "16384\n")
		for _, name := range components {
			put(t, sys.Sys("class/block", array, "slaves", name), "")
		}
	}
	return sys
}

// arrayDevice returns an array whose device node is an empty disk.
func arrayDevice(t *testing.T) block.Device {
	t.Helper()
	path := testenv.Loop(t, testenv.SparseFile(t, 8*mib), 512)
	return block.Device{Name: filepath.Base(path), Path: path, Type: "raid1"}
}

func paths(devices []block.Device) []string {
	var list []string
	for _, d := range devices {
		list = append(list, d.Path)
	}
	return list
}

// The members of a protected array and the array itself are omitted.
func TestWithoutProtected(t *testing.T) {
	member := raidtest.MemberDisk(t, testenv.RAID{Name: "host:data", Level: 1})
	other := raidtest.MemberDisk(t, testenv.RAID{Name: "host:other", Level: 1})
	broken := raidtest.MemberDisk(t, testenv.RAID{Name: "host:data", Level: 1})
	f, err := os.OpenFile(broken.Path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteAt([]byte{1}, 4096+100); err != nil { // the checksum is wrong now
		t.Fatal(err)
	}
	if err := errors.Join(f.Sync(), f.Close()); err != nil {
		t.Fatal(err)
	}
	array, otherArray, brokenArray := arrayDevice(t), arrayDevice(t), arrayDevice(t)
	disks := []block.Device{member, other, broken}
	sys := machine(t, disks,
		map[string][]string{array.Name: {member.Name}, otherArray.Name: {other.Name}, brokenArray.Name: {broken.Name}})
	devices := append(disks, array, otherArray, brokenArray)
	n := func(fields string) *node.Node {
		n, err := node.FromJSON([]byte(`{"uuid": "u", ` + fields + `}`))
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	const skip = `"properties": {"skip_block_devices": [{"volume_name": "data"}]}`
	for _, tt := range []struct {
		name string
		node *node.Node
		want []block.Device
	}{
		{"protected", n(skip), []block.Device{other, broken, otherArray, brokenArray}},
		{"no array named", n(`"properties": {"skip_block_devices": [{"name": "/dev/sda"}]}`), devices},
		{"no node", nil, devices},
	} {
		kept, err := WithoutProtected(t.Context(), sys, tt.node, devices)
		if err != nil || !slices.Equal(paths(kept), paths(tt.want)) {
			t.Errorf("%s: got %v and %v, want %v", tt.name, paths(kept), err, paths(tt.want))
		}
	}
	missing := block.Device{Name: "missing", Path: "/dev/missing", Type: "disk"}
	if kept, err := WithoutProtected(t.Context(), sys, n(skip),
		[]block.Device{missing}); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("missing disk: got %v and %v, want %v", paths(kept), err, fs.ErrNotExist)
	}
	unlisted := machine(t, []block.Device{array}, nil)
	kept, err := WithoutProtected(t.Context(), unlisted, n(skip), []block.Device{array})
	if !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("array with unknown components: got %v and %v, want %v", paths(kept), err, fs.ErrNotExist)
	}
	if kept, err := WithoutProtected(t.Context(), sys, n(skip), nil); err != nil || len(kept) > 0 {
		t.Errorf("no disks: got %v and %v", paths(kept), err)
	}
	wrong := n(`"properties": {"skip_block_devices": [{"volume_name": 5}]}`)
	if kept, err := WithoutProtected(t.Context(), sys, wrong, devices); err == nil {
		t.Errorf("invalid list: got %v and no error", paths(kept))
	}
}

// A disk whose table names partitions that the kernel does not show is an error: they can be members.
func TestHiddenPartitions(t *testing.T) {
	path := testenv.Loop(t, testenv.SparseFile(t, 32<<20), 512)
	testenv.GPT(t, path, "size=4MiB", "size=8MiB")
	d := block.Device{Name: filepath.Base(path), Path: path, Type: "disk", Size: 32 << 20}
	if err := partition.Sync(t.Context(), sysfs.Root{}, path); err != nil {
		t.Fatal(err)
	}
	n, err := node.FromJSON([]byte(`{"uuid": "u", "properties": {"skip_block_devices": [{"volume_name": "root"}]}}`))
	if err != nil {
		t.Fatal(err)
	}
	if kept, err := WithoutProtected(t.Context(), sysfs.Root{}, n, []block.Device{d}); err != nil ||
		len(kept) != 1 {
		t.Errorf("shown: got %v and %v, want the disk", paths(kept), err)
	}
	if err := partition.Forget(t.Context(), sysfs.Root{}, path); err != nil {
		t.Fatal(err)
	}
	kept, err := WithoutProtected(t.Context(), sysfs.Root{}, n, []block.Device{d})
	want := "the kernel does not show 2 of the partitions in the table of " + path
	if err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("hidden: got %v and %v, want %q", paths(kept), err, want)
	}
	missing := block.Device{Name: "missing", Path: "/dev/missing"}
	for name, arrays := range map[string]Rules{
		"protected": {protected: []string{"root"}}, "created": {created: []Volume{{}}},
	} {
		if err := arrays.CheckShown(t.Context(), sysfs.Root{}, d); err == nil {
			t.Errorf("%s: got no error", name)
		}
		if err := arrays.CheckShown(t.Context(), sysfs.Root{}, missing); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s: missing disk: got %v, want %v", name, err, fs.ErrNotExist)
		}
	}
	if err := (Rules{}).CheckShown(t.Context(), sysfs.Root{}, missing); err != nil {
		t.Errorf("no arrays: got %v, want no error", err)
	}
}

// An array whose components cannot be read is an error, not an array without a name.
func TestMembersErrors(t *testing.T) {
	array := arrayDevice(t)
	for name, sys := range map[string]sysfs.Root{
		"components not listed": machine(t, []block.Device{array}, nil),
		"missing component":     machine(t, nil, map[string][]string{array.Name: {"missing"}}),
		"array not listed":      {Path: t.TempDir()},
	} {
		if members, err := Members(t.Context(), sys, array); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s: got %v and %v, want %v", name, members, err, fs.ErrNotExist)
		}
	}
}

// A member of an array that Ironic created must not be written to, the array itself can be. The disk is read only if
// the node has such arrays.
func TestCheckCreated(t *testing.T) {
	member := raidtest.MemberDisk(t, testenv.RAID{Name: "root", Level: 1})
	other := raidtest.MemberDisk(t, testenv.RAID{Name: "tenant", Level: 1})
	hidden, array := testenv.Loop(t, testenv.SparseFile(t, 32*mib), 512), arrayDevice(t)
	testenv.GPT(t, hidden, "size=4MiB")
	if err := partition.Forget(t.Context(), sysfs.Root{}, hidden); err != nil {
		t.Fatal(err)
	}
	sys := machine(t, []block.Device{member, other, {Name: filepath.Base(hidden)}},
		map[string][]string{array.Name: {member.Name}})
	const created = `"raid_config": {"logical_disks": [{"controller": "software", "raid_level": "1", ` +
		`"volume_name": "root"}]}`
	for _, tt := range []struct {
		name, fields string
		device       block.Device
		want         string // in the error; "" for none
	}{
		{"member", created, member, member.Path +
			` is a member of raid1 array "root", which Ironic created (logical disk 1`},
		{"other array", created, other, ""},
		{"array", created, array, ""},
		{
			"hidden partitions", created,
			block.Device{Name: filepath.Base(hidden), Path: hidden},
			"the kernel does not show",
		},
		{"no table to read", created, block.Device{Name: "missing", Path: "/dev/missing"}, "/dev/missing"},
		{"not listed", created, block.Device{Name: "loop", Path: "/dev/loop-control"}, "loop-control"},
		{"no array created", `"properties": {}`, block.Device{Name: "missing", Path: "/dev/missing"}, ""},
		{"invalid", `"raid_config": {"logical_disks": 5}`, other, "logical_disks"},
	} {
		n, err := node.FromJSON([]byte(`{"uuid": "u", ` + tt.fields + `}`))
		if err != nil {
			t.Fatal(err)
		}
		err = CheckCreated(t.Context(), sys, n, tt.device)
		if tt.want == "" && err != nil || tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)) {
			t.Errorf("%s: got %v, want %q", tt.name, err, tt.want)
		}
	}
	empty := machine(t, nil, nil) // which does not list the disk
	n, err := node.FromJSON([]byte(`{"uuid": "u", ` + created + `}`))
	if err != nil {
		t.Fatal(err)
	}
	if err := CheckCreated(t.Context(), empty, n, member); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("disk that is not listed: got %v, want %v", err, fs.ErrNotExist)
	}
	if err := CheckCreated(t.Context(), empty, nil, member); err != nil {
		t.Errorf("no node: got %v, want no error", err)
	}
}
