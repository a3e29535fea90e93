package partition

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/bits"
	"slices"
	"strconv"
	"strings"
)

const (
	mbrTable = 446 // offset of the four entries
	maxLBA   = 1 << 32

	// maxNumber is the highest number of a partition in Linux. Logical partitions start at 5.
	maxNumber  = 255
	maxLogical = maxNumber - 4

	maxEmptyLinks = 100 // Linux stops after that many tables in a row without a logical partition
)

// mbrEntry is one entry of the table; LBAs in sectors, relative as it stands there.
type mbrEntry struct {
	boot, kind  byte
	first, size int64
}

type mbr struct {
	sector  []byte // 512 bytes
	diskID  uint32
	entries [4]mbrEntry
}

// readMBR reads sector 0. The error wraps ErrNoTable where it holds no sound table.
func (d *disk) readMBR() (*mbr, error) {
	sector, err := d.readSector(0)
	if err != nil {
		return nil, err
	}
	return parseMBR(sector)
}

func (d *disk) readSector(offset int64) ([]byte, error) {
	sector := make([]byte, 512)
	_, err := d.file.ReadAt(sector, offset)
	return sector, err
}

var errNoSignature = fmt.Errorf("%w: no MBR signature", ErrNoTable)

func hasMBRSignature(sector []byte) bool { return sector[510] == 0x55 && sector[511] == 0xaa }

func parseMBR(sector []byte) (*mbr, error) {
	if !hasMBRSignature(sector) {
		return nil, errNoSignature
	}
	// A FAT file system without partitions ends its boot sector with the same signature.
	if strings.HasPrefix(string(sector[54:62]), "FAT") || strings.HasPrefix(string(sector[82:90]), "FAT") {
		return nil, fmt.Errorf("%w: a FAT file system fills the device", ErrNoTable)
	}
	m := newMBR(sector)
	for i, e := range m.entries {
		if !e.soundStatus() {
			return nil, fmt.Errorf("%w: entry %d of the MBR has the status 0x%02x", ErrNoTable, i+1, e.boot)
		}
	}
	return m, nil
}

func newMBR(sector []byte) *mbr {
	return &mbr{sector: sector, diskID: binary.LittleEndian.Uint32(sector[440:]), entries: mbrEntries(sector)}
}

func mbrEntries(sector []byte) (entries [4]mbrEntry) {
	for i := range entries {
		e := sector[mbrTable+16*i:]
		entries[i] = mbrEntry{
			boot: e[0], kind: e[4],
			first: int64(binary.LittleEndian.Uint32(e[8:])), size: int64(binary.LittleEndian.Uint32(e[12:])),
		}
	}
	return entries
}

func (m *mbr) protective() bool {
	for _, e := range m.entries {
		if e.kind == typeProtector {
			return true
		}
	}
	return false
}

// isFileSystem reports whether the sector is the boot sector of a FAT, exFAT or NTFS file system that fills the
// device: its code lies where a table has the entries.
func (m *mbr) isFileSystem() bool {
	if !slices.ContainsFunc(m.entries[:], func(e mbrEntry) bool { return !e.soundStatus() }) {
		return false
	}
	sectorSize, media := binary.LittleEndian.Uint16(m.sector[11:]), m.sector[21]
	hasParameters := bits.OnesCount16(sectorSize) == 1 && sectorSize >= 512 && (media == 0xf0 || media >= 0xf8)
	return hasParameters || string(m.sector[3:11]) == "EXFAT   "
}

func (e mbrEntry) used() bool        { return e.kind != 0 && e.size > 0 }
func (e mbrEntry) extended() bool    { return e.kind == 0x05 || e.kind == 0x0f || e.kind == 0x85 }
func (e mbrEntry) soundStatus() bool { return e.boot&0x7f == 0 }

// allEntries reads the table for ReadAll.
func (d *disk) allEntries(ctx context.Context) (*Table, error) {
	sector, err := d.readSector(0)
	if err != nil {
		return nil, err
	}
	if !hasMBRSignature(sector) {
		return nil, errNoSignature
	}
	m := newMBR(sector)
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
		return e.kind != typeProtector && e.size > 0 && e.first*d.sector < d.size
	})
}

func (d *disk) mbrTable(ctx context.Context, m *mbr) (*Table, error) {
	for i, e := range m.entries {
		if e.used() && e.first*d.sector >= d.size {
			return nil, fmt.Errorf("%w: partition %d starts at sector %d, beyond the end of the disk",
				ErrNoTable, i+1, e.first)
		}
	}
	return d.tableOf(ctx, m, mbrEntry.used)
}

// tableOf returns the table of those entries that count, with the logical partitions.
func (d *disk) tableOf(ctx context.Context, m *mbr, counts func(mbrEntry) bool) (*Table, error) {
	table := &Table{Scheme: MBR, DiskID: m.diskID, SectorSize: d.sector, DiskSize: d.size}
	for i, e := range m.entries {
		if counts(e) {
			table.Partitions = append(table.Partitions, d.mbrPartition(m.diskID, i+1, e, 0))
		}
	}
	if len(table.Partitions) == 0 {
		return nil, fmt.Errorf("%w: the MBR is empty", ErrNoTable)
	}
	c := chain{disk: d, table: table, seen: map[int64]bool{}}
	for _, e := range m.entries {
		if counts(e) && e.extended() {
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
		if !hasMBRSignature(sector) {
			return nil
		}
		c.seen[offset] = true
		c.table.LogicalTables = append(c.table.LogicalTables, offset)
		var link *mbrEntry
		for i, e := range mbrEntries(sector) {
			switch {
			case e.size == 0:
			case e.extended():
				if link == nil {
					link = &e
				}
			case i >= 2 && (e.first+e.size > size || first+e.first+e.size > extended.first+extended.size):
				// The last two entries are often garbage: they count only inside the extended partition.
			case c.count < maxLogical:
				c.table.Partitions = append(c.table.Partitions, c.disk.mbrPartition(c.table.DiskID, 5+c.count, e, first))
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

func (d *disk) mbrPartition(diskID uint32, n int, e mbrEntry, base int64) Partition {
	return Partition{
		Number: n, Type: fmt.Sprintf("0x%02x", e.kind), UUID: fmt.Sprintf("%08x-%02x", diskID, n),
		Boot: e.boot == 0x80, Start: (base + e.first) * d.sector, Size: e.size * d.sector,
	}
}

// growProtector lets the protective entry span the whole disk, as far as 32 bits reach. A hybrid MBR is left alone.
func (d *disk) growProtector() error {
	m, err := d.readMBR()
	if err != nil {
		return err
	}
	only := m.entries[0].kind == typeProtector && m.entries[0].first == 1
	for _, e := range m.entries[1:] {
		only = only && e.kind == 0
	}
	size := min(d.size/d.sector-1, maxLBA-1)
	if !only || m.entries[0].size == size {
		return nil
	}
	binary.LittleEndian.PutUint32(m.sector[mbrTable+12:], uint32(size))
	copy(m.sector[mbrTable+5:], []byte{0xff, 0xff, 0xff}) // the end in cylinders, heads and sectors: too large to say
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
	kind, err := mbrType(p.Type)
	if err != nil {
		return Partition{}, err
	}
	start, end := d.placeMBR(p)
	if start < alignment || end > min(d.size, maxLBA*d.sector) || !free(table.Partitions, start, end) {
		return Partition{}, fmt.Errorf("no space for %d bytes at byte %d: taken or outside the disk", end-start, start)
	}
	e := mbrEntry{kind: kind, first: start / d.sector, size: (end - start) / d.sector}
	if p.Boot {
		e.boot = 0x80
	}
	putMBREntry(m.sector, slot, e)
	if err := d.write(m.sector, 0); err != nil {
		return Partition{}, err
	}
	if err := d.file.Sync(); err != nil {
		return Partition{}, err
	}
	again, err := parseMBR(m.sector)
	if err != nil {
		return Partition{}, err
	}
	return d.mbrPartition(m.diskID, slot+1, again.entries[slot], 0), nil
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

// putMBREntry writes an entry into a table's sector.
func putMBREntry(sector []byte, slot int, e mbrEntry) {
	raw := sector[mbrTable+16*slot:][:16]
	raw[0] = e.boot
	copy(raw[1:4], []byte{0xfe, 0xff, 0xff}) // no use of cylinders, heads and sectors
	raw[4] = e.kind
	copy(raw[5:8], []byte{0xfe, 0xff, 0xff})
	binary.LittleEndian.PutUint32(raw[8:], uint32(e.first))
	binary.LittleEndian.PutUint32(raw[12:], uint32(e.size))
}
