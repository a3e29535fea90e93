package partition

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"
	"strings"
	"testing"

	"github.com/diskfs/go-diskfs/backend"
	"github.com/diskfs/go-diskfs/partition/gpt"
	"github.com/diskfs/go-diskfs/partition/mbr"
	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"ironroot/internal/ondisk"
)

// The tests in this file show what go-diskfs does not support, and why this package implements it. If one fails,
// go-diskfs has changed, and the test names the code that can be removed.

// libraryImage makes a disk of 16 MiB with a GPT of two partitions by go-diskfs.
func libraryImage(t *testing.T, sector int) []byte {
	t.Helper()
	data := make([]byte, 16*mib)
	table := gpt.Table{LogicalSectorSize: sector, PhysicalSectorSize: sector, ProtectiveMBR: true}
	table.Partitions = []*gpt.Partition{
		{Index: 1, Type: gpt.LinuxFilesystem, Name: "one", Start: 2048, End: 2100},
		{Index: 2, Type: gpt.LinuxFilesystem, Name: "two", Start: 2101, End: 2200},
	}
	if err := table.Write(newMemory(data), int64(len(data))); err != nil {
		t.Fatal(err)
	}
	return data
}

// changeHeader changes the primary header and moves the entries accordingly, and updates the checksums.
func changeHeader(t *testing.T, data []byte, sector int, change func(h *gptHeader)) {
	t.Helper()
	h, err := parseHeader(data[sector:][:sector])
	if err != nil {
		t.Fatal(err)
	}
	change(&h)
	array := data[int(h.PartitionEntryLBA)*sector:]
	if size := uint64(h.NumberOfPartitionEntries) * uint64(h.SizeOfPartitionEntry); size <= maxEntries {
		h.PartitionEntryArrayCRC32 = crc32.ChecksumIEEE(array[:size])
	}
	h.HeaderCRC32 = h.crc(data[sector:][:sector])
	ondisk.Encode(data[sector:], binary.LittleEndian, h)
}

// ours reads the primary GPT of a disk with this package.
func ours(t *testing.T, data []byte, sector int64) (*gptCopy, error) {
	t.Helper()
	image := t.TempDir() + "/image"
	if err := os.WriteFile(image, data, 0o600); err != nil {
		t.Fatal(err)
	}
	d, err := open(t.Context(), image, os.O_RDWR)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = d.file.Close() }) // a test's file
	d.sector = sector
	return d.primary()
}

// panics reports whether a function panics.
func panics(do func()) (panicked bool) {
	defer func() { panicked = recover() != nil }()
	do()
	return false
}

// parseHeader and readGPT: go-diskfs validates less and accepts less than the kernel.
func TestLibraryHeader(t *testing.T) {
	for name, change := range map[string]func(h *gptHeader){
		"larger header":  func(h *gptHeader) { h.HeaderSize = 96 },
		"later revision": func(h *gptHeader) { h.Revision = 0x00010002 },
		"larger entries": func(h *gptHeader) { h.NumberOfPartitionEntries, h.SizeOfPartitionEntry = 64, 256 },
	} {
		data := libraryImage(t, 512)
		changeHeader(t, data, 512, change)
		if _, err := gpt.Read(newMemory(data), 512, 512); err == nil {
			t.Errorf("%s: go-diskfs reads it: decode need not make a plain copy", name)
		}
		if _, err := ours(t, data, 512); err != nil {
			t.Errorf("%s: got %v", name, err)
		}
	}
	data := libraryImage(t, 512)
	changeHeader(t, data, 512, func(h *gptHeader) { h.MyLBA = 5 })
	if _, err := gpt.Read(newMemory(data), 512, 512); err != nil {
		t.Errorf("misplaced header: go-diskfs rejects it (%v): readGPT need not check MyLBA", err)
	}
	if _, err := ours(t, data, 512); err == nil {
		t.Error("misplaced header: got no error")
	}
	data = libraryImage(t, 512)
	changeHeader(t, data, 512, func(h *gptHeader) {
		h.NumberOfPartitionEntries, h.SizeOfPartitionEntry = 1<<32-1, 1<<32-1
	})
	if !panics(func() { _, _ = gpt.Read(newMemory(data), 512, 512) }) {
		t.Error("entries of 16 EiB: go-diskfs does not panic: parseHeader need not limit them")
	}
	if _, err := ours(t, data, 512); err == nil {
		t.Error("entries of 16 EiB: got no error")
	}
}

// failingFile is a disk whose sector 1 cannot be read.
type failingFile struct{ memory }

func (f failingFile) ReadAt(p []byte, offset int64) (int, error) {
	if offset < 1024 && offset+int64(len(p)) > 512 {
		return 0, unix.EIO
	}
	return f.memory.ReadAt(p, offset)
}

func (f failingFile) Seek(int64, int) (int64, error) { return int64(len(f.data)), nil }

// gptTable: if the sector of the primary cannot be read, go-diskfs does not read the backup.
func TestLibraryBackup(t *testing.T) {
	if _, err := gpt.Read(failingFile{newMemory(libraryImage(t, 512))}, 512, 512); err == nil {
		t.Error("go-diskfs reads the backup: gptTable need not")
	}
}

// relocate and addGPT: go-diskfs rewrites a table and drops what it does not decode.
func TestLibraryRewrites(t *testing.T) {
	rewrite := func(t *testing.T, data []byte, sector int) []byte {
		t.Helper()
		table, err := gpt.Read(newMemory(data), sector, sector)
		if err != nil {
			t.Fatal(err)
		}
		if err := table.Repair(uint64(len(data))); err != nil {
			t.Fatal(err)
		}
		written := bytes.Clone(data)
		if err := table.Write(newMemory(written), int64(len(data))); err != nil {
			t.Fatal(err)
		}
		return written
	}
	t.Run("bytes behind a name", func(t *testing.T) {
		data := libraryImage(t, 512)
		data[1024+127] = 0xaa
		changeHeader(t, data, 512, func(*gptHeader) {})
		if rewrite(t, data, 512)[1024+127] != 0 {
			t.Error("go-diskfs keeps them")
		}
	})
	t.Run("bytes behind the header", func(t *testing.T) {
		data := libraryImage(t, 512)
		data[512+200] = 0xaa
		if rewrite(t, data, 512)[512+200] != 0 {
			t.Error("go-diskfs keeps them")
		}
	})
	t.Run("boot loader between header and entries", func(t *testing.T) {
		data := libraryImage(t, 512)
		copy(data[100*512:], data[1024:][:gptArray])
		loader := bytes.Repeat([]byte("loader  "), gptArray/8)
		copy(data[1024:], loader)
		changeHeader(t, data, 512, func(h *gptHeader) { h.PartitionEntryLBA = 100 })
		if bytes.Equal(rewrite(t, data, 512)[1024:][:gptArray], loader) {
			t.Error("go-diskfs leaves the entries where they are")
		}
	})
	t.Run("entries that do not fill a sector", func(t *testing.T) {
		data := libraryImage(t, 4096)
		changeHeader(t, data, 4096, func(h *gptHeader) { h.NumberOfPartitionEntries = 4 })
		written := rewrite(t, data, 4096)
		if h, err := parseHeader(written[len(written)-4096:]); err != nil || h.PartitionEntryLBA != h.MyLBA {
			t.Errorf("go-diskfs writes the entries of the backup before its header: %+v, %v", h, err)
		}
	})
	t.Run("entry with the first sector behind the last", func(t *testing.T) {
		data := libraryImage(t, 512)
		binary.LittleEndian.PutUint64(data[1024+32:], 5000)
		changeHeader(t, data, 512, func(*gptHeader) {})
		table, err := gpt.Read(newMemory(data), 512, 512)
		if err != nil {
			t.Fatal(err)
		}
		if err := table.Write(newMemory(data), int64(len(data))); err == nil {
			t.Error("go-diskfs writes it")
		}
	})
}

// encodeTable writes the protective MBR itself: go-diskfs truncates a size of more than 32 bits, and writes the
// protective MBR before the table.
func TestLibraryProtectiveMBR(t *testing.T) {
	size := int64(3 << 40)
	first := make([]byte, 512)
	table := gpt.Table{ProtectiveMBR: true}
	if err := table.Write(newMemory(first), size); err != nil {
		t.Fatal(err)
	}
	if got, want := binary.LittleEndian.Uint32(first[mbrTable+12:]), uint32(size/512-1); got != want {
		t.Errorf("go-diskfs writes a protective MBR of %d sectors: encodeTable may leave it to go-diskfs", got)
	}
}

// gptPartition checks names: one of up to 36 characters may have more UTF-16 units than fit into an entry.
func TestLibraryName(t *testing.T) {
	table := gpt.Table{Partitions: []*gpt.Partition{
		{Index: 1, Type: gpt.LinuxFilesystem, Start: 2048, End: 4095, Name: strings.Repeat("🦀", 36)},
	}}
	if !panics(func() { _ = table.Write(newMemory(nil), 16*mib) }) {
		t.Error("go-diskfs does not panic: gptPartition need not check the length of names")
	}
}

// brokenFile is a disk that cannot be written.
type brokenFile struct{ memory }

func (brokenFile) WriteAt([]byte, int64) (int, error) { return 0, unix.ENOSPC }

var _ backend.WritableFile = brokenFile{}

// medium stores the error of a write, because go-diskfs returns only its text.
func TestLibraryErrors(t *testing.T) {
	if err := (&gpt.Table{}).Write(brokenFile{}, 16*mib); err == nil || errors.Is(err, unix.ENOSPC) {
		t.Errorf("go-diskfs wraps errors: medium may go (got %v)", err)
	}
}

// decodeMBR and encodeTable: go-diskfs rejects a table for one invalid status, counts in sectors of 512 bytes, does
// not follow logical partitions, and writes no disk id.
func TestLibraryMBR(t *testing.T) {
	sector := tableSector(mbrEntry{boot: 0x55, kind: 0x83, first: 1, size: 1},
		mbrEntry{kind: 0x83, first: 64, size: 64})
	if _, err := mbr.Read(newMemory(sector), 512, 512); err == nil {
		t.Error("status 0x55: go-diskfs reads the table: decodeMBR need not clear it")
	}
	sector = tableSector(mbrEntry{kind: 0x83, first: 64, size: 64})
	table, err := mbr.Read(newMemory(sector), 4096, 4096)
	if err != nil {
		t.Fatal(err)
	}
	if got := table.Partitions[0].GetStart(); got != 64*512 {
		t.Errorf("go-diskfs counts in sectors of 4096 bytes (byte %d): partition may leave that to go-diskfs", got)
	}
	written := make([]byte, 512)
	binary.LittleEndian.PutUint32(sector[mbrDiskID:], 0x12345678)
	if table, err = mbr.Read(newMemory(sector), 512, 512); err != nil {
		t.Fatal(err)
	}
	if err := table.Write(newMemory(written), 512); err != nil {
		t.Fatal(err)
	}
	if binary.LittleEndian.Uint32(written[mbrDiskID:]) != 0 {
		t.Error("go-diskfs writes the disk id: encodeTable need not")
	}
	image, err := os.Open(chainImage(t, links(3, 1)...))
	if err != nil {
		t.Fatal(err)
	}
	defer image.Close() //nolint:errcheck // only read
	if table, err = mbr.Read(image, 512, 512); err != nil || len(table.Partitions) != 4 {
		t.Errorf("go-diskfs reads logical partitions (%v): chain may go", err)
	}
}

// Fits rejects sectors that are larger than the entry array: go-diskfs writes the entries of the backup over its
// header.
func TestLibraryLargeSectors(t *testing.T) {
	const sector = 2 * gptArray
	data := make([]byte, 16*mib)
	table := gpt.Table{LogicalSectorSize: sector, PhysicalSectorSize: sector}
	if err := table.Write(newMemory(data), int64(len(data))); err != nil {
		t.Fatal(err)
	}
	if h, err := parseHeader(data[len(data)-sector:]); err != nil || h.PartitionEntryLBA != h.MyLBA {
		t.Errorf("go-diskfs writes the entries before the header (%v): Fits may accept such sectors", err)
	}
	for size, fits := range map[int64]bool{gptArray: true, sector: false} {
		if err := (Layout{Scheme: GPT}).Fits(16*mib, size); (err == nil) != fits {
			t.Errorf("sectors of %d bytes: got %v", size, err)
		}
	}
}

// recorder records the order of writes and flushes.
type recorder struct {
	memory
	steps []string
}

func (r *recorder) WriteAt(p []byte, offset int64) (int, error) {
	r.steps = append(r.steps, fmt.Sprintf("%d bytes at %d", len(p), offset))
	return len(p), nil
}

func (r *recorder) Sync() error {
	r.steps = append(r.steps, "sync")
	return nil
}

// create relies on go-diskfs's order of writes: the backup is on the medium before the primary is written, and the
// entries of each copy are written before its header.
func TestLibraryOrder(t *testing.T) {
	r := &recorder{memory: newMemory(nil)}
	if err := (&gpt.Table{}).Write(r, 16*mib); err != nil {
		t.Fatal(err)
	}
	want := []string{
		"16384 bytes at 16760320", "sync", "512 bytes at 16776704", "sync", "16384 bytes at 1024", "sync",
		"512 bytes at 512", "sync",
	}
	if diff := cmp.Diff(want, r.steps); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

// Bytes that are written to the medium reach it, or the error is kept.
func TestMedium(t *testing.T) {
	f, err := os.Create(t.TempDir() + "/disk")
	if err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	for name, do := range map[string]func(m *medium) error{
		"WriteAt": func(m *medium) error { _, err := m.WriteAt([]byte{1}, 0); return err },
		"Sync":    func(m *medium) error { return m.Sync() },
	} {
		m := &medium{File: f}
		if err := do(m); !errors.Is(err, os.ErrClosed) || !errors.Is(m.err, os.ErrClosed) {
			t.Errorf("%s: got %v, and %v kept, want %v", name, err, m.err, os.ErrClosed)
		}
	}
}

// All methods of memory that go-diskfs should not call fail.
func TestMemory(t *testing.T) {
	m := newMemory(make([]byte, 4))
	if n, err := m.WriteAt([]byte("abc"), 2); n != 3 || err != nil || string(m.data) != "\x00\x00ab" {
		t.Errorf("got %d bytes written, %q and %v", n, m.data, err)
	}
	if n, err := m.ReadAt(make([]byte, 3), 2); n != 2 || !errors.Is(err, io.EOF) {
		t.Errorf("got %d bytes read and %v, want 2 and %v", n, err, io.EOF)
	}
	if _, err := m.Seek(0, io.SeekEnd); !errors.Is(err, os.ErrInvalid) {
		t.Errorf("Seek: got %v, want %v", err, os.ErrInvalid)
	}
}
