//go:build linux

package conformance

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"unicode/utf16"

	"github.com/google/go-cmp/cmp"

	"ironroot/internal/test/testenv"
)

// Types of partitions.
const (
	efiType   = "C12A7328-F81F-11D2-BA4B-00A0C93EC93B"
	linuxType = "0FC63DAF-8483-4772-8E79-3D69D8477DE4"
)

// Identifiers in the suite's images: the start of the identifiers of GPTs and their partitions, a GPT, and a FAT file
// system.
const (
	uuidPrefix = "0B0E8F5C-7D0A-4F65-9F0E-6E2A3A7C1D"
	diskUUID   = uuidPrefix + "01"
	fatID      = "1234-5678"
)

// gptPartition is an entry of a GPT, in bytes.
type gptPartition struct {
	kind, uuid, name string
	start, size      int64
}

const (
	gptEntries   = 128
	gptEntrySize = 128
	gptMagic     = "EFI PART"
)

// mbrPartition is an entry of an MBR in sectors.
type mbrPartition struct {
	kind        byte
	start, size uint32
}

// mbr returns a sector with a partition table.
func mbr(id uint32, partitions ...mbrPartition) []byte {
	sector := make([]byte, 512)
	binary.LittleEndian.PutUint32(sector[440:], id)
	for i, p := range partitions {
		entry := sector[446+16*i:]
		copy(entry[1:], []byte{0xfe, 0xff, 0xff, p.kind, 0xfe, 0xff, 0xff})
		binary.LittleEndian.PutUint32(entry[8:], p.start)
		binary.LittleEndian.PutUint32(entry[12:], p.size)
	}
	sector[510], sector[511] = 0x55, 0xaa
	return sector
}

// firstSectorOfGPT returns the first sector of a disk with a GPT whose last sector has the given number (UEFI 2.10,
// table 5.4).
func firstSectorOfGPT(last int64) []byte {
	sector := mbr(0, mbrPartition{0xee, 1, uint32(last)})
	copy(sector[447:], []byte{0, 2, 0, 0xee, 0xff, 0xff, 0xff})
	return sector
}

// withGPT returns an image of the given size with a GPT for that size, whose other content begins with content.
func withGPT(content []byte, size, sector int64, partitions []gptPartition) []byte {
	image := make([]byte, size)
	copy(image, content)
	clear(image[:34*512])
	copy(image, firstSectorOfGPT(size/sector-1))
	table := make([]byte, gptEntries*gptEntrySize)
	for i, p := range partitions {
		entry := table[i*gptEntrySize:]
		copy(entry, guid(p.kind))
		copy(entry[16:], guid(p.uuid))
		binary.LittleEndian.PutUint64(entry[32:], uint64(p.start/sector))
		binary.LittleEndian.PutUint64(entry[40:], uint64((p.start+p.size)/sector-1))
		for j, unit := range utf16.Encode([]rune(p.name)) {
			binary.LittleEndian.PutUint16(entry[56+2*j:], unit)
		}
	}
	length := int64(len(table)) / sector
	last := size/sector - 1
	header := func(own, other, entries int64) []byte {
		h := make([]byte, 92)
		copy(h, gptMagic)
		binary.LittleEndian.PutUint32(h[8:], 0x10000)
		binary.LittleEndian.PutUint32(h[12:], 92)
		for offset, value := range map[int]int64{
			24: own, 32: other, 40: 2 + length, 48: last - length - 1,
			72: entries,
		} {
			binary.LittleEndian.PutUint64(h[offset:], uint64(value))
		}
		copy(h[56:], guid(diskUUID))
		binary.LittleEndian.PutUint32(h[80:], gptEntries)
		binary.LittleEndian.PutUint32(h[84:], gptEntrySize)
		binary.LittleEndian.PutUint32(h[88:], crc32.ChecksumIEEE(table))
		binary.LittleEndian.PutUint32(h[16:], crc32.ChecksumIEEE(h))
		return h
	}
	copy(image[sector:], header(1, last, 2))
	copy(image[2*sector:], table)
	copy(image[(last-length)*sector:], table)
	copy(image[last*sector:], header(last, 1, last-length))
	return image
}

// guid returns the bytes of a GUID.
func guid(text string) []byte {
	b, err := hex.DecodeString(strings.ReplaceAll(text, "-", ""))
	if err != nil {
		panic(err) // a constant
	}
	slices.Reverse(b[:4])
	slices.Reverse(b[4:6])
	slices.Reverse(b[6:8])
	return b
}

// guidText is the inverse of guid.
func guidText(b []byte) string {
	b = bytes.Clone(b)
	slices.Reverse(b[:4])
	slices.Reverse(b[4:6])
	slices.Reverse(b[6:8])
	return strings.ToUpper(fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:16]))
}

// readGPT returns the GPT of a disk, or nil if there is none.
func readGPT(path string, sector int64) (*table, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close() //nolint:errcheck // only read
	h := make([]byte, 92)
	if _, err := f.ReadAt(h, sector); errors.Is(err, io.EOF) || err == nil && string(h[:8]) != gptMagic {
		return nil, nil
	} else if err != nil {
		return nil, err
	}
	number := func(b []byte) int64 { return int64(binary.LittleEndian.Uint64(b)) }
	t := &table{
		Label: "gpt", ID: guidText(h[56:72]), FirstLBA: number(h[40:]), LastLBA: number(h[48:]), Sector: int(sector),
	}
	entry := make([]byte, gptEntrySize)
	for i := range gptEntries {
		if _, err := f.ReadAt(entry, number(h[72:])*sector+int64(i*gptEntrySize)); err != nil {
			return nil, err
		}
		if number(entry[32:]) == 0 {
			continue
		}
		units := make([]uint16, 36)
		for j := range units {
			units[j] = binary.LittleEndian.Uint16(entry[56+2*j:])
		}
		t.Partitions = append(t.Partitions, partition{
			Number: i + 1, Start: number(entry[32:]), Size: number(entry[40:]) - number(entry[32:]) + 1,
			Type: guidText(entry[:16]), UUID: guidText(entry[16:32]),
			Name: strings.TrimRight(string(utf16.Decode(units)), "\x00"),
		})
	}
	return t, nil
}

// checkGPT checks both copies of a disk's GPT (UEFI 2.10, 5.3.2).
func checkGPT(path string, sector int64) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close() //nolint:errcheck // only read
	info, err := f.Stat()
	if err != nil {
		return err
	}
	last := info.Size()/sector - 1
	var copies [2][]byte // without what must differ
	for i, at := range []int64{1, last} {
		h := make([]byte, 92)
		if _, err := f.ReadAt(h, at*sector); err != nil {
			return err
		}
		number := func(offset int) int64 { return int64(binary.LittleEndian.Uint64(h[offset:])) }
		if other := 1 + last - at; string(h[:8]) != gptMagic || number(24) != at || number(32) != other {
			return fmt.Errorf("gpt header at sector %d: got %q for sector %d with a copy at %d, want a copy at %d", at,
				h[:8], number(24), number(32), other)
		}
		want := binary.LittleEndian.Uint32(h[16:])
		clear(h[16:20])
		if got := crc32.ChecksumIEEE(h); got != want {
			return fmt.Errorf("gpt header at sector %d: got the checksum %#x, want %#x", at, got, want)
		}
		entries := make([]byte, int64(binary.LittleEndian.Uint32(h[80:]))*int64(binary.LittleEndian.Uint32(h[84:])))
		if _, err := f.ReadAt(entries, number(72)*sector); err != nil {
			return err
		}
		if got, want := crc32.ChecksumIEEE(entries), binary.LittleEndian.Uint32(h[88:]); got != want {
			return fmt.Errorf("gpt header at sector %d: entries have the checksum %#x, want %#x", at, got, want)
		}
		copies[i] = slices.Concat(h[40:72], h[80:88], entries)
	}
	if !bytes.Equal(copies[0], copies[1]) {
		return errors.New("the copies of the gpt differ")
	}
	return nil
}

func TestCheckGPT(t *testing.T) {
	path := filepath.Join(t.TempDir(), "disk")
	if err := os.WriteFile(path, make([]byte, 8*mib), 0o600); err != nil {
		t.Fatal(err)
	}
	testenv.GPT(t, path, "start=2048, size=2MiB", "start=8192")
	if err := checkGPT(path, 512); err != nil {
		t.Errorf("table of sfdisk: %v", err)
	}
	for _, sector := range []int64{512, 4096} {
		valid := withGPT(nil, 8*mib, sector, gptParts)
		for name, at := range map[string]int64{
			"": -1, "header": sector + 60, "entry": 2*sector + 56, "copy of the header": 8*mib - sector + 60,
			"copy of an entry": 8*mib - sector - gptEntries*gptEntrySize + 56, "place of the copy": sector + 32,
		} {
			data := bytes.Clone(valid)
			if at >= 0 {
				data[at] ^= 1
			}
			if err := os.WriteFile(path, data, 0o600); err != nil {
				t.Fatal(err)
			}
			if err := checkGPT(path, sector); (err == nil) != (name == "") {
				t.Errorf("%d, changed: %q: got error %v", sector, name, err)
			}
		}
		backup := valid[8*mib-sector:][:92] // another GUID with the right checksum
		backup[56] ^= 1
		clear(backup[16:20])
		binary.LittleEndian.PutUint32(backup[16:], crc32.ChecksumIEEE(backup))
		if err := os.WriteFile(path, valid, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := checkGPT(path, sector); err == nil || !strings.Contains(err.Error(), "differ") {
			t.Errorf("%d, another GUID in the copy: got error %v", sector, err)
		}
	}
}

// readGPT reads the same table as sfdisk.
func TestReadGPT(t *testing.T) {
	path := filepath.Join(t.TempDir(), "disk")
	if err := os.WriteFile(path, withGPT(nil, 8*mib, 512, gptParts), 0o600); err != nil {
		t.Fatal(err)
	}
	want, err := readTable(path, 512)
	if err != nil || want == nil {
		t.Fatalf("got %v, %v", want, err)
	}
	got, err := readGPT(path, 512)
	if diff := cmp.Diff(want, got); err != nil || diff != "" {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
	if got, err := readGPT(path, 4096); got != nil || err != nil {
		t.Errorf("4096: got %v, %v, want none", got, err)
	}
}
