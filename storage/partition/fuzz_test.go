package partition

import (
	"encoding/binary"
	"errors"
	"hash/crc32"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"ironroot/internal/test/testenv"
	"ironroot/storage/sysfs"
)

// The disks have 4 MiB, of which only both ends are fuzzed: they contain the tables.
const (
	fuzzDisk = 4 << 20
	fuzzHead = 32 << 10
	fuzzTail = 17 << 10
)

// resealed corrects the checksums of both copies of a GPT. Otherwise all changed tables would be rejected.
func resealed(disk []byte) {
	const sector = 512
	for _, at := range []int{sector, len(disk) - sector} {
		h := disk[at:][:sector]
		le := binary.LittleEndian
		size, entries := le.Uint32(h[12:]), le.Uint64(h[72:])
		length := uint64(le.Uint32(h[80:])) * uint64(le.Uint32(h[84:]))
		if entries < uint64(len(disk)/sector) && length <= uint64(len(disk)) &&
			entries*sector+length <= uint64(len(disk)) {
			le.PutUint32(h[88:], crc32.ChecksumIEEE(disk[entries*sector:][:length]))
		}
		if size >= gptHeaderSize && size <= sector {
			le.PutUint32(h[16:], headerCRC(h[:size]))
		}
	}
}

// headerCRC returns the checksum of a header, whose own field counts as zero.
func headerCRC(raw []byte) uint32 {
	raw = slices.Clone(raw)
	clear(raw[16:20])
	return crc32.ChecksumIEEE(raw)
}

// FuzzDisk reads and repairs disks of any content, and adds partitions: existing partitions are kept, and the added
// one is on the disk and overlaps neither them nor the table.
func FuzzDisk(f *testing.F) {
	testenv.Programs(f, "sgdisk", "sfdisk")
	dir, err := os.MkdirTemp("/dev/shm", "ironroot-partition") // in memory: every table is flushed
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() { _ = os.RemoveAll(dir) })
	image := filepath.Join(dir, "image")
	disk := make([]byte, fuzzDisk)
	write := func(t testing.TB) {
		t.Helper()
		if err := os.WriteFile(image, disk, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	seed := func(size int64) {
		f.Add(slices.Clone(disk[:fuzzHead]), slices.Clone(disk[fuzzDisk-fuzzTail:]), size)
		f.Add(slices.Clone(disk[:fuzzHead]), []byte{}, size) // a table that was made for a smaller disk
	}
	table := func(command string, args ...string) {
		clear(disk)
		write(f)
		testenv.Run(f, command, append(args, image)...)
		data, err := os.ReadFile(image)
		if err != nil {
			f.Fatal(err)
		}
		copy(disk, data)
		seed(4096)
		seed(mib)
	}
	table("sh", "-c", `printf 'label: dos\n1,8,83\n9,3000,5\n11,5,83\n20,5,83\n' | sfdisk --force -q "$0"`)
	table("sgdisk", "-a", "1", "-n", "1:34:40", "-n", "2:2048:4000")
	binary.LittleEndian.PutUint64(disk[512+72:], 6000) // entries that lie where partitions should
	seed(3 * mib / 2)
	binary.LittleEndian.PutUint64(disk[512+72:], 2)
	binary.LittleEndian.PutUint32(disk[512+80:], 2) // no free entry
	seed(4096)
	binary.LittleEndian.PutUint64(disk[512+40:], 16418) // a first usable sector beyond the end of the disk
	binary.LittleEndian.PutUint64(disk[512+48:], 20000)
	seed(4096)
	binary.LittleEndian.PutUint64(disk[512+40:], 34) // entries where the backup's belong
	binary.LittleEndian.PutUint64(disk[512+72:], 8180)
	seed(4096)
	f.Fuzz(func(t *testing.T, head, tail []byte, size int64) {
		clear(disk)
		copy(disk[:fuzzHead], head)
		copy(disk[fuzzDisk-fuzzTail:], tail)
		resealed(disk)
		write(t)
		before, err := Read(t.Context(), image)
		all, allErr := ReadAll(t.Context(), image)
		if allErr != nil && !errors.Is(allErr, ErrNoTable) {
			t.Errorf("ReadAll: got %v, want %v", allErr, ErrNoTable)
		}
		if err == nil && (allErr != nil || len(all.Partitions) < len(before.Partitions)) {
			t.Errorf("ReadAll: got %+v and %v, want at least %+v", all, allErr, before)
		}
		if err != nil {
			if !errors.Is(err, ErrNoTable) { // content must not keep a disk from being erased
				t.Errorf("got %v, want %v", err, ErrNoTable)
			}
			if _, err := Add(t.Context(), sysfs.Root{}, image, Partition{Size: size}); err == nil {
				t.Errorf("a partition was added to a table that cannot be read")
			}
			return
		}
		for _, p := range before.Partitions {
			if p.Start < 0 || p.Size <= 0 {
				t.Errorf("read %+v", p)
			}
		}
		if _, err := RepairBackup(t.Context(), image); err == nil {
			check(t, image, before.Partitions)
		}
		added, err := Add(t.Context(), sysfs.Root{}, image, Partition{Size: size})
		if err != nil {
			check(t, image, before.Partitions)
			return
		}
		if added.Start <= 0 || added.Size < size || added.Start+added.Size > fuzzDisk {
			t.Fatalf("added %+v to a disk of %d bytes, want %d bytes", added, fuzzDisk, size)
		}
		for _, p := range before.Partitions {
			if p.Start < added.Start+added.Size && added.Start < p.Start+p.Size {
				t.Errorf("added %+v over %+v", added, p)
			}
		}
		content, err := os.OpenFile(image, os.O_WRONLY, 0)
		if err != nil {
			t.Fatal(err)
		}
		defer content.Close()
		if _, err := content.WriteAt(make([]byte, added.Size), added.Start); err != nil {
			t.Fatal(err)
		}
		check(t, image, append(slices.Clone(before.Partitions), added))
		if after, err := Read(t.Context(), image); err == nil && after.Damaged {
			t.Errorf("what was written to %+v has damaged the table", added)
		}
	})
}

// check reads the table again and compares the positions of its partitions.
func check(t *testing.T, image string, want []Partition) {
	t.Helper()
	table, err := Read(t.Context(), image)
	if err != nil {
		t.Fatalf("the table cannot be read any more: %v", err)
	}
	for _, p := range want {
		found := slices.ContainsFunc(table.Partitions, func(q Partition) bool {
			return q.Number == p.Number && q.Start == p.Start && q.Size == p.Size && q.UUID == p.UUID
		})
		if !found {
			t.Errorf("%+v is gone, the table has %+v", p, table.Partitions)
		}
	}
}
