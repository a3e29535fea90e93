package partition

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/bits"
	"slices"
	"strconv"
	"strings"

	"github.com/diskfs/go-diskfs/partition/mbr"

	"ironroot/internal/ondisk"
)

const (
	mbrSize = 512
	maxLBA  = 1 << 32

	// maxNumber is the highest number of a partition in Linux. Logical partitions start at 5.
	maxNumber  = 255
	maxLogical = maxNumber - 4

	maxEmptyLinks = 100 // Linux stops after that many tables in a row without a logical partition
)

// volumeBoot is the start of the boot sector of FAT, exFAT or NTFS, which a device without partitions has in the place
// of an MBR.
type volumeBoot struct {
	Jump       [3]byte
	OEMName    [8]byte
	SectorSize uint16 // bytes
	_          [8]byte
	Media      uint8
	_          [32]byte
	Type16     [8]byte // of FAT12 and FAT16
	_          [20]byte
	Type32     [8]byte // of FAT32
}

// overlay returns a copy of the sector that starts with a structure.
func overlay(sector []byte, structure any) []byte {
	sector = bytes.Clone(sector)
	ondisk.Encode(sector, binary.LittleEndian, structure)
	return sector
}

// decode reads a structure from the start of a sector.
func decode[T any](sector []byte) T { return ondisk.Decode[T](sector, binary.LittleEndian) }

// mbrEntry is an entry of the table. LBAs are in sectors and relative as in the table.
type mbrEntry struct {
	boot, kind  byte
	first, size int64
}

// mbrSector is sector 0, or a sector that names logical partitions.
type mbrSector struct {
	sector  []byte // 512 bytes
	diskID  uint32
	table   *mbr.Table
	entries [4]mbrEntry
}

// readMBR reads sector 0. The error wraps ErrNoTable if it has no valid table.
func (d *disk) readMBR() (*mbrSector, error) {
	sector, err := d.readSector(0)
	if err != nil {
		return nil, err
	}
	return parseMBR(sector)
}

func (d *disk) readSector(offset int64) ([]byte, error) {
	sector := make([]byte, mbrSize)
	_, err := d.file.ReadAt(sector, offset)
	return sector, err
}

func parseMBR(sector []byte) (*mbrSector, error) {
	m, err := decodeMBR(sector)
	if err != nil {
		return nil, err
	}
	if m.hasFATName() && !m.hasPartitions() {
		return nil, fmt.Errorf("%w: a FAT file system fills the device", ErrNoTable)
	}
	for i, e := range m.entries {
		if !e.validStatus() {
			return nil, fmt.Errorf("%w: entry %d of the MBR has the status 0x%02x", ErrNoTable, i+1, e.boot)
		}
	}
	return m, nil
}

// decodeMBR decodes any sector with the signature of an MBR. go-diskfs rejects a table with an invalid status, so it
// gets a copy with status 0.
func decodeMBR(sector []byte) (*mbrSector, error) {
	raw := decode[ondisk.MBR](sector)
	m := &mbrSector{sector: sector, diskID: raw.DiskID}
	for i := range m.entries {
		e := &m.entries[i]
		if e.boot = raw.Entries[i].Status; !e.validStatus() {
			raw.Entries[i].Status = 0
		}
	}
	var err error
	if m.table, err = mbr.Read(newMemory(overlay(sector, raw)), mbrSize, mbrSize); err != nil {
		return nil, fmt.Errorf("%w: no MBR signature", ErrNoTable)
	}
	for i, p := range m.table.Partitions {
		e := &m.entries[i]
		e.kind, e.first, e.size = byte(p.Type), int64(p.Start), int64(p.Size)
	}
	return m, nil
}

// encodeMBR writes the entries into a sector and preserves the rest of the sector.
func encodeMBR(table *mbr.Table, sector []byte) {
	_ = table.Write(newMemory(sector), mbrSize) // writing to memory cannot fail
}

func (m *mbrSector) protective() bool {
	for _, e := range m.entries {
		if e.kind == typeProtective {
			return true
		}
	}
	return false
}

// checkProtective returns an error unless a protective entry starts at LBA 1 (UEFI 2.10, 5.2.3). Otherwise the kernel
// finds no GPT (is_pmbr_valid) and ignores the other entries too.
func (m *mbrSector) checkProtective() error {
	var first int64
	for _, e := range m.entries {
		if e.kind == typeProtective && e.first == 1 {
			return nil
		}
		if e.kind == typeProtective {
			first = e.first
		}
	}
	return fmt.Errorf("%w: the protective entry of the MBR starts at sector %d, want 1", ErrNoTable, first)
}

// hasFATName reports whether the sector has the file system type of FAT. Partitioning tools keep this part of the
// sector, so that a disk that was a FAT file system can still have it.
func (m *mbrSector) hasFATName() bool {
	b := decode[volumeBoot](m.sector)
	return strings.HasPrefix(string(b.Type16[:]), "FAT") || strings.HasPrefix(string(b.Type32[:]), "FAT")
}

// hasPartitions reports whether all entries are valid and at least one is used. The entry of a protective MBR counts.
// An entry that begins at sector 0 is not valid: mkfs.fat writes such a table into its own boot sector.
func (m *mbrSector) hasPartitions() bool {
	invalid := func(e mbrEntry) bool { return !e.validStatus() || e.used() && e.first == 0 }
	return !slices.ContainsFunc(m.entries[:], invalid) && slices.ContainsFunc(m.entries[:], mbrEntry.used)
}

// isFileSystem reports whether the sector is the boot sector of a FAT, exFAT or NTFS file system that spans the
// device. Such a sector has code at the offset of a table's entries.
func (m *mbrSector) isFileSystem() bool {
	if !slices.ContainsFunc(m.entries[:], func(e mbrEntry) bool { return !e.validStatus() }) {
		return false
	}
	b := decode[volumeBoot](m.sector)
	hasParameters := bits.OnesCount16(b.SectorSize) == 1 && b.SectorSize >= 512 && (b.Media == 0xf0 || b.Media >= 0xf8)
	return hasParameters || string(b.OEMName[:]) == "EXFAT   "
}

func (e mbrEntry) used() bool        { return e.kind != 0 && e.size > 0 }
func (e mbrEntry) extended() bool    { return e.kind == 0x05 || e.kind == 0x0f || e.kind == 0x85 }
func (e mbrEntry) validStatus() bool { return e.boot&0x7f == 0 }

// allEntries reads the table for ReadAll.
func (d *disk) allEntries(ctx context.Context) (*Table, error) {
	sector, err := d.readSector(0)
	if err != nil {
		return nil, err
	}
	m, err := decodeMBR(sector)
	if err != nil {
		return nil, err
	}
	if m.protective() {
		if table, err := d.gptTable(); err == nil {
			table.DiskID = m.diskID
			return table, nil
		}
	}
	if m.isFileSystem() {
		return nil, fmt.Errorf("%w: a file system fills the device", ErrNoTable)
	}
	return d.tableOf(ctx, m, func(e mbrEntry) bool {
		return e.kind != typeProtective && e.size > 0 && e.first*d.sector < d.size
	})
}

func (d *disk) mbrTable(ctx context.Context, m *mbrSector) (*Table, error) {
	for i, e := range m.entries {
		if e.used() && e.first*d.sector >= d.size {
			return nil, fmt.Errorf("%w: partition %d starts at sector %d, beyond the end of the disk",
				ErrNoTable, i+1, e.first)
		}
	}
	return d.tableOf(ctx, m, mbrEntry.used)
}

// tableOf returns the table of the entries for which isUsed returns true, with the logical partitions.
func (d *disk) tableOf(ctx context.Context, m *mbrSector, isUsed func(mbrEntry) bool) (*Table, error) {
	table := &Table{Scheme: MBR, DiskID: m.diskID, SectorSize: d.sector, DiskSize: d.size}
	for i, e := range m.entries {
		if isUsed(e) {
			table.Partitions = append(table.Partitions, d.partition(m.diskID, i+1, e, 0))
		}
	}
	if len(table.Partitions) == 0 {
		return nil, fmt.Errorf("%w: the MBR is empty", ErrNoTable)
	}
	c := chain{disk: d, table: table, seen: map[int64]bool{}}
	for _, e := range m.entries {
		if isUsed(e) && e.extended() {
			if err := c.follow(ctx, e); err != nil {
				return nil, err
			}
		}
	}
	return table, nil
}

// chain adds logical partitions and the sectors that name them to a partition table.
type chain struct {
	disk  *disk
	table *Table
	count int            // logical partitions
	seen  map[int64]bool // offsets of tables
}

// follow follows the tables of an extended partition as Linux does. It stops at a sector without the signature of a
// table, beyond the end of the disk, after maxEmptyLinks tables in a row without a logical partition, and after
// maxLogical logical partitions of the disk. Unlike Linux, it stops at a table that was already read, because that
// table names the same partitions again.
func (c *chain) follow(ctx context.Context, extended mbrEntry) error {
	first, size := extended.first, extended.size
	for empty := 0; empty < maxEmptyLinks && c.count < maxLogical; empty++ {
		offset := first * c.disk.sector
		if offset+512 > c.disk.size || c.seen[offset] {
			return nil
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		sector, err := c.disk.readSector(offset)
		if err != nil {
			return err
		}
		m, err := decodeMBR(sector)
		if err != nil {
			return nil //nolint:nilerr // no table: the chain ends
		}
		c.seen[offset] = true
		c.table.LogicalTables = append(c.table.LogicalTables, offset)
		var link *mbrEntry
		for i, e := range m.entries {
			switch {
			case e.size == 0:
			case e.extended():
				if link == nil {
					link = &e
				}
			case i >= 2 && (e.first+e.size > size || first+e.first+e.size > extended.first+extended.size):
				// The last two entries are often garbage: they count only inside the extended partition.
			case c.count < maxLogical:
				c.table.Partitions = append(c.table.Partitions, c.disk.partition(c.table.DiskID, 5+c.count, e, first))
				c.count++
				empty = -1
			}
		}
		if link == nil {
			return nil
		}
		first, size = extended.first+link.first, link.size
	}
	return nil
}

func (d *disk) partition(diskID uint32, n int, e mbrEntry, base int64) Partition {
	return Partition{
		Number: n, Type: fmt.Sprintf("0x%02x", e.kind), UUID: fmt.Sprintf("%08x-%02x", diskID, n),
		Boot: e.boot == 0x80, Start: (base + e.first) * d.sector, Size: e.size * d.sector,
	}
}

// growProtective extends the protective entry to the whole disk, up to 32 bits of sectors. It does not change a hybrid
// MBR.
func (d *disk) growProtective() error {
	m, err := d.readMBR()
	if err != nil {
		return err
	}
	only := m.entries[0].kind == typeProtective && m.entries[0].first == 1
	for _, e := range m.entries[1:] {
		only = only && e.kind == 0
	}
	size := min(d.size/d.sector-1, maxLBA-1)
	if !only || m.entries[0].size == size {
		return nil
	}
	p := m.table.Partitions[0]
	p.Size = uint32(size)
	p.EndHead, p.EndSector, p.EndCylinder = 0xff, 0xff, 0xff // beyond the range of CHS
	encodeMBR(m.table, m.sector)
	if err := d.write(m.sector, 0); err != nil {
		return err
	}
	return d.file.Sync()
}

func (d *disk) addMBR(table *Table, p Partition) (Partition, error) {
	m, err := d.readMBR()
	if err != nil {
		return Partition{}, err
	}
	slot := p.Number - 1
	for i, e := range m.entries {
		if slot < 0 && !e.used() {
			slot = i
		}
	}
	if slot < 0 || slot > 3 || m.entries[slot].used() {
		return Partition{}, errors.New("the MBR has no free primary partition, at most 3 may be in use")
	}
	if p.Type == "" {
		p.Type = TypeMBRLinux
	}
	start, end := d.placeMBR(p)
	e, err := newMBREntry(p, start/d.sector, (end-start)/d.sector)
	if err != nil {
		return Partition{}, err
	}
	if start < alignment || end > min(d.size, maxLBA*d.sector) || !free(table.Partitions, start, end) {
		return Partition{}, fmt.Errorf("no space for %d bytes at byte %d: taken or outside the disk",
			end-start, start)
	}
	m.entries[slot], m.table.Partitions[slot] = e, mbrPartition(e)
	encodeMBR(m.table, m.sector)
	if err := d.write(m.sector, 0); err != nil {
		return Partition{}, err
	}
	if err := d.file.Sync(); err != nil {
		return Partition{}, err
	}
	return d.partition(m.diskID, slot+1, e, 0), nil
}

// placeMBR returns the range of bytes of a new partition: the requested range, or the end of the disk. An MBR cannot
// address more than 2^32 sectors; on a larger disk the partition ends one MiB below that limit.
func (d *disk) placeMBR(p Partition) (start, end int64) {
	if p.Start != 0 {
		return p.Start / alignment * alignment, p.Start + (p.Size+d.sector-1)/d.sector*d.sector
	}
	end = d.size / d.sector * d.sector
	if limit := int64(maxLBA) * d.sector; end > limit {
		end = limit - alignment
	}
	return (end - p.Size) / alignment * alignment, end
}

func mbrType(text string) (byte, error) {
	kind, err := strconv.ParseUint(strings.TrimPrefix(text, "0x"), 16, 8)
	if err != nil || kind == 0 {
		return 0, fmt.Errorf("%q is no MBR partition type", text)
	}
	return byte(kind), nil
}

// newMBREntry returns the entry of a partition of size sectors that starts at sector first.
func newMBREntry(p Partition, first, size int64) (mbrEntry, error) {
	kind, err := mbrType(p.Type)
	if err != nil {
		return mbrEntry{}, err
	}
	e := mbrEntry{kind: kind, first: first, size: size}
	if p.Boot {
		e.boot = 0x80
	}
	return e, nil
}

// mbrPartition converts an entry for go-diskfs. CHS addresses are set to the values for LBA-only entries.
func mbrPartition(e mbrEntry) *mbr.Partition {
	return &mbr.Partition{
		Bootable: e.boot == 0x80, Type: mbr.Type(e.kind), Start: uint32(e.first), Size: uint32(e.size),
		StartHead: 0xfe, StartSector: 0xff, StartCylinder: 0xff, EndHead: 0xfe, EndSector: 0xff, EndCylinder: 0xff,
	}
}
