package cleaning

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"ironroot/agent/softraid"
	"ironroot/internal/test/imagetest"
	"ironroot/internal/test/raidtest"
	"ironroot/internal/test/testenv"
	"ironroot/storage/block"
	"ironroot/storage/raid"
	"ironroot/storage/sysfs"
)

// editSuperblock changes the superblock of version 1.2 on a device, and undoes that when the test ends.
func editSuperblock(t *testing.T, path string, change func(b []byte)) {
	t.Helper()
	b := imagetest.ReadAt(t, path, 4096, 512)
	before := bytes.Clone(b)
	t.Cleanup(func() { raidtest.Write(t, path, 4096, before) })
	change(b)
	binary.LittleEndian.PutUint32(b[216:], 0)
	var sum uint64
	for i := 0; i < len(b); i += 4 {
		sum += uint64(binary.LittleEndian.Uint32(b[i:]))
	}
	binary.LittleEndian.PutUint32(b[216:], uint32(sum)+uint32(sum>>32))
	raidtest.Write(t, path, 4096, b)
}

// createdLog returns what prepareArrays logs, and the number of members that it has found.
func createdLog(t *testing.T, fields string, disks ...block.Device) (string, int) {
	t.Helper()
	m := onThisMachine(t, disks...)
	var log bytes.Buffer
	m.o.Log = slog.New(slog.NewTextHandler(&log, nil))
	n := nodeWith(t, fields)
	run, err := m.startDiskRun(t.Context(), n, "disk not erased", "erase_devices_metadata")
	if err != nil {
		t.Fatal(err)
	}
	run.prepareArrays(t.Context(), n)
	return log.String(), len(run.kept.members)
}

// An array is erased and kept only if its members are as create_configuration makes them.
func TestPrepareArraysMembers(t *testing.T) {
	disks, fields, _ := createdDisks(t, "gpt")
	if log, members := createdLog(t, fields, disks...); members != 4 || strings.Contains(log, "cannot be kept") {
		t.Fatalf("got %d members and log %s, want the two members of two arrays", members, log)
	}
	const maxDataOffset = 256 << 20 // of members that can be kept
	first := block.PartitionPath(sysfs.Root{}, disks[0].Path, 1)
	second := block.PartitionPath(sysfs.Root{}, disks[1].Path, 1)
	le := binary.LittleEndian
	move := func(by int64) func([]byte) { // the data, by sectors
		return func(b []byte) {
			le.PutUint32(b[8:], 0)     // no bitmap, because that has the size of the array
			le.PutUint64(b[80:], 2048) // of the array
			le.PutUint64(b[128:], uint64(int64(le.Uint64(b[128:]))+by))
			le.PutUint64(b[136:], uint64(int64(le.Uint64(b[136:]))-by))
		}
	}
	partition := func(d block.Device) block.Device {
		d.Type = "part"
		return d
	}
	for name, c := range map[string]struct {
		prepare  func(t *testing.T)
		from, to string // in the node's fields
		disks    []block.Device
		members  int // that can be wiped
		want     string
	}{
		"other level": {
			nil, `"raid_level": "0"`, `"volume_name": "md1", "raid_level": "5"`, disks, 2,
			"volume_name=md1 err=\"raid0 array \\\"any:md1\\\" on",
		},
		"size": {nil, `"size_gb": 1`, `"size_gb": 3`, disks, 2, "bytes, want about 3221225472"},
		"type": {nil, "", "", []block.Device{disks[0], partition(disks[1])}, 0, `got type \"part\", want a disk`},
		"spare": {func(t *testing.T) {
			editSuperblock(t, second, func(b []byte) { b[256+2], b[256+3] = 0xff, 0xff })
		}, "", "", disks, 2, second + " has no role in"},
		"name": {func(t *testing.T) {
			editSuperblock(t, second, func(b []byte) { copy(b[32:], "any:roof") })
		}, "", "", disks, 2, `got name \"roof\", want \"root\"`},
		"data": {func(t *testing.T) {
			editSuperblock(t, first, move(0))
			editSuperblock(t, second, move(8))
		}, "", "", disks, 2, "as on " + first},
		"large offset": {func(t *testing.T) {
			editSuperblock(t, first, move(maxDataOffset/512))
			editSuperblock(t, second, move(maxDataOffset/512))
		}, "", "", disks, 2, "want at most 268435456"},
	} {
		t.Run(name, func(t *testing.T) {
			if c.prepare != nil {
				c.prepare(t)
			}
			log, members := createdLog(t, strings.Replace(fields, c.from, c.to, 1), c.disks...)
			if !strings.Contains(log, c.want) || members != c.members {
				t.Errorf("got %d members and log %s, want %d and %q", members, log, c.members, c.want)
			}
		})
	}
}

// The members of an array must be partitions, each on a disk of its own.
func TestPrepareArraysDisks(t *testing.T) {
	fields := `"raid_config": {"logical_disks": [` + raidtest.LogicalDisk("1", `"MAX"`, `"volume_name": "root"`) + `]}`
	both := raidtest.PartsDisk(t, 4096,
		&testenv.RAID{Name: "root", Level: 1}, &testenv.RAID{Name: "root", Level: 1, Member: 1})
	for want, disks := range map[string][]block.Device{
		"is not a partition": raidtest.MemberDisks(t, "root"), "has two members of": {both},
	} {
		if log, members := createdLog(t, fields, disks...); !strings.Contains(log, want) || members > 0 {
			t.Errorf("got %d members and log %s, want %q", members, log, want)
		}
	}
	m := newMachine(t) // the machine is an empty directory
	var log bytes.Buffer
	m.o.Log = slog.New(slog.NewTextHandler(&log, nil))
	run, n := startErase(t, m), nodeWith(t, fields)
	var err error
	if run.arrays.Rules, err = softraid.RulesOf(n); err != nil {
		t.Fatal(err)
	}
	if run.prepareArrays(t.Context(), n); !strings.Contains(log.String(), "list arrays: ") {
		t.Errorf("got log %s, want an error of the kernel's arrays", &log)
	}
}

// An array that uses a member must not run.
func TestPrepareArraysRunning(t *testing.T) {
	disks, fields, _ := createdDisks(t, "gpt")
	sys := sysfs.Root{Path: t.TempDir()}
	part := filepath.Base(block.PartitionPath(sysfs.Root{}, disks[1].Path, 1))
	raidtest.ListArray(t, sys, "md9", part)
	for _, d := range disks { // of this machine
		for _, path := range []string{
			d.Path, block.PartitionPath(sysfs.Root{}, d.Path, 1), block.PartitionPath(sysfs.Root{}, d.Path, 2),
		} {
			name := filepath.Base(path)
			if err := os.Symlink(sysfs.Root{}.Sys("class/block", name), sys.Sys("class/block", name)); err != nil {
				t.Fatal(err)
			}
		}
	}
	m := onThisMachine(t, disks...)
	n := nodeWith(t, fields)
	run, err := m.startDiskRun(t.Context(), n, "disk not erased", "erase_devices_metadata")
	if err != nil {
		t.Fatal(err)
	}
	var log bytes.Buffer
	m.o.System, m.o.Log = sys, slog.New(slog.NewTextHandler(&log, nil))
	run.prepareArrays(t.Context(), n)
	if !strings.Contains(log.String(), "volume_name=root err=\"/dev/md9 runs") || len(run.kept.members) != 2 {
		t.Errorf("got %d members and log %s, want those of the other array", len(run.kept.members), &log)
	}
}

// The partition tables of the disks must be readable and complete, and without an extended partition.
func TestPrepareArraysTables(t *testing.T) {
	const extended = 446 + 2*16 // the third entry of an MBR
	for name, c := range map[string]struct {
		scheme string
		damage func(t *testing.T, d block.Device)
		want   string
	}{
		"none": {"gpt", func(t *testing.T, d block.Device) {
			raidtest.Write(t, d.Path, 0, make([]byte, 17<<10))
			raidtest.Write(t, d.Path, d.Size-17<<10, make([]byte, 17<<10))
		}, "no partition table"},
		"damaged": {"gpt", func(t *testing.T, d block.Device) {
			raidtest.Write(t, d.Path, d.Size-512, make([]byte, 512))
		}, "the partition table is damaged"},
		"extended": {"msdos", func(t *testing.T, d block.Device) {
			const size = 512 // sectors
			start := uint32(d.Size/512 - size)
			entry := make([]byte, 16)
			entry[4] = 5
			binary.LittleEndian.PutUint32(entry[8:], start)
			binary.LittleEndian.PutUint32(entry[12:], size)
			raidtest.Write(t, d.Path, extended, entry)
			raidtest.Write(t, d.Path, int64(start)*512+510, []byte{0x55, 0xaa})
		}, "has an extended partition"},
	} {
		disks, fields, _ := createdDisks(t, c.scheme)
		c.damage(t, disks[1])
		if log, members := createdLog(t, fields, disks...); !strings.Contains(log, c.want) || members > 0 {
			t.Errorf("%s: got %d members and log %s, want %q", name, members, log, c.want)
		}
	}
}

// A member that is in use is an error, and so is a disk whose partitions or superblocks cannot be read afterwards, or
// that has superblocks of other arrays.
func TestWipeCreatedFails(t *testing.T) {
	disks, fields, _ := createdDisks(t, "gpt")
	path := block.PartitionPath(sysfs.Root{}, disks[1].Path, 1)
	holder, err := os.OpenFile(path, os.O_RDONLY|unix.O_EXCL, 0)
	if err != nil {
		t.Fatal(err)
	}
	_, err = impatient(onThisMachine(t, disks...)).EraseMetadata(t.Context(), nodeWith(t, fields))
	if want := `wipe raid1 array "any:root" on ` + path; typeOf(err) != "BlockDeviceEraseError" ||
		!errors.Is(err, unix.EBUSY) || !strings.Contains(err.Error(), want) {
		t.Errorf("got %v, want a BlockDeviceEraseError with %q", err, want)
	}
	if err := holder.Close(); err != nil {
		t.Fatal(err)
	}
	m := onThisMachine(t)
	members, err := raid.Members(t.Context(), m.o.System, disks[0])
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]raid.Member{}
	for _, member := range members {
		all[member.Device.Path] = member
	}
	empty := raidtest.PartsDisk(t, 0, nil)
	emptyPart := block.PartitionPath(sysfs.Root{}, empty.Path, 1)
	file := testenv.SparseFile(t, 3*mib)
	testenv.GPT(t, file, "size=1MiB")
	for name, c := range map[string]struct {
		created map[string]raid.Member
		disk    block.Device
		is      error
		want    string
	}{
		"as before":         {all, disks[0], nil, ""},
		"other superblocks": {nil, disks[0], nil, "a superblock of raid1 array \"any:root\" is left on"},
		"no superblock":     {map[string]raid.Member{emptyPart: {}}, empty, nil, emptyPart + " has 0 superblocks"},
		"no disk":           {all, block.Device{Path: "/dev/missing"}, fs.ErrNotExist, "/dev/missing"},
		"not listed":        {all, block.Device{Path: file}, fs.ErrNotExist, ""},
	} {
		kept := keptArrays{members: c.created}
		err := kept.wipeGaps(t.Context(), m.o.System, c.disk)
		if (err != nil) != (c.want != "" || c.is != nil) || c.is != nil && !errors.Is(err, c.is) ||
			!strings.Contains(errorText(err), c.want) {
			t.Errorf("%s: got %v, want %v and %q", name, err, c.is, c.want)
		}
	}
	kept := keptArrays{members: all}
	missing := block.Device{Path: "/dev/missing"}
	if has, err := kept.onDisk(t.Context(), m.o.System, missing); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("got %v and %v, want %v", has, err, fs.ErrNotExist)
	}
}
