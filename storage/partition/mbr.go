package partition

import (
	"encoding/binary"
	"errors"
	"fmt"
	"strconv"
	"strings"
)

const (
	mbrTable   = 446 // offset of the four entries
	maxLogical = 128 // logical partitions that are followed
	maxLBA     = 1 << 32
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
	return d.readTableSector(0)
}

func (d *disk) readTableSector(offset int64) (*mbr, error) {
	sector := make([]byte, 512)
	if _, err := d.file.ReadAt(sector, offset); err != nil {
		return nil, err
	}
	return parseMBR(sector)
}

func parseMBR(sector []byte) (*mbr, error) {
	if sector[510] != 0x55 || sector[511] != 0xaa {
		return nil, fmt.Errorf("%w: no MBR signature", ErrNoTable)
	}
	// A FAT file system without partitions ends its boot sector with the same signature.
	if strings.HasPrefix(string(sector[54:62]), "FAT") || strings.HasPrefix(string(sector[82:90]), "FAT") {
		return nil, fmt.Errorf("%w: a FAT file system fills the device", ErrNoTable)
	}
	m := &mbr{sector: sector, diskID: binary.LittleEndian.Uint32(sector[440:])}
	for i := range m.entries {
		e := sector[mbrTable+16*i:]
		m.entries[i] = mbrEntry{
			boot: e[0], kind: e[4],
			first: int64(binary.LittleEndian.Uint32(e[8:])), size: int64(binary.LittleEndian.Uint32(e[12:])),
		}
		if e[0]&0x7f != 0 {
			return nil, fmt.Errorf("%w: entry %d of the MBR has the status 0x%02x", ErrNoTable, i+1, e[0])
		}
	}
	return m, nil
}

func (m *mbr) protective() bool {
	for _, e := range m.entries {
		if e.kind == typeProtector {
			return true
		}
	}
	return false
}

func (e mbrEntry) used() bool     { return e.kind != 0 && e.size > 0 }
func (e mbrEntry) extended() bool { return e.kind == 0x05 || e.kind == 0x0f || e.kind == 0x85 }

func (d *disk) mbrTable(m *mbr) (*Table, error) {
	table := &Table{Scheme: MBR, DiskID: m.diskID, SectorSize: d.sector, DiskSize: d.size}
	for i, e := range m.entries {
		if !e.used() {
			continue
		}
		if e.first*d.sector >= d.size {
			return nil, fmt.Errorf("%w: partition %d starts at sector %d, beyond the end of the disk", ErrNoTable, i+1, e.first)
		}
		table.Partitions = append(table.Partitions, d.mbrPartition(m.diskID, i+1, e, 0))
	}
	if len(table.Partitions) == 0 {
		return nil, fmt.Errorf("%w: the MBR is empty", ErrNoTable)
	}
	for _, e := range m.entries {
		if e.used() && e.extended() {
			logical, sectors, err := d.logical(m.diskID, e.first)
			if err != nil {
				return nil, err
			}
			table.Partitions, table.LogicalTables = append(table.Partitions, logical...), sectors
			break
		}
	}
	return table, nil
}

// logical follows the chain of an extended partition and returns its partitions, and the offsets of the sectors that
// name them. A link that breaks or turns back ends the chain.
func (d *disk) logical(diskID uint32, extended int64) (list []Partition, sectors []int64, err error) {
	next := extended
	for len(list) < maxLogical {
		offset := next * d.sector
		if offset+512 > d.size {
			return list, sectors, nil
		}
		m, err := d.readTableSector(offset)
		if errors.Is(err, ErrNoTable) {
			return list, sectors, nil
		}
		if err != nil {
			return nil, nil, err
		}
		sectors = append(sectors, offset)
		if e := m.entries[0]; e.used() {
			list = append(list, d.mbrPartition(diskID, 5+len(list), e, next))
		}
		link := m.entries[1]
		if !link.used() || !link.extended() || extended+link.first <= next {
			return list, sectors, nil
		}
		next = extended + link.first
	}
	return list, sectors, nil
}

func (d *disk) mbrPartition(diskID uint32, n int, e mbrEntry, base int64) Partition {
	return Partition{
		Number: n, Type: fmt.Sprintf("0x%02x", e.kind), UUID: fmt.Sprintf("%08x-%02x", diskID, n), Boot: e.boot == 0x80,
		Start: (base + e.first) * d.sector, Size: e.size * d.sector,
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

// placeMBR finds the range of bytes: as asked for, or the end of the disk; behind 2^32 sectors an MBR cannot point, so
// that on a larger disk the partition ends one MiB below that mark.
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
