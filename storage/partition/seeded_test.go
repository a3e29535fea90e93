package partition

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"flag"
	"fmt"
	"hash/crc32"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write testdata/seeded.txt")

// The bytes and the tables of 200 seeds are the same as when this package encoded and decoded all of them itself and
// testdata/seeded.txt was recorded. Each seed makes a layout for Create, and a table of another system, which is read,
// repaired and extended. The latter has correct checksums, and random sizes, positions and entries: nine of ten can be
// read, and to more than half a partition is added.
func TestSeededTables(t *testing.T) {
	const golden = "testdata/seeded.txt"
	castagnoli := crc32.MakeTable(crc32.Castagnoli) // not the sum that a GPT contains
	var lines []string
	for seed := range 200 {
		s := newSeeded(t, uint64(seed))
		line := fmt.Sprintf("%3d %s %4d", seed, s.scheme, s.sector)
		for _, do := range []func() []byte{s.create, s.read, s.readAll, s.repair, s.add} {
			line += fmt.Sprintf(" %08x", crc32.Checksum(do(), castagnoli))
		}
		lines = append(lines, line)
	}
	got := []byte(strings.Join(lines, "\n") + "\n")
	if *update {
		if err := os.WriteFile(golden, got, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	wantLines := strings.Split(strings.TrimSuffix(string(want), "\n"), "\n")
	if len(wantLines) != len(lines) {
		t.Fatalf("%s has %d lines, want %d", golden, len(wantLines), len(lines))
	}
	for i, line := range lines {
		if line != wantLines[i] {
			t.Errorf("seed, scheme, sector, create, read, read all, repair, add:\n got %s\nwant %s", line, wantLines[i])
		}
	}
}

// seeded makes disks whose content depends only on a seed.
type seeded struct {
	*rand.Rand
	t            *testing.T
	scheme       string
	size, sector int64 // bytes
	foreign      []byte
	added        Partition
}

// seededHead is the number of bytes at both ends of a disk that are compared.
const seededHead = 256 << 10

func newSeeded(t *testing.T, seed uint64) *seeded {
	s := &seeded{Rand: rand.New(rand.NewPCG(seed, seed)), t: t, scheme: GPT, sector: 512}
	if s.oneIn(3) {
		s.scheme = MBR
	}
	if s.oneIn(2) {
		s.sector = 4096
	}
	s.size = 8*mib + s.Int64N(8*mib)
	if s.oneIn(8) {
		s.size += 3 << 40
	}
	s.foreign = make([]byte, seededHead)
	if s.scheme == GPT {
		s.foreignGPT()
	} else {
		s.foreignMBR()
	}
	s.added = s.partition(0)
	s.added.Size = 1 + s.Int64N(2*mib)
	if s.added.Start = 0; s.oneIn(2) {
		s.added.Start = s.Int64N(s.size)
	}
	return s
}

func (s *seeded) oneIn(n int) bool { return s.IntN(n) == 0 }

func (s *seeded) bytes(n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(s.Uint32())
	}
	return b
}

// partition returns a partition with random fields, except for its size.
func (s *seeded) partition(start int64) Partition {
	p := Partition{Start: start, Boot: s.oneIn(2)}
	if s.scheme == MBR {
		p.Type = fmt.Sprintf("0x%02x", 1+s.IntN(255))
		return p
	}
	p.Type = []string{TypeESP, TypeLinux, TypeBIOSBoot, TypeSwap, guidOf(s.bytes(16))}[s.IntN(5)]
	p.UUID = guidOf(s.bytes(16))
	p.Attributes = s.Uint64() >> s.IntN(64)
	for range s.IntN(19) { // 36 units if each takes two
		p.Name += string([]rune{'a', 'ö', 'Ж', '中', '🦀', ' ', '/'}[s.IntN(7)])
	}
	return p
}

func guidOf(b []byte) string {
	return fmt.Sprintf("%X-%X-%X-%X-%X", b[:4], b[4:6], b[6:8], b[8:10], b[10:16])
}

// disk opens a new disk with the given bytes at both ends.
func (s *seeded) disk(head []byte) *disk {
	s.t.Helper()
	image := filepath.Join(s.t.TempDir(), "image")
	if err := os.WriteFile(image, head, 0o600); err != nil {
		s.t.Fatal(err)
	}
	if err := os.Truncate(image, s.size); err != nil {
		s.t.Fatal(err)
	}
	d, err := open(s.t.Context(), image, os.O_RDWR)
	if err != nil {
		s.t.Fatal(err)
	}
	d.sector = s.sector
	s.t.Cleanup(func() { _ = d.file.Close() }) // a test's file
	return d
}

var unusual = regexp.MustCompile(" Unusual:(true|false)")

// outcome returns both ends of the disk, and what a function returned, and removes the disk.
func (s *seeded) outcome(d *disk, result any, err error) []byte {
	s.t.Helper()
	head, tail := make([]byte, seededHead), make([]byte, seededHead)
	_, headErr := d.file.ReadAt(head, 0)
	_, tailErr := d.file.ReadAt(tail, s.size-seededHead)
	if err := errors.Join(headErr, tailErr, os.Remove(d.file.Name())); err != nil {
		s.t.Fatal(err)
	}
	if s.scheme == GPT { // the GUID is drawn, and with it the checksum
		for _, header := range [][]byte{head[s.sector:], tail[seededHead-s.size%s.sector-s.sector:]} {
			if bytes.HasPrefix(header, []byte("EFI PART")) && result == "created" {
				clear(header[16:20])
				clear(header[56:72])
			}
		}
	} else if result == "created" {
		clear(head[440:444])
	}
	text := strings.ReplaceAll(fmt.Sprintf("%+v %v", result, err), d.file.Name(), "disk")
	text = unusual.ReplaceAllString(text, "") // the table had no such field
	return append(append(head, tail...), text...)
}

// create writes a layout with gaps, which Plan would not return.
func (s *seeded) create() []byte {
	l := Layout{Scheme: s.scheme}
	numbers, most := s.Perm(4), 4
	if s.scheme == GPT {
		numbers, most = s.Perm(128), 12
	}
	at := int64(mib)
	for i := range 1 + s.IntN(most) {
		p := s.partition(at + s.sector*s.Int64N(32))
		p.Number, p.Size = 1+numbers[i], s.sector*(1+s.Int64N(32))
		if s.scheme == MBR {
			p.Number = 1 + i
		}
		at = p.Start + p.Size
		l.Partitions = append(l.Partitions, Planned{RoleRoot, p})
	}
	d := s.disk(bytes.Repeat([]byte{0xaa}, seededHead))
	table, err := d.create(s.t.Context(), l)
	if err != nil {
		s.t.Fatalf("create %+v: %v", l, err)
	}
	if table.Damaged || table.BackupMisplaced || len(table.Partitions) != len(l.Partitions) {
		s.t.Fatalf("create %+v: got table %+v", l, table)
	}
	return s.outcome(d, "created", nil)
}

func (s *seeded) read() []byte {
	d := s.disk(s.foreign)
	table, err := d.read(s.t.Context())
	return s.outcome(d, table, err)
}

func (s *seeded) readAll() []byte {
	d := s.disk(s.foreign)
	table, err := d.allEntries(s.t.Context())
	return s.outcome(d, table, err)
}

func (s *seeded) repair() []byte {
	d := s.disk(s.foreign)
	moved, err := RepairBackup(context.Background(), d.file.Name())
	return s.outcome(d, moved, err)
}

func (s *seeded) add() []byte {
	d := s.disk(s.foreign)
	added, err := d.add(s.t.Context(), s.added)
	return s.outcome(d, added, err)
}

// foreignMBR makes the table of another system: boot code, active and unusual entries, and logical partitions.
func (s *seeded) foreignMBR() {
	copy(s.foreign, s.bytes(446))
	s.foreign[54], s.foreign[82] = 0, 0
	sectors := s.size / s.sector
	entries := func(sector []byte, base int64) {
		for i := range 4 {
			e := sector[446+16*i:][:16]
			copy(e, s.bytes(16)) // with any cylinders, heads and sectors
			e[0] = []byte{0, 0x80}[s.IntN(2)]
			if s.oneIn(12) {
				e[0] = byte(s.IntN(256))
			}
			e[4] = []byte{0, 0x83, 0x07, 0x0c, 0x05, 0x0f, 0x82, 0xef, byte(s.IntN(256))}[s.IntN(9)]
			if s.oneIn(2) {
				e[4] = 0
			}
			binary.LittleEndian.PutUint32(e[8:], uint32(s.Int64N(min(sectors/2-base, 1<<32))))
			binary.LittleEndian.PutUint32(e[12:], uint32(s.Int64N(min(sectors/2-base, 1<<32))))
			if s.oneIn(3) {
				binary.LittleEndian.PutUint32(e[8:], uint32(s.IntN(60)))
			}
			if s.oneIn(12) {
				clear(e[8+4*s.IntN(2):][:4])
			}
		}
		sector[510], sector[511] = 0x55, 0xaa
	}
	entries(s.foreign, 0)
	for sector := int64(1); sector < 60; sector++ { // wherever an extended partition begins
		entries(s.foreign[sector*s.sector:], 0)
	}
}

// foreignGPT makes the table of another system: its entries may be elsewhere, fewer, larger, or invalid, and its
// backup may be anywhere.
func (s *seeded) foreignGPT() {
	le := binary.LittleEndian
	copy(s.foreign, s.bytes(446))
	s.foreign[54], s.foreign[82] = 0, 0
	size := []int64{92, 92, 92, 96, s.sector}[s.IntN(5)]
	count := []int64{128, 128, 128, 4, 5, 56, 192}[s.IntN(7)]
	entrySize := []int64{128, 128, 128, 136, 256}[s.IntN(5)]
	array := []int64{2, 2, 2, 3, 40}[s.IntN(5)]
	arraySectors := (count*entrySize + s.sector - 1) / s.sector
	last := s.size/s.sector - 1
	made := last // the table was made for a disk that ended there
	if s.oneIn(2) {
		made = last - s.Int64N(200)
	}
	first := array + arraySectors + s.Int64N(20)
	for n := range count {
		e := s.foreign[array*s.sector+n*entrySize:][:entrySize]
		if !s.oneIn(1 + int(count)/4) {
			continue
		}
		copy(e, s.bytes(int(entrySize)))
		start := first + s.Int64N(made-first)
		end := start + s.Int64N(min(made-arraySectors-start+200, 2000)+1)/100
		switch s.IntN(20) {
		case 0:
			start, end = 0, 0
		case 1:
			start, end = end+1, start
		case 2:
			end = int64(s.Uint64())
		case 3:
			clear(e[:16])
		}
		le.PutUint64(e[32:], uint64(start))
		le.PutUint64(e[40:], uint64(end))
		if s.oneIn(2) {
			clear(e[56+2*s.IntN(36) : 128])
		}
	}
	h := s.foreign[s.sector:][:s.sector]
	copy(h, s.bytes(len(h))) // what no field of the specification covers is kept
	copy(h, "EFI PART")
	le.PutUint32(h[8:], 0x00010000)
	if s.oneIn(4) {
		le.PutUint32(h[8:], 0x00010002)
	}
	le.PutUint32(h[12:], uint32(size))
	clear(h[16:20])
	for offset, value := range []int64{1, made, first, made - arraySectors - 1} {
		le.PutUint64(h[24+8*offset:], uint64(value))
	}
	le.PutUint64(h[72:], uint64(array))
	le.PutUint32(h[80:], uint32(count))
	le.PutUint32(h[84:], uint32(entrySize))
	le.PutUint32(h[88:], crc32.ChecksumIEEE(s.foreign[array*s.sector:][:count*entrySize]))
	if s.oneIn(12) {
		le.PutUint64(h[24+8*s.IntN(5):], s.Uint64()>>s.IntN(64))
	}
	le.PutUint32(h[16:], crc32.ChecksumIEEE(h[:size]))
	s.protectiveMBR(made)
}

// protectiveMBR writes the entry that spans a disk, and sometimes others.
func (s *seeded) protectiveMBR(sectors int64) {
	clear(s.foreign[446:510])
	s.foreign[446+4] = 0xee
	binary.LittleEndian.PutUint32(s.foreign[446+8:], 1)
	binary.LittleEndian.PutUint32(s.foreign[446+12:], uint32(min(sectors, 1<<32-1)))
	if s.oneIn(4) {
		copy(s.foreign[446+16:], []byte{0x80, 1, 2, 3, 0x83, 4, 5, 6, 64, 0, 0, 0, 8, 0, 0, 0})
	}
	s.foreign[510], s.foreign[511] = 0x55, 0xaa
}
