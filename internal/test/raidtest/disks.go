package raidtest

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"ironroot/internal/test/testenv"
	"ironroot/storage/block"
	"ironroot/storage/partition"
	"ironroot/storage/raid"
	"ironroot/storage/sysfs"
)

// Sizes in bytes.
const (
	MiB = 1 << 20 // bytes
	GiB = 1 << 30 // bytes
	// DiskSize is the size of the disk of MemberDisk.
	DiskSize = 24 * MiB
)

// BlankDisk makes an empty disk of a size.
func BlankDisk(t *testing.T, size int64) block.Device {
	t.Helper()
	path := testenv.Loop(t, testenv.SparseFile(t, size), 512)
	return block.Device{
		Name: filepath.Base(path), Path: path, Type: "disk", Size: size, Serial: path, Serials: []string{path},
	}
}

// Layout describes the partition table of a disk: scheme, and start and end of each partition in MiB.
func Layout(t *testing.T, d block.Device) string {
	t.Helper()
	table, err := partition.Read(t.Context(), d.Path)
	if err != nil {
		return err.Error()
	}
	text := table.Scheme
	for _, p := range table.Partitions {
		text += fmt.Sprintf(" %d-%d", p.Start/MiB, (p.Start+p.Size)/MiB)
	}
	return text
}

// ListArray adds a running array of the level raid1 to the list of a machine.
func ListArray(t *testing.T, sys sysfs.Root, name string, members ...string) {
	t.Helper()
	a := raid.Status{
		Name: name, Level: "raid1", Version: "1.2", State: "clean", Devices: 2, Degraded: 2 - len(members),
	}
	for i, member := range members {
		a.Slots = append(a.Slots, raid.Slot{Path: "/dev/" + member, Role: i, State: "in_sync"})
	}
	if err := show(sys, a); err != nil {
		t.Fatal(err)
	}
}

// LogicalDisk is an entry of logical_disks with a size and other fields as JSON.
func LogicalDisk(level, size, fields string) string {
	if fields != "" {
		fields = ", " + fields
	}
	return `{"controller": "software", "raid_level": "` + level + `", "size_gb": ` + size + fields + `}`
}

// MemberDisk makes a disk that is a member of an array with a superblock of version 1.2, full of bytes of a tenant.
func MemberDisk(t *testing.T, array testenv.RAID) block.Device {
	t.Helper()
	path := testenv.Loop(t, testenv.SparseFile(t, DiskSize), 512)
	testenv.Fill(t, path, 0, DiskSize, "tenant! ")
	array.Size = DiskSize
	Write(t, path, 4096, array.Superblock(4096))
	return block.Device{
		Name: filepath.Base(path), Path: path, Type: "disk", Size: DiskSize, Serial: path, Serials: []string{path},
	}
}

// MemberDisks makes the two disks of a RAID 1.
func MemberDisks(t *testing.T, name string) []block.Device {
	t.Helper()
	return []block.Device{
		MemberDisk(t, testenv.RAID{Name: name, Level: 1}), MemberDisk(t, testenv.RAID{Name: name, Level: 1, Member: 1}),
	}
}

// PartsDisk makes a disk with a partition of 8 MiB for each array, full of bytes of a tenant. A nil array is none.
func PartsDisk(t *testing.T, at int64, arrays ...*testenv.RAID) block.Device {
	t.Helper()
	size := int64(len(arrays)+1) * 8 * MiB
	path := testenv.Loop(t, testenv.SparseFile(t, size), 512)
	testenv.GPT(t, path, slices.Repeat([]string{"size=8MiB"}, len(arrays))...)
	if err := partition.Sync(t.Context(), sysfs.Root{}, path); err != nil {
		t.Fatal(err)
	}
	for i, array := range arrays {
		part := block.PartitionPath(sysfs.Root{}, path, i+1)
		testenv.Fill(t, part, 0, 8*MiB, "tenant! ")
		if array != nil {
			array.Size = 8 * MiB
			Write(t, part, at, array.Superblock(at))
		}
	}
	return block.Device{
		Name: filepath.Base(path), Path: path, Type: "disk", Size: size, Serial: path, Serials: []string{path},
	}
}

// Names lists the names of the arrays on a disk and its partitions.
func Names(t *testing.T, d block.Device) []string {
	t.Helper()
	members, err := raid.Members(t.Context(), sysfs.Root{}, d)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, m := range members {
		names = append(names, m.ShortName())
	}
	return names
}

// Target is a node with a target_raid_config of logical disks, and other fields.
func Target(logicalDisks, fields string) string {
	return `"target_raid_config": {"logical_disks": [` + logicalDisks + `]}` + fields
}

// Write writes bytes to a device.
func Write(t *testing.T, path string, at int64, data []byte) {
	t.Helper()
	if err := WriteAt(path, at, data); err != nil {
		t.Fatal(err)
	}
}

// WriteAt is Write for goroutines other than the test's.
func WriteAt(path string, at int64, data []byte) error {
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	_, err = f.WriteAt(data, at)
	return errors.Join(err, f.Sync(), f.Close())
}

// PartitionedDisk makes a disk with one partition of the given type that holds a file system.
func PartitionedDisk(t *testing.T, partitionType string) block.Device {
	t.Helper()
	testenv.Programs(t, "mkfs.vfat")
	file := testenv.SparseFile(t, DiskSize)
	testenv.GPT(t, file, "start=2048, size=8MiB, type="+partitionType)
	testenv.Run(t, "mkfs.vfat", "--offset", "2048", file, "8192")
	path := testenv.Loop(t, file, 512)
	if err := partition.Sync(t.Context(), sysfs.Root{}, path); err != nil {
		t.Fatal(err)
	}
	return block.Device{
		Name: filepath.Base(path), Path: path, Type: "disk", Size: DiskSize, Serial: path, Serials: []string{path},
	}
}

// ListDisks adds disks with a size in sectors to the list of a machine.
func ListDisks(t *testing.T, sys sysfs.Root, sectors string, names ...string) {
	t.Helper()
	for _, name := range names {
		for _, dir := range []string{"block", "class/block"} {
			file := sys.Sys(dir, name, "size")
			if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(file, []byte(sectors+"\n"), 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
}
