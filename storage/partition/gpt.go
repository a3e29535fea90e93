package partition

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"strings"

	"github.com/diskfs/go-diskfs/partition/gpt"
)

const (
	gptSignature  = "EFI PART"
	gptRevision   = 0x00010000 // 1.0, of UEFI 2.10
	gptHeaderSize = 92
	maxEntries    = 4 << 20 // maximum size in bytes of an entry array that is read; the usual one has 16 KiB
	minSector     = 512

	legacyBootable = 1 << 2 // attribute of an entry (UEFI 2.10, table 5.8)
)

// gptHeader is the header of UEFI 2.10, table 5.5. LBAs are signed, so that sums cannot wrap around.
type gptHeader struct {
	Signature                [8]byte
	Revision                 uint32
	HeaderSize               uint32
	HeaderCRC32              uint32
	Reserved                 uint32
	MyLBA                    int64
	AlternateLBA             int64
	FirstUsableLBA           int64
	LastUsableLBA            int64
	DiskGUID                 [16]byte
	PartitionEntryLBA        int64
	NumberOfPartitionEntries uint32
	SizeOfPartitionEntry     uint32
	PartitionEntryArrayCRC32 uint32
}

// gptCopy is one of the two copies of the table. Bytes of the sector after the header's fields, and entries that are
// not changed, are preserved.
type gptCopy struct {
	gptHeader
	sector []byte // as it was read
	array  []byte

	guid       string // lower-case
	partitions []Partition
}

// readGPT reads and checks the copy whose header is at an LBA.
func (d *disk) readGPT(lba int64) (*gptCopy, error) {
	sector := make([]byte, d.sector)
	if lba < 1 || lba >= d.size/d.sector {
		return nil, fmt.Errorf("GPT header at sector %d lies outside the disk", lba)
	}
	if _, err := d.file.ReadAt(sector, lba*d.sector); err != nil {
		return nil, err
	}
	h, err := parseHeader(sector)
	if err != nil {
		return nil, err
	}
	if h.MyLBA != lba {
		return nil, fmt.Errorf("GPT header at sector %d says it lies at %d", lba, h.MyLBA)
	}
	length := int64(h.NumberOfPartitionEntries) * int64(h.SizeOfPartitionEntry)
	first, sectors := h.PartitionEntryLBA, d.size/d.sector
	if first < 2 || first > sectors || first*d.sector+length > d.size {
		return nil, fmt.Errorf("GPT entries at sector %d lie outside the disk", first)
	}
	g := &gptCopy{gptHeader: h, sector: sector, array: make([]byte, length)}
	if _, err := d.file.ReadAt(g.array, h.PartitionEntryLBA*d.sector); err != nil {
		return nil, err
	}
	if crc := crc32.ChecksumIEEE(g.array); crc != h.PartitionEntryArrayCRC32 {
		return nil, fmt.Errorf("GPT entries have CRC %08x, the header says %08x", crc, h.PartitionEntryArrayCRC32)
	}
	return g, g.decode(d.sector)
}

func parseHeader(sector []byte) (h gptHeader, err error) {
	if _, err := binary.Decode(sector, binary.LittleEndian, &h); err != nil || string(h.Signature[:]) != gptSignature {
		return h, errors.New("no GPT header")
	}
	if h.HeaderSize < gptHeaderSize || int64(h.HeaderSize) > int64(len(sector)) {
		return h, fmt.Errorf("GPT header has size %d", h.HeaderSize)
	}
	if crc := h.crc(sector); crc != h.HeaderCRC32 {
		return h, fmt.Errorf("GPT header has CRC %08x, it says %08x", crc, h.HeaderCRC32)
	}
	count, size := h.NumberOfPartitionEntries, h.SizeOfPartitionEntry
	if size < gpt.PartitionEntrySize || size%8 != 0 || count == 0 || uint64(count)*uint64(size) > maxEntries {
		return h, fmt.Errorf("GPT has %d entries of %d bytes", count, size)
	}
	if h.FirstUsableLBA < 2 || h.LastUsableLBA < h.FirstUsableLBA {
		return h, fmt.Errorf("GPT has usable sectors %d to %d", h.FirstUsableLBA, h.LastUsableLBA)
	}
	return h, nil
}

// crc returns the checksum of a header in its sector.
func (h gptHeader) crc(sector []byte) uint32 {
	h.HeaderCRC32 = 0
	return crc32.ChecksumIEEE(overlay(sector, h)[:h.HeaderSize])
}

// encode returns the header's sector with both checksums updated.
func (g *gptCopy) encode() []byte {
	h := g.gptHeader
	h.PartitionEntryArrayCRC32 = crc32.ChecksumIEEE(g.array)
	h.HeaderCRC32 = h.crc(g.sector)
	return overlay(g.sector, h)
}

func (d *disk) lastLBA() int64 { return d.size/d.sector - 1 }

func (d *disk) primary() (*gptCopy, error) { return d.readGPT(1) }

// gptTable reads the primary, or the backup in the last sector if the primary is broken.
func (d *disk) gptTable() (*Table, error) {
	table := &Table{Scheme: GPT, SectorSize: d.sector, DiskSize: d.size}
	g, err := d.primary()
	if err == nil {
		table.BackupMisplaced = g.AlternateLBA != d.lastLBA()
		backup, err := d.readGPT(g.AlternateLBA)
		if err != nil {
			table.Damaged = true
		} else {
			table.Unusual = !g.isAt(2) || !backup.isAt(backup.MyLBA-gptArray/d.sector)
		}
	} else {
		backup, backupErr := d.readGPT(d.lastLBA())
		if backupErr != nil {
			if sector := d.guessSector(); d.isDevice && sector != d.sector && d.hasSignature(sector) {
				return nil, fmt.Errorf("%w: the GPT was made for sectors of %d bytes, the disk's have %d",
					ErrNoTable, sector, d.sector)
			}
			return nil, fmt.Errorf("%w: primary: %w; backup: %w", ErrNoTable, err, backupErr)
		}
		g, table.Damaged = backup, true
	}
	table.GUID, table.Partitions = g.guid, g.partitions
	return table, nil
}

// isAt reports whether the entries begin at an LBA and have the size of a new GPT's.
func (g *gptCopy) isAt(lba int64) bool { return g.PartitionEntryLBA == lba && len(g.array) == gptArray }

func (g *gptCopy) entry(n int) []byte {
	return g.array[n*int(g.SizeOfPartitionEntry):][:g.SizeOfPartitionEntry]
}

// isFree reports whether entry n, counted from 0, is unused: its type is zero.
func (g *gptCopy) isFree(n int) bool { return zero(g.entry(n)[:16]) }

// decode decodes the disk's GUID and the valid partitions. For go-diskfs it makes a copy of the table with the minimum
// header and entry size, the only ones that go-diskfs supports.
func (g *gptCopy) decode(sector int64) error {
	plain := gptCopy{gptHeader: g.gptHeader, sector: make([]byte, minSector)}
	plain.Revision, plain.HeaderSize, plain.Reserved = gptRevision, gptHeaderSize, 0
	plain.PartitionEntryLBA, plain.SizeOfPartitionEntry = 2, gpt.PartitionEntrySize
	for n := range int(g.NumberOfPartitionEntries) {
		plain.array = append(plain.array, g.entry(n)[:gpt.PartitionEntrySize]...)
	}
	data := append(append(make([]byte, minSector), plain.encode()...), plain.array...)
	table, err := gpt.Read(newMemory(data), minSector, minSector)
	if err != nil {
		return err
	}
	g.guid = strings.ToLower(table.GUID)
	for _, p := range table.Partitions {
		if first, last := int64(p.Start), int64(p.End); first >= 1 && last >= first && last <= 1<<62/sector {
			g.partitions = append(g.partitions, fromGPT(p, sector))
		}
	}
	return nil
}

// arraySectors returns the number of sectors of the entry array.
func (d *disk) arraySectors(g *gptCopy) int64 { return (int64(len(g.array)) + d.sector - 1) / d.sector }

// lastUsable returns the last LBA before a backup at the end of the disk.
func (d *disk) lastUsable(g *gptCopy) int64 { return d.lastLBA() - d.arraySectors(g) - 1 }

// errNoBackupSpace is the cause of an error of relocate after which nothing was written: the disk is too small.
var errNoBackupSpace = errors.New("backup GPT does not fit")

// relocate moves the backup to the end of the disk. It writes the new backup to the medium before the primary that
// points to it, so that the disk has a valid table at any time. The error wraps errNoBackupSpace if the end of the disk
// is in use.
func (d *disk) relocate(g *gptCopy) error {
	last, usable := d.lastLBA(), d.lastUsable(g)
	if behind := g.PartitionEntryLBA + d.arraySectors(g); usable < g.FirstUsableLBA || behind > usable+1 {
		return fmt.Errorf("%w: usable sectors from %d on and entries up to sector %d leave no space in %d bytes",
			errNoBackupSpace, g.FirstUsableLBA, behind-1, d.size)
	}
	for _, p := range g.partitions {
		if p.Start+p.Size > (usable+1)*d.sector {
			return fmt.Errorf("%w: partition %d ends at byte %d, which leaves no space in %d bytes",
				errNoBackupSpace, p.Number, p.Start+p.Size, d.size)
		}
	}
	g.AlternateLBA, g.LastUsableLBA = last, usable
	if err := d.writeGPT(g); err != nil {
		return err
	}
	return d.growProtective()
}

// writeGPT writes the backup and then the primary, with the primary's fields.
func (d *disk) writeGPT(g *gptCopy) error {
	backup := *g
	backup.MyLBA, backup.AlternateLBA = g.AlternateLBA, g.MyLBA
	backup.PartitionEntryLBA = g.AlternateLBA - d.arraySectors(g)
	for _, copy := range []*gptCopy{&backup, g} {
		if err := d.write(copy.array, copy.PartitionEntryLBA*d.sector); err != nil {
			return err
		}
		if err := d.write(copy.encode(), copy.MyLBA*d.sector); err != nil {
			return err
		}
		if err := d.file.Sync(); err != nil {
			return err
		}
	}
	return nil
}

func (d *disk) write(data []byte, offset int64) error {
	_, err := d.file.WriteAt(data, offset)
	return err
}

// writable reads the primary GPT, to be changed. A backup that is not at the end, or whose entries there would overlap
// the usable area, is moved first.
func (d *disk) writable() (*gptCopy, error) {
	g, err := d.primary()
	if err != nil {
		return nil, fmt.Errorf("the primary GPT is broken: %w", err)
	}
	if g.AlternateLBA != d.lastLBA() || g.LastUsableLBA > d.lastUsable(g) {
		if err := d.relocate(g); err != nil {
			return nil, err
		}
	}
	return g, nil
}

// extent returns the place of the entry array, which may be in the usable area, contrary to the specification.
func (g *gptCopy) extent(d *disk) Partition {
	return Partition{Start: g.PartitionEntryLBA * d.sector, Size: int64(len(g.array))}
}

func (d *disk) addGPT(p Partition) (Partition, error) {
	g, err := d.writable()
	if err != nil {
		return Partition{}, err
	}
	used := append(g.partitions, g.extent(d))
	slot, count := p.Number-1, int(g.NumberOfPartitionEntries)
	for n := 0; n < count && slot < 0; n++ {
		if g.isFree(n) {
			slot = n
		}
	}
	if slot < 0 || slot >= count || !g.isFree(slot) {
		return Partition{}, fmt.Errorf("no free entry for partition %d among %d", p.Number, count)
	}
	end := (g.LastUsableLBA + 1) * d.sector
	if p.Start != 0 {
		end = p.Start + (p.Size+d.sector-1)/d.sector*d.sector
	}
	start := (end - p.Size) / alignment * alignment
	if p.Start != 0 {
		start = p.Start / alignment * alignment
	}
	if start < g.FirstUsableLBA*d.sector || end > (g.LastUsableLBA+1)*d.sector || !free(used, start, end) {
		return Partition{}, fmt.Errorf("no space for %d bytes at byte %d: taken or outside the usable area",
			end-start, start)
	}
	p.Number = slot + 1
	added, err := encodeEntry(g.entry(slot), p, start/d.sector, end/d.sector-1)
	if err != nil {
		return Partition{}, err
	}
	if err := d.writeGPT(g); err != nil {
		return Partition{}, err
	}
	return fromGPT(added, d.sector), nil
}

func zero(b []byte) bool {
	for _, c := range b {
		if c != 0 {
			return false
		}
	}
	return true
}
