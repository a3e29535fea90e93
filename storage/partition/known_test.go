package partition

import (
	"context"
	"encoding/binary"
	"errors"
	"io/fs"
	"os"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"ironroot/internal/test/testenv"
	"ironroot/storage/block"
	"ironroot/storage/devmapper"
	"ironroot/storage/sysfs"
)

// numbers lists the numbers of partitions.
func numbers(partitions []Partition) []int {
	var list []int
	for _, p := range partitions {
		list = append(list, p.Number)
	}
	return list
}

// bootSector converts a table to the boot sector of a file system.
func bootSector(table []byte, sectorSize uint16, media byte, name string) []byte {
	binary.LittleEndian.PutUint16(table[11:], sectorSize)
	table[21] = media
	copy(table[3:], name)
	return table
}

// One invalid entry of an MBR does not hide the others from ReadAll.
func TestReadAll(t *testing.T) {
	first, second := mbrEntry{kind: 0x83, first: 2048, size: 2048}, mbrEntry{kind: 0xfb, first: 4096, size: 2048}
	beyond, last := mbrEntry{kind: 0x83, first: 65536, size: 8}, mbrEntry{kind: 0x83, first: 65535, size: 8}
	odd := mbrEntry{boot: 0x01, kind: 0x83, first: 8192, size: 2048}
	protective := mbrEntry{kind: typeProtective, first: 1, size: 65535}
	whole := mbrEntry{boot: 0x80, kind: 0x0c, size: 65536}
	withText := func(at int, entries ...mbrEntry) []byte {
		sector := tableSector(entries...)
		copy(sector[at:], "FAT16   ")
		return sector
	}
	unsigned := tableSector(first)
	unsigned[511] = 0
	for _, tt := range []struct {
		name      string
		sector    []byte
		all, some []int // what ReadAll and Read return
	}{
		{"sound", tableSector(first, second), []int{1, 2}, []int{1, 2}},
		{"beyond the end", tableSector(first, beyond, second), []int{1, 3}, nil},
		{"last sector", tableSector(first, last), []int{1, 2}, []int{1, 2}},
		{"all beyond the end", tableSector(beyond), nil, nil},
		{"FAT before a sound table", withText(54, first, second), []int{1, 2}, []int{1, 2}},
		{"FAT32 before a sound table", withText(82, first, second), []int{1, 2}, []int{1, 2}},
		{"FAT before another status", withText(54, first, odd), []int{1, 2}, nil},
		{"FAT without partitions", withText(82), nil, nil},
		{"table of mkfs.fat", withText(82, whole), []int{1}, nil},
		{"status", tableSector(first, odd), []int{1, 2}, nil},
		{"type 0", tableSector(first, mbrEntry{first: 8192, size: 8}), []int{1, 2}, []int{1}},
		{"size 0", tableSector(first, mbrEntry{kind: 0x83, first: 8192}), []int{1}, []int{1}},
		{"protective entry only", tableSector(protective), nil, nil},
		{"protective entry", tableSector(protective, second), []int{2}, nil},
		{"empty", tableSector(), nil, nil},
		{"no signature", unsigned, nil, nil},
		{"FAT", bootSector(tableSector(odd), 512, 0xf8, ""), nil, nil},
		{"floppy", bootSector(tableSector(odd), 4096, 0xf0, ""), nil, nil},
		{"exFAT", bootSector(tableSector(odd), 0, 0, "EXFAT   "), nil, nil},
		{"parameters and a sound table", bootSector(tableSector(first), 512, 0xf8, "EXFAT   "), []int{1}, []int{1}},
		{"sectors of 256 bytes", bootSector(tableSector(odd), 256, 0xf8, ""), []int{1}, nil},
		{"sectors of 768 bytes", bootSector(tableSector(odd), 768, 0xf8, ""), []int{1}, nil},
		{"medium 0xf1", bootSector(tableSector(odd), 512, 0xf1, ""), []int{1}, nil},
		{"medium 0xf7", bootSector(tableSector(odd), 512, 0xf7, "EXFAT"), []int{1}, nil},
	} {
		image := testenv.SparseFile(t, 32*mib)
		writeAt(t, image, 0, tt.sector)
		for name, read := range map[string]struct {
			table func(context.Context, string) (*Table, error)
			want  []int
		}{"Read": {Read, tt.some}, "ReadAll": {ReadAll, tt.all}} {
			table, err := read.table(t.Context(), image)
			if read.want == nil && !errors.Is(err, ErrNoTable) {
				t.Errorf("%s: %s: got %v, want %v", tt.name, name, err, ErrNoTable)
			} else if read.want != nil &&
				(err != nil || !slices.Equal(numbers(table.Partitions), read.want) || table.Scheme != MBR) {
				t.Errorf("%s: %s: got %+v and %v, want an MBR with partitions %v", tt.name, name, table, err, read.want)
			}
		}
	}
}

// ReadAll follows the chain of logical partitions despite an invalid entry, and reads a GPT as Read does.
func TestReadAllWhole(t *testing.T) {
	image := chainImage(t, links(3, 1)...)
	want := read(t, image)
	writeAt(t, image, mbrTable+3*16, []byte{0, 0, 0, 0, 0x83, 0, 0, 0, 0, 0, 0, 0x7f, 1, 0, 0, 0})
	got, err := ReadAll(t.Context(), image)
	if diff := cmp.Diff(want, got); err != nil || diff != "" {
		t.Errorf("%v, -want +got:\n%s", err, diff)
	}
	image = gptImage(t, 16*mib)
	writeAt(t, image, 440, []byte{1, 2, 3, 4})
	writeAt(t, image, 512, make([]byte, 512)) // the primary
	want = read(t, image)
	got, err = ReadAll(t.Context(), image)
	if diff := cmp.Diff(want, got); err != nil || diff != "" || !got.Damaged || got.DiskID != 0x04030201 {
		t.Errorf("%v, -want +got:\n%s", err, diff)
	}
}

// A table that cannot be read is an error and does not count as none.
func TestReadAllErrors(t *testing.T) {
	image := chainImage(t, links(3, 1)...)
	cancelled, cancel := context.WithCancel(t.Context())
	cancel()
	d := shrunk(t, image, 32*mib)
	if table, err := d.allEntries(cancelled); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: got %+v and %v, want %v", table, err, context.Canceled)
	}
	if err := d.file.Close(); err != nil {
		t.Fatal(err)
	}
	if table, err := d.allEntries(t.Context()); !errors.Is(err, os.ErrClosed) {
		t.Errorf("closed: got %+v and %v, want %v", table, err, os.ErrClosed)
	}
	for name, err := range map[string]error{
		"ReadAll":    second(ReadAll(t.Context(), "/dev/missing")),
		"Known":      second(Known(t.Context(), sysfs.Root{}, "/dev/missing")),
		"Hidden":     second(Hidden(t.Context(), sysfs.Root{}, "/dev/missing")),
		"not listed": second(Hidden(t.Context(), sysfs.Root{Path: t.TempDir()}, image)),
	} {
		if !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s: got %v, want %v", name, err, fs.ErrNotExist)
		}
	}
}

func second[T any](_ T, err error) error { return err }

// The partitions of a multipath map come from the device mapper. Maps that are not a plain range are omitted.
func TestKnownOfMap(t *testing.T) {
	f := &fakeMapper{t: t, root: t.TempDir(), maps: map[string]devmapper.Map{}, busy: map[string]int{}}
	d := f.disk()
	sys, closed, broken := sysfs.Root{Path: f.root}, 0, errors.New("broken")
	open := func() (mapperFile, error) { return closingMapper{f, &closed}, nil }
	if got, err := known(t.Context(), sys, "/dev/dm-0",
		func() (mapperFile, error) { return nil, broken }); err != nil || got != nil {
		t.Errorf("without partitions: got %v and %v, want none", got, err)
	}
	for n, e := range map[int]extent{1: {0, mib}, 2: {4 * mib, 2 * mib}, 3: {8 * mib, mib}} {
		if err := d.add(n, e); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := f.Create(devmapper.Map{
		UUID: "part4-" + mapID, Targets: []devmapper.Target{{Kind: "crypt", Size: mib}},
	}); err != nil {
		t.Fatal(err)
	}
	want := []Partition{
		{Number: 1, Size: mib}, {Number: 2, Start: 4 * mib, Size: 2 * mib}, {Number: 3, Start: 8 * mib, Size: mib},
	}
	got, err := known(t.Context(), sys, "/dev/dm-0", open)
	if diff := cmp.Diff(want, got); err != nil || diff != "" || closed != 1 {
		t.Errorf("%v, closed %d times, -want +got:\n%s", err, closed, diff)
	}
	for name, open := range map[string]func() (mapperFile, error){
		"no device mapper": func() (mapperFile, error) { return nil, broken },
		"no tables":        func() (mapperFile, error) { return brokenMapperFile{brokenMapper{broken}}, nil },
	} {
		if got, err := known(t.Context(), sys, "/dev/dm-0", open); !errors.Is(err, broken) {
			t.Errorf("%s: got %v and %v, want %v", name, got, err, broken)
		}
	}
}

type brokenMapperFile struct{ brokenMapper }

func (brokenMapperFile) Close() error { return nil }

// A partition that the kernel does not show is hidden, even if only the backup of a GPT names it. Linux shows two
// sectors of an extended partition and truncates one that ends beyond the end of the disk.
func TestHidden(t *testing.T) {
	path := testenv.Loop(t, testenv.SparseFile(t, 32*mib), 512)
	check := func(what string, want ...int) {
		t.Helper()
		if hidden, err := Hidden(t.Context(), sysfs.Root{}, path); err != nil || !slices.Equal(numbers(hidden), want) {
			t.Errorf("%s: got %+v and %v hidden, want %v", what, hidden, err, want)
		}
	}
	testenv.GPT(t, path, "size=4MiB", "size=8MiB")
	if err := Sync(t.Context(), sysfs.Root{}, path); err != nil {
		t.Fatal(err)
	}
	check("GPT")
	writeAt(t, path, 512, make([]byte, 512))
	check("damaged primary")
	if err := Forget(t.Context(), sysfs.Root{}, path); err != nil {
		t.Fatal(err)
	}
	check("damaged primary that the kernel has read", 1, 2)
	odd := tableSector(mbrEntry{first: 2048, size: 2048}, mbrEntry{kind: 0x83, first: 65536, size: 8},
		mbrEntry{kind: 0x05, first: 8192, size: 8192}, mbrEntry{kind: 0x83, first: 32768, size: 65536})
	copy(odd[54:], "FAT16   ")
	writeAt(t, path, 0, odd)
	writeAt(t, path, 8192*512, tableSector(mbrEntry{kind: 0x83, first: 2048, size: 2048}))
	check("MBR that the kernel has not read", 1, 4, 5)
	for n, e := range map[int]extent{1: {mib, mib}, 3: {4 * mib, 1024}, 4: {16 * mib, 16 * mib}, 5: {5 * mib, mib}} {
		if err := block.AddPartition(path, n, e.start, e.size); err != nil {
			t.Fatal(err)
		}
	}
	check("MBR")
	writeAt(t, path, 0, make([]byte, 512))
	check("no table")
}

// A partition is hidden if its start or its size differs. One that starts beyond the end of the disk is not.
func TestHiddenRanges(t *testing.T) {
	parts := []Partition{
		{Number: 1, Start: mib, Size: mib},
		{Number: 2, Start: 2 * mib, Size: mib},
		{Number: 3, Start: 3 * mib, Size: mib},
		{Number: 4, Start: 15 * mib, Size: 2 * mib},
		{Number: 5, Start: 16 * mib, Size: mib},
	}
	shown := []Partition{
		{Number: 9, Start: mib, Size: mib},
		{Number: 2, Start: 2 * mib, Size: 2 * mib},
		{Number: 3, Start: 4 * mib, Size: mib},
		{Number: 4, Start: 15 * mib, Size: mib},
	}
	for scheme, want := range map[string][]int{GPT: {2, 3, 4}, MBR: {2, 3}} {
		table := &Table{Scheme: scheme, DiskSize: 16 * mib, Partitions: parts}
		if got := numbers(table.hidden(shown)); !slices.Equal(got, want) {
			t.Errorf("%s: got %v, want %v", scheme, got, want)
		}
		if len(table.Partitions) != 5 || table.Partitions[0].Number != 1 {
			t.Errorf("%s: the table was changed: %+v", scheme, table.Partitions)
		}
	}
}
