package partition

import (
	"context"
	"encoding/binary"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"ironroot/internal/test/testenv"
	"ironroot/storage/sysfs"
)

const mib = 1 << 20

// gptImage makes an image with two partitions with sfdisk.
func gptImage(t *testing.T, size int64) string {
	t.Helper()
	image := testenv.SparseFile(t, size)
	testenv.GPT(t, image, "label-id: 11111111-2222-3333-4444-555555555555",
		"1: start=2048, size=8MiB, type="+TypeESP+`, name="EFI system", uuid=AAAAAAAA-BBBB-CCCC-DDDD-EEEEEEEEEEEE`,
		`3: start=18432, size=4MiB, name="rööt", attrs=LegacyBIOSBootable`)
	return image
}

func grow(t *testing.T, image string, size int64) {
	t.Helper()
	if err := os.Truncate(image, size); err != nil {
		t.Fatal(err)
	}
}

// verify checks a table with sgdisk.
func verify(t *testing.T, device string) {
	t.Helper()
	testenv.Programs(t, "sgdisk")
	if out := testenv.Run(t, "sgdisk", "-v", device); !strings.Contains(out, "No problems found") {
		t.Errorf("sgdisk -v %s:\n%s", device, out)
	}
}

func read(t *testing.T, device string) *Table {
	t.Helper()
	table, err := Read(context.Background(), device)
	if err != nil {
		t.Fatal(err)
	}
	return table
}

func writeAt(t *testing.T, device string, offset int64, data []byte) {
	t.Helper()
	f, err := os.OpenFile(device, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteAt(data, offset); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(f.Sync(), f.Close()); err != nil {
		t.Fatal(err)
	}
}

var wantPartitions = []Partition{
	{
		Number: 1, Type: TypeESP, UUID: "aaaaaaaa-bbbb-cccc-dddd-eeeeeeeeeeee", Name: "EFI system",
		Start: mib, Size: 8 * mib,
	},
	{Number: 3, Type: TypeLinux, Name: "rööt", Attributes: 4, Boot: true, Start: 9 * mib, Size: 4 * mib},
}

func TestReadGPT(t *testing.T) {
	image := gptImage(t, 32*mib)
	table := read(t, image)
	if table.GUID != "11111111-2222-3333-4444-555555555555" || table.Scheme != GPT || table.SectorSize != 512 ||
		table.Damaged || table.BackupMisplaced {
		t.Errorf("got %+v", table)
	}
	table.Partitions[1].UUID = "" // random
	if diff := cmp.Diff(wantPartitions, table.Partitions); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	writeAt(t, image, 512+60, []byte{0xff}) // the primary header
	damaged := read(t, image)
	if !damaged.Damaged {
		t.Error("a broken primary is not reported")
	}
	damaged.Partitions[1].UUID = ""
	if diff := cmp.Diff(wantPartitions, damaged.Partitions); diff != "" {
		t.Errorf("from the backup: -want +got:\n%s", diff)
	}
	writeAt(t, image, 32*mib-512, make([]byte, 512))
	if _, err := Read(context.Background(), image); !errors.Is(err, ErrNoTable) {
		t.Errorf("got %v with both copies broken, want ErrNoTable", err)
	}
}

func TestRepairBackup(t *testing.T) {
	image := gptImage(t, 32*mib)
	grow(t, image, 100*mib+512*7)
	before := read(t, image)
	if !before.BackupMisplaced {
		t.Fatal("a backup in the middle of the disk is not reported")
	}
	if out := testenv.Run(t, "sgdisk", "-v", image); !strings.Contains(out, "self-pointer") {
		t.Fatalf("sgdisk sees nothing to repair:\n%s", out)
	}
	moved, err := RepairBackup(context.Background(), image)
	if !moved || err != nil {
		t.Fatalf("got %v, %v", moved, err)
	}
	verify(t, image)
	after := read(t, image)
	before.BackupMisplaced = false
	if diff := cmp.Diff(before, after); diff != "" {
		t.Errorf("-before +after:\n%s", diff)
	}
	want := testenv.SparseFile(t, 0)
	copyFile(t, image, want)
	testenv.Run(t, "sgdisk", "-e", want) // has nothing left to do
	if diff := cmp.Diff(head(t, want), head(t, image)); diff != "" {
		t.Errorf("sgdisk -e would have written another table: -sgdisk +ours:\n%s", diff)
	}
	if moved, err := RepairBackup(context.Background(), image); moved || err != nil {
		t.Errorf("a second time: got %v, %v", moved, err)
	}
}

func copyFile(t *testing.T, from, to string) {
	t.Helper()
	testenv.Run(t, "cp", "--sparse=always", from, to)
}

func head(t *testing.T, image string) []byte {
	t.Helper()
	f, err := os.Open(image)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close() //nolint:errcheck // only read
	data := make([]byte, 34*512)
	if _, err := f.ReadAt(data, 0); err != nil {
		t.Fatal(err)
	}
	return data
}

func TestRepairBackupLeavesAlone(t *testing.T) {
	t.Run("no table", func(t *testing.T) {
		image := testenv.SparseFile(t, 32*mib)
		if moved, err := RepairBackup(context.Background(), image); moved || err != nil {
			t.Errorf("got %v, %v", moved, err)
		}
	})
	t.Run("broken primary", func(t *testing.T) {
		image := gptImage(t, 32*mib)
		writeAt(t, image, 512+60, []byte{0xff})
		if moved, err := RepairBackup(context.Background(), image); moved || err != nil {
			t.Errorf("got %v, %v", moved, err)
		}
	})
	t.Run("shrunk disk", func(t *testing.T) {
		image := gptImage(t, 32*mib)
		grow(t, image, 13*mib)
		if moved, err := RepairBackup(context.Background(), image); moved || err == nil {
			t.Errorf("got %v, %v: the last partition does not fit", moved, err)
		}
	})
}

func TestRepairBackup4K(t *testing.T) {
	file := testenv.SparseFile(t, 64*mib)
	small := testenv.Loop(t, file, 4096)
	testenv.GPT(t, small, "size=8MiB, type="+TypeESP)
	big := testenv.SparseFile(t, 0)
	copyFile(t, file, big)
	grow(t, big, 200*mib)
	device := testenv.Loop(t, big, 4096)
	table := read(t, device)
	if table.SectorSize != 4096 || !table.BackupMisplaced || table.Partitions[0].Size != 8*mib {
		t.Fatalf("got %+v", table)
	}
	if moved, err := RepairBackup(context.Background(), device); !moved || err != nil {
		t.Fatalf("got %v, %v", moved, err)
	}
	verify(t, device)
	added, err := Add(context.Background(), sysfs.Root{}, device, Partition{Size: 64 * mib})
	if err != nil {
		t.Fatal(err)
	}
	verify(t, device)
	disk := filepath.Base(device)
	if data, err := os.ReadFile(filepath.Join("/sys/class/block", disk, disk+"p2", "size")); err != nil {
		t.Errorf("the kernel does not know partition %d: %v", added.Number, err)
	} else if len(data) == 0 {
		t.Error("empty size")
	}
}

func TestWrongSectorSize(t *testing.T) {
	image := gptImage(t, 32*mib)
	device := testenv.Loop(t, image, 4096)
	_, err := Read(context.Background(), device)
	if !errors.Is(err, ErrNoTable) || !strings.Contains(err.Error(), "512") {
		t.Errorf("got %v, want ErrNoTable naming the sector size", err)
	}
}

func TestAddGPT(t *testing.T) {
	image := gptImage(t, 32*mib)
	grow(t, image, 200*mib)
	added, err := Add(context.Background(), sysfs.Root{}, image, Partition{Size: 64 * mib, Name: "config"})
	if err != nil {
		t.Fatal(err)
	}
	verify(t, image)
	if added.Number != 2 || added.Type != TypeLinux || added.Size < 64*mib || added.Start%mib != 0 ||
		len(added.UUID) != 36 {
		t.Errorf("got %+v", added)
	}
	table := read(t, image)
	if diff := cmp.Diff(added, table.Partitions[1]); diff != "" {
		t.Errorf("-added +read:\n%s", diff)
	}
	if end := added.Start + added.Size; end != 200*mib-33*512 {
		t.Errorf("ends at byte %d, want the last usable sector", end)
	}
	if _, err := Add(context.Background(), sysfs.Root{}, image, Partition{Size: 64 * mib}); err == nil {
		t.Error("a second one found room where the first lies")
	}
}

// mbrImage makes an image with an MBR with sfdisk.
func mbrImage(t *testing.T, size int64, script string) string {
	t.Helper()
	testenv.Programs(t, "sfdisk")
	image := testenv.SparseFile(t, size)
	input := filepath.Join(t.TempDir(), "script")
	if err := os.WriteFile(input, []byte(script), 0o600); err != nil {
		t.Fatal(err)
	}
	testenv.Run(t, "sh", "-c", `PATH=$PATH:/usr/sbin; sfdisk -q "$0" <"$1"`, image, input)
	return image
}

// A table may name more usable sectors than its backup leaves: the new partition must not overlap the backup, and
// numbers of a foreign table must not overflow.
func TestAddGPTWithWrongUsableArea(t *testing.T) {
	for name, last := range map[string]int64{
		"to the last sector": 32*mib/512 - 1,
		"beyond the disk":    1<<55 + 20*mib/512, // its byte offset would wrap around into the disk
		"the largest number": 1<<63 - 1,
	} {
		t.Run(name, func(t *testing.T) {
			image := gptImage(t, 32*mib)
			rewritePrimary(t, image, func(g *gptCopy) { g.LastUsableLBA = last })
			added, err := Add(context.Background(), sysfs.Root{}, image, Partition{Size: 2 * mib})
			if err != nil {
				t.Fatal(err)
			}
			if end := added.Start + added.Size; end > 32*mib-33*512 {
				t.Errorf("the partition ends at byte %d, where the backup lies", end)
			}
			verify(t, image)
		})
	}
}

// rewritePrimary changes the primary header and updates its checksum.
func rewritePrimary(t *testing.T, image string, change func(*gptCopy)) {
	t.Helper()
	d, err := open(context.Background(), image, os.O_RDWR)
	if err != nil {
		t.Fatal(err)
	}
	defer d.file.Close() //nolint:errcheck // a test's file
	g, err := d.primary()
	if err != nil {
		t.Fatal(err)
	}
	change(g)
	if err := d.write(g.encode(), 512); err != nil {
		t.Fatal(err)
	}
}

func TestReadMBR(t *testing.T) {
	image := mbrImage(t, 64*mib, "label: dos\nlabel-id: 0xdeadbeef\nstart=2048, size=16384, type=ef\n"+
		"start=18432, size=16384, type=83, bootable\nstart=34816, size=65536, type=5\n"+
		"start=36864, size=2048, type=83\nstart=40960, size=2048, type=82\n")
	table := read(t, image)
	want := &Table{Scheme: MBR, DiskID: 0xdeadbeef, SectorSize: 512, DiskSize: 64 * mib, Partitions: []Partition{
		{Number: 1, Type: "0xef", UUID: "deadbeef-01", Start: mib, Size: 8 * mib},
		{Number: 2, Type: "0x83", UUID: "deadbeef-02", Boot: true, Start: 9 * mib, Size: 8 * mib},
		{Number: 3, Type: "0x05", UUID: "deadbeef-03", Start: 17 * mib, Size: 32 * mib},
		{Number: 5, Type: "0x83", UUID: "deadbeef-05", Start: 18 * mib, Size: mib},
		{Number: 6, Type: "0x82", UUID: "deadbeef-06", Start: 20 * mib, Size: mib},
	}, LogicalTables: []int64{17 * mib, 19 * mib}}
	if diff := cmp.Diff(want, table); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

func TestAddMBR(t *testing.T) {
	three := "label: dos\nstart=2048, size=2048\nstart=4096, size=2048\nstart=6144, size=2048\n"
	t.Run("last 64 MiB", func(t *testing.T) {
		image := mbrImage(t, 200*mib, three)
		added, err := Add(context.Background(), sysfs.Root{}, image, Partition{Size: 64 * mib, Type: TypeMBRFAT32})
		if err != nil {
			t.Fatal(err)
		}
		if added.Number != 4 || added.Start != 136*mib || added.Size != 64*mib || added.Type != "0x0c" {
			t.Errorf("got %+v", added)
		}
		out := testenv.Run(t, "sfdisk", "-d", image)
		if !strings.Contains(out, "start=      278528, size=      131072, type=c") {
			t.Errorf("sfdisk sees\n%s", out)
		}
		if _, err := Add(context.Background(), sysfs.Root{}, image, Partition{Size: mib}); err == nil {
			t.Error("a fifth primary partition was accepted")
		}
	})
	t.Run("above 2 TiB", func(t *testing.T) {
		image := mbrImage(t, 3<<40, three)
		added, err := Add(context.Background(), sysfs.Root{}, image, Partition{Size: 64 * mib, Type: TypeMBRFAT32})
		if err != nil {
			t.Fatal(err)
		}
		if end := added.Start + added.Size; end != 2<<40-mib {
			t.Errorf("ends at byte %d, want one MiB below 2 TiB", end)
		}
		testenv.Run(t, "sfdisk", "-V", image)
	})
	t.Run("room taken", func(t *testing.T) {
		image := mbrImage(t, 200*mib, "label: dos\nstart=2048, size=400000\n")
		if _, err := Add(context.Background(), sysfs.Root{}, image, Partition{Size: 64 * mib}); err == nil {
			t.Error("a partition was laid over another")
		}
	})
}

func TestNoTable(t *testing.T) {
	testenv.Programs(t, "mkfs.vfat", "mkfs.ext4")
	cases := map[string]func(image string){
		"zeros": func(string) {},
		"junk":  func(image string) { writeAt(t, image, 0, []byte(strings.Repeat("junk", mib))) },
		"fat":   func(image string) { testenv.Run(t, "mkfs.vfat", image) },
		"fat with a table of its own": func(image string) {
			testenv.Run(t, "mkfs.vfat", "--mbr=y", image)
		},
		"ext4": func(image string) { testenv.Run(t, "mkfs.ext4", "-q", image) },
		"empty mbr": func(image string) {
			writeAt(t, image, 510, []byte{0x55, 0xaa})
		},
		"protective mbr alone": func(image string) {
			sector := make([]byte, 512)
			sector[mbrTable+4] = typeProtective
			binary.LittleEndian.PutUint16(sector[510:], 0xaa55)
			writeAt(t, image, 0, sector)
		},
	}
	for name, prepare := range cases {
		t.Run(name, func(t *testing.T) {
			image := testenv.SparseFile(t, 32*mib)
			prepare(image)
			if table, err := Read(context.Background(), image); !errors.Is(err, ErrNoTable) {
				t.Errorf("got %+v, %v, want ErrNoTable", table, err)
			}
		})
	}
}

// A GPT counts if a protective entry starts at LBA 1, as in is_pmbr_valid of Linux: in any position, with any size, and
// with other entries. Linux ignores an MBR with other protective entries as a whole.
func TestProtectiveEntry(t *testing.T) {
	protective := func(first int64) mbrEntry { return mbrEntry{kind: typeProtective, first: first, size: 65535} }
	other := mbrEntry{boot: 0x80, kind: 0x83, first: 2048, size: 2048}
	for name, tt := range map[string]struct {
		entries []mbrEntry
		err     string
	}{
		"protective":                 {[]mbrEntry{protective(1)}, ""},
		"other size":                 {[]mbrEntry{{kind: typeProtective, first: 1, size: 1<<32 - 1}}, ""},
		"no size":                    {[]mbrEntry{{kind: typeProtective, first: 1}}, ""},
		"second of a hybrid":         {[]mbrEntry{other, protective(1)}, ""},
		"two, one of them elsewhere": {[]mbrEntry{protective(2048), other, protective(1)}, ""},
		"sector 0":                   {[]mbrEntry{protective(0)}, "starts at sector 0, want 1"},
		"sector 2":                   {[]mbrEntry{protective(2)}, "starts at sector 2, want 1"},
		"big-endian":                 {[]mbrEntry{protective(1 << 24)}, "starts at sector 16777216, want 1"},
		"hybrid":                     {[]mbrEntry{other, protective(2)}, "starts at sector 2, want 1"},
	} {
		image := gptImage(t, 32*mib)
		writeAt(t, image, 0, tableSector(tt.entries...))
		table, err := Read(t.Context(), image)
		if tt.err == "" && (err != nil || !slices.Equal(numbers(table.Partitions), []int{1, 3})) {
			t.Errorf("%s: got %+v and %v, want the GPT", name, table, err)
		}
		if tt.err != "" && (!errors.Is(err, ErrNoTable) || !strings.Contains(err.Error(), tt.err)) {
			t.Errorf("%s: got %+v and %v, want ErrNoTable with %q", name, table, err, tt.err)
		}
		if moved, err := RepairBackup(t.Context(), image); moved || err != nil {
			t.Errorf("%s: repair: got %t and %v, want nothing to do", name, moved, err)
		}
		all, err := ReadAll(t.Context(), image)
		if err != nil || all.Scheme != GPT || len(all.Partitions) != 2 {
			t.Errorf("%s: ReadAll: got %+v and %v, want the GPT", name, all, err)
		}
	}
}

// These tools keep the boot code of a disk that was a FAT file system as a whole; parted erases it.
func TestTableAfterFAT(t *testing.T) {
	testenv.Programs(t, "mkfs.vfat", "sfdisk", "sgdisk")
	for name, command := range map[string]string{
		"sfdisk, gpt": `printf 'label: gpt\nsize=16M\n' | sfdisk -q "$0"`,
		"sfdisk, dos": `printf 'label: dos\nsize=16M\n' | sfdisk -q "$0"`,
		"sgdisk":      `sgdisk -g -n 1:1M:+16M "$0"`,
	} {
		for _, bits := range []string{"16", "32"} {
			image := testenv.SparseFile(t, 64*mib)
			testenv.Run(t, "mkfs.vfat", "-F", bits, image)
			testenv.Run(t, "sh", "-c", command, image)
			if !strings.Contains(string(head(t, image)[:mbrSize]), "FAT"+bits) {
				t.Errorf("%s: erased the name FAT%s, so that the case shows nothing", name, bits)
			}
			table, err := Read(t.Context(), image)
			if err != nil || len(table.Partitions) != 1 || table.Partitions[0].Start != mib {
				t.Errorf("%s over FAT%s: got %+v and %v, want one partition at 1 MiB", name, bits, table, err)
			}
		}
	}
}

func FuzzParseHeader(f *testing.F) {
	f.Add(make([]byte, 512))
	f.Add(append([]byte(gptSignature), make([]byte, 504)...))
	f.Fuzz(func(t *testing.T, data []byte) {
		// The checksum is corrected. Otherwise all changed headers would be rejected.
		if len(data) >= gptHeaderSize {
			size := binary.LittleEndian.Uint32(data[12:])
			if size >= gptHeaderSize && int64(size) <= int64(len(data)) {
				binary.LittleEndian.PutUint32(data[16:], headerCRC(data[:size]))
			}
		}
		h, err := parseHeader(data)
		if err != nil {
			return
		}
		array := make([]byte, int(h.NumberOfPartitionEntries)*int(h.SizeOfPartitionEntry))
		copy(array, data)
		g := &gptCopy{gptHeader: h, sector: data, array: array}
		if err := g.decode(4096); err != nil {
			t.Errorf("decode: %v", err)
		}
		for _, p := range g.partitions {
			if p.Start <= 0 || p.Size <= 0 {
				t.Errorf("partition %+v", p)
			}
		}
	})
}

func FuzzParseMBR(f *testing.F) {
	f.Add(make([]byte, 512))
	f.Fuzz(func(t *testing.T, data []byte) {
		if len(data) != 512 {
			return
		}
		image := filepath.Join(t.TempDir(), "image")
		if err := os.WriteFile(image, append(data, make([]byte, 8192)...), 0o600); err != nil {
			t.Fatal(err)
		}
		if table, err := Read(context.Background(), image); err == nil && len(table.Partitions) > maxLogical+4 {
			t.Errorf("%d partitions", len(table.Partitions))
		}
	})
}
