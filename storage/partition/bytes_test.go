package partition

import (
	"bytes"
	"encoding/binary"
	"errors"
	"os"
	"path/filepath"
	"runtime/debug"
	"testing"

	"golang.org/x/sys/unix"

	"ironroot/internal/test/testenv"
	"ironroot/storage/block"
	"ironroot/storage/sysfs"
)

// Offsets in an MBR, with which tests check the structures.
const (
	mbrDiskID = 440
	mbrTable  = 446 // four entries of 16 bytes
)

// The structure has the size of the specification, so that its fields are at its offsets.
func TestVolumeBoot(t *testing.T) {
	if got := binary.Size(volumeBoot{}); got != 90 {
		t.Errorf("got %d bytes, want 90", got)
	}
}

func TestParseHeaderRefuses(t *testing.T) {
	whole := head(t, gptImage(t, 16*mib))[512:1024]
	for want, change := range map[string]func(sector []byte){
		"no GPT header":           func(sector []byte) { sector[0] = 'e' },
		"GPT header has size 91":  func(sector []byte) { sector[12] = 91 },
		"GPT header has size 604": func(sector []byte) { sector[13] = 2 },
		"GPT header has CRC":      func(sector []byte) { sector[60]++ },
	} {
		sector := bytes.Clone(whole)
		change(sector)
		_, err := parseHeader(sector)
		wantError(t, "header", err, want)
	}
	sector := bytes.Clone(whole)
	if _, err := parseHeader(sector); err != nil || !bytes.Equal(sector, whole) {
		t.Errorf("header: got %v, want no error and the sector unchanged", err)
	}
	_, err := encodeEntry(make([]byte, 128), Partition{}, 0, 5)
	wantError(t, "entry", err, "start sector is 0")
	d, err := open(t.Context(), gptImage(t, 16*mib), os.O_RDWR)
	if err != nil {
		t.Fatal(err)
	}
	defer d.file.Close() //nolint:errcheck // nothing was written
	for _, lba := range []int64{0, 16 * mib / 512} {
		_, err := d.readGPT(lba)
		wantError(t, "sector", err, "lies outside the disk")
	}
	g, err := d.primary()
	if err != nil {
		t.Fatal(err)
	}
	d.size = 40 * 512
	wantError(t, "relocate", d.relocate(g), "leave no space in 20480 bytes")
}

// After a repair, the protective MBR spans the disk, and the backup alone describes the same partitions.
func TestRepairedBytes(t *testing.T) {
	image := gptImage(t, 16*mib)
	writeAt(t, image, 440, []byte{1, 2, 3, 4})
	writeAt(t, image, mbrTable+5, []byte{0, 0, 0})
	grow(t, image, 20*mib)
	before := read(t, image)
	if _, err := RepairBackup(t.Context(), image); err != nil {
		t.Fatal(err)
	}
	entry := head(t, image)[mbrTable:][:16]
	size := binary.LittleEndian.Uint32(entry[12:])
	if size != 20*mib/512-1 || !bytes.Equal(entry[5:8], []byte{0xff, 0xff, 0xff}) {
		t.Errorf("got protective entry %x, want it to span %d sectors", entry, 20*mib/512-1)
	}
	if before.DiskID != 0x04030201 {
		t.Errorf("got disk id %08x, want that of the protective MBR", before.DiskID)
	}
	writeAt(t, image, 512, make([]byte, 33*512))
	after := read(t, image)
	if !after.Damaged || len(after.Partitions) != 2 || after.Partitions[1] != before.Partitions[1] {
		t.Errorf("from the backup: got %+v, want the partitions %+v", after, before.Partitions)
	}
	hybrid := gptImage(t, 16*mib)
	grow(t, hybrid, 20*mib)
	writeAt(t, hybrid, mbrTable+16+4, []byte{0x83})
	sector := head(t, hybrid)[:512]
	if _, err := RepairBackup(t.Context(), hybrid); err != nil {
		t.Fatal(err)
	}
	if got := head(t, hybrid)[:512]; !bytes.Equal(got, sector) {
		t.Errorf("got hybrid MBR %x, want it unchanged: %x", got[mbrTable:], sector[mbrTable:])
	}
}

// GUIDs are of version 4 and unique, and no bytes of an earlier entry remain.
func TestEntryBytes(t *testing.T) {
	drawn := map[string]bool{}
	for range 64 {
		e := bytes.Repeat([]byte{0xff}, 128)
		if _, err := encodeEntry(e, Partition{Name: "a"}, 1, 2); err != nil {
			t.Fatal(err)
		}
		if !zero(e[58:]) {
			t.Fatalf("got entry %x, want nothing behind the name", e)
		}
		id := e[16:32]
		if id[7]>>4 != 4 || id[8]>>6 != 2 {
			t.Fatalf("got GUID %x, want version 4", id)
		}
		drawn[string(id)] = true
	}
	if len(drawn) != 64 {
		t.Errorf("got %d different GUIDs, want 64", len(drawn))
	}
}

// A partition added to an MBR uses the first free entry. It is a Linux file system with LBA addresses only.
func TestAddMBREntry(t *testing.T) {
	image := mbrImage(t, 16*mib, "label: dos\nstart=2048, size=2048, bootable\n")
	added, err := Add(t.Context(), sysfs.Root{}, image, Partition{Size: mib})
	if err != nil {
		t.Fatal(err)
	}
	if added.Number != 2 || added.Type != TypeMBRLinux || added.Boot {
		t.Errorf("got %+v, want number 2, type %s, not active", added, TypeMBRLinux)
	}
	entry := head(t, image)[mbrTable+16:][:16]
	if chs := []byte{0xfe, 0xff, 0xff}; !bytes.Equal(entry[1:4], chs) || !bytes.Equal(entry[5:8], chs) {
		t.Errorf("got entry %x, want no cylinders, heads and sectors", entry)
	}
}

// As in Linux, both of two extended partitions count.
func TestTwoExtended(t *testing.T) {
	image := mbrImage(t, 32*mib,
		"label: dos\nstart=2048, size=8192, type=5\nstart=20480, size=8192\nstart=4096, size=2048\n")
	chain := make([]byte, 512)
	f, err := os.Open(image)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close() //nolint:errcheck // only read
	if _, err := f.ReadAt(chain, mib); err != nil {
		t.Fatal(err)
	}
	writeAt(t, image, 20480*512, chain)
	writeAt(t, image, mbrTable+16+4, []byte{0x05})
	if table := read(t, image); len(table.Partitions) != 4 || table.Partitions[3].Number != 6 {
		t.Errorf("got %+v, want two extended partitions and two logical ones", table.Partitions)
	}
}

// A partition in use that cannot be dropped is an error.
func TestForgetInUse(t *testing.T) {
	device := testenv.Loop(t, mbrImage(t, 16*mib, "label: dos\nstart=2048, size=2048\n"), 512)
	if err := Sync(t.Context(), sysfs.Root{}, device); err != nil {
		t.Fatal(err)
	}
	held, err := os.Open(block.PartitionPath(sysfs.Root{}, device, 1))
	if err != nil {
		t.Fatal(err)
	}
	defer held.Close() //nolint:errcheck // only held
	err = Forget(t.Context(), sysfs.Root{}, device)
	wantError(t, "Forget", err, "remove partition 1 from "+device+": ")
	if !errors.Is(err, unix.EBUSY) {
		t.Errorf("Forget: got %v, want %v", err, unix.EBUSY)
	}
	writeAt(t, device, 0, make([]byte, 512))
	if err := Sync(t.Context(), sysfs.Root{}, device); !errors.Is(err, unix.EBUSY) {
		t.Errorf("Sync: got %v, want %v", err, unix.EBUSY)
	}
}

// All functions close the device.
func TestClosed(t *testing.T) {
	defer debug.SetGCPercent(debug.SetGCPercent(-1)) // the collector closes what nothing refers to
	image := gptImage(t, 16*mib)
	if _, err := Read(t.Context(), image); err != nil {
		t.Error(err)
	}
	if _, err := RepairBackup(t.Context(), image); err != nil {
		t.Error(err)
	}
	device := testenv.Loop(t, mbrImage(t, 16*mib, "label: dos\nstart=2048, size=2048\n"), 512)
	if err := Sync(t.Context(), sysfs.Root{}, device); err != nil {
		t.Error(err)
	}
	if err := Forget(t.Context(), sysfs.Root{}, device); err != nil {
		t.Error(err)
	}
	links, err := filepath.Glob("/proc/self/fd/*")
	if err != nil {
		t.Fatal(err)
	}
	for _, link := range links {
		if file, err := os.Readlink(link); err == nil && (file == image || file == device) {
			t.Errorf("%s is still open as %s", file, link)
		}
	}
}
