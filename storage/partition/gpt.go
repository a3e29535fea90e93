package partition

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"strings"
	"unicode/utf16"
)

const (
	gptSignature  = "EFI PART"
	gptHeaderSize = 92
	maxEntries    = 4 << 20 // bytes of a partition entry array that are read; the usual one has 16 KiB
)

// header is the GPT header of UEFI 2.10, table 5.5. What stands behind its 92 bytes is kept.
type header struct {
	sector     []byte // the whole sector as it was read
	size       uint32
	own        int64 // LBA of this header
	other      int64 // LBA of the other one
	first      int64 // first usable LBA
	last       int64 // last usable LBA
	entries    int64 // LBA of the partition entry array
	count      uint32
	entrySize  uint32
	entriesCRC uint32
}

// gpt is one copy of the table.
type gpt struct {
	header
	array []byte
}

// readGPT reads and checks the copy whose header lies at an LBA.
func (d *disk) readGPT(lba int64) (*gpt, error) {
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
	if h.own != lba {
		return nil, fmt.Errorf("GPT header at sector %d says it lies at %d", lba, h.own)
	}
	length := int64(h.count) * int64(h.entrySize)
	if h.entries < 2 || h.entries > d.size/d.sector || h.entries*d.sector+length > d.size {
		return nil, fmt.Errorf("GPT entries at sector %d lie outside the disk", h.entries)
	}
	g := &gpt{header: h, array: make([]byte, length)}
	if _, err := d.file.ReadAt(g.array, h.entries*d.sector); err != nil {
		return nil, err
	}
	if crc := crc32.ChecksumIEEE(g.array); crc != h.entriesCRC {
		return nil, fmt.Errorf("GPT entries have CRC %08x, the header says %08x", crc, h.entriesCRC)
	}
	return g, nil
}

func parseHeader(sector []byte) (header, error) {
	if len(sector) < gptHeaderSize || string(sector[:8]) != gptSignature {
		return header{}, errors.New("no GPT header")
	}
	le := binary.LittleEndian
	h := header{
		sector: sector, size: le.Uint32(sector[12:]), own: int64(le.Uint64(sector[24:])),
		other: int64(le.Uint64(sector[32:])), first: int64(le.Uint64(sector[40:])), last: int64(le.Uint64(sector[48:])),
		entries: int64(le.Uint64(sector[72:])), count: le.Uint32(sector[80:]), entrySize: le.Uint32(sector[84:]),
		entriesCRC: le.Uint32(sector[88:]),
	}
	if h.size < gptHeaderSize || int64(h.size) > int64(len(sector)) {
		return header{}, fmt.Errorf("GPT header has size %d", h.size)
	}
	if got, want := headerCRC(sector[:h.size]), le.Uint32(sector[16:]); got != want {
		return header{}, fmt.Errorf("GPT header has CRC %08x, it says %08x", got, want)
	}
	if h.entrySize < 128 || h.entrySize%8 != 0 || h.count == 0 || uint64(h.count)*uint64(h.entrySize) > maxEntries {
		return header{}, fmt.Errorf("GPT has %d entries of %d bytes", h.count, h.entrySize)
	}
	if h.first < 2 || h.last < h.first {
		return header{}, fmt.Errorf("GPT has usable sectors %d to %d", h.first, h.last)
	}
	return h, nil
}

func headerCRC(raw []byte) uint32 {
	clean := append([]byte(nil), raw...)
	clear(clean[16:20])
	return crc32.ChecksumIEEE(clean)
}

// encode writes the fields back into a copy of the sector and brings the checksums up to date.
func (g *gpt) encode() []byte {
	sector := append([]byte(nil), g.sector...)
	le := binary.LittleEndian
	for offset, value := range map[int]int64{24: g.own, 32: g.other, 40: g.first, 48: g.last, 72: g.entries} {
		le.PutUint64(sector[offset:], uint64(value))
	}
	le.PutUint32(sector[88:], crc32.ChecksumIEEE(g.array))
	le.PutUint32(sector[16:], headerCRC(sector[:g.size]))
	return sector
}

func (d *disk) lastLBA() int64 { return d.size/d.sector - 1 }

func (d *disk) primary() (*gpt, error) { return d.readGPT(1) }

// gptTable reads the primary, or the backup in the last sector if the primary is broken.
func (d *disk) gptTable() (*Table, error) {
	table := &Table{Scheme: GPT, SectorSize: d.sector, DiskSize: d.size}
	g, err := d.primary()
	if err == nil {
		table.BackupMisplaced = g.other != d.lastLBA()
		if _, err := d.readGPT(g.other); err != nil {
			table.Damaged = true
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
	table.GUID = strings.ToLower(guidText(g.sector[56:72]))
	for n := range int(g.count) {
		if p, used := g.partition(n, d.sector); used {
			table.Partitions = append(table.Partitions, p)
		}
	}
	return table, nil
}

func (g *gpt) entry(n int) []byte { return g.array[n*int(g.entrySize):][:g.entrySize] }

// partition decodes entry n, counted from 0 (table 5.6).
func (g *gpt) partition(n int, sector int64) (Partition, bool) {
	e := g.entry(n)
	if zero(e[:16]) {
		return Partition{}, false
	}
	le := binary.LittleEndian
	first, last := int64(le.Uint64(e[32:])), int64(le.Uint64(e[40:]))
	if first < 1 || last < first || last > 1<<62/sector {
		return Partition{}, false
	}
	attributes := le.Uint64(e[48:])
	return Partition{
		Number: n + 1, Type: guidText(e[:16]), UUID: strings.ToLower(guidText(e[16:32])), Name: entryName(e[56:128]),
		Attributes: attributes, Boot: attributes&4 != 0, Start: first * sector, Size: (last - first + 1) * sector,
	}, true
}

// lastUsable returns the last LBA before a backup at the end of the disk.
func (d *disk) lastUsable(g *gpt) int64 {
	return d.lastLBA() - (int64(len(g.array))+d.sector-1)/d.sector - 1
}

// relocate moves the backup to the end of the disk. The new backup is on the medium before the primary points to it,
// so that a table is whole at every moment.
func (d *disk) relocate(g *gpt) error {
	last, usable := d.lastLBA(), d.lastUsable(g)
	if behind := g.entries + (int64(len(g.array))+d.sector-1)/d.sector; usable < g.first || behind > usable+1 {
		return fmt.Errorf("usable sectors from %d on and entries up to sector %d leave no space in %d bytes",
			g.first, behind-1, d.size)
	}
	for n := range int(g.count) {
		p, used := g.partition(n, d.sector)
		if used && p.Start+p.Size > (usable+1)*d.sector {
			return fmt.Errorf("partition %d ends at byte %d, which leaves no space in %d bytes",
				p.Number, p.Start+p.Size, d.size)
		}
	}
	g.other, g.last = last, usable
	if err := d.writeGPT(g); err != nil {
		return err
	}
	return d.growProtector()
}

// writeGPT writes the backup, then the primary, from the primary's fields.
func (d *disk) writeGPT(g *gpt) error {
	backup := *g
	backup.own, backup.other = g.other, g.own
	backup.entries = g.other - (int64(len(g.array))+d.sector-1)/d.sector
	for _, copy := range []*gpt{&backup, g} {
		if err := d.write(copy.array, copy.entries*d.sector); err != nil {
			return err
		}
		if err := d.write(copy.encode(), copy.own*d.sector); err != nil {
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

func (d *disk) addGPT(p Partition) (Partition, error) {
	g, err := d.primary()
	if err != nil {
		return Partition{}, fmt.Errorf("the primary GPT is broken: %w", err)
	}
	// A backup at the end whose entries would reach into the usable area is put right as one that lies elsewhere.
	if g.other != d.lastLBA() || g.last > d.lastUsable(g) {
		if err := d.relocate(g); err != nil {
			return Partition{}, err
		}
	}
	// The entries may lie in the usable area, where they do not belong.
	taken := []Partition{{Start: g.entries * d.sector, Size: int64(len(g.array))}}
	slot := p.Number - 1
	for n := range int(g.count) {
		if old, used := g.partition(n, d.sector); used {
			taken = append(taken, old)
		} else if slot < 0 && zero(g.entry(n)[:16]) {
			slot = n
		}
	}
	if slot < 0 || slot >= int(g.count) || !zero(g.entry(slot)[:16]) {
		return Partition{}, fmt.Errorf("no free entry for partition %d among %d", p.Number, g.count)
	}
	end := (g.last + 1) * d.sector
	if p.Start != 0 {
		end = p.Start + (p.Size+d.sector-1)/d.sector*d.sector
	}
	start := (end - p.Size) / alignment * alignment
	if p.Start != 0 {
		start = p.Start / alignment * alignment
	}
	if start < g.first*d.sector || end > (g.last+1)*d.sector || !free(taken, start, end) {
		return Partition{}, fmt.Errorf("no space for %d bytes at byte %d: taken or outside the usable area",
			end-start, start)
	}
	if err := encodeEntry(g.entry(slot), p, start/d.sector, end/d.sector-1); err != nil {
		return Partition{}, err
	}
	if err := d.writeGPT(g); err != nil {
		return Partition{}, err
	}
	added, _ := g.partition(slot, d.sector)
	return added, nil
}

func encodeEntry(e []byte, p Partition, first, last int64) error {
	if p.Type == "" {
		p.Type = TypeLinux
	}
	clear(e)
	if err := putGUID(e[:16], p.Type); err != nil {
		return err
	}
	if p.UUID == "" {
		randomGUID(e[16:32])
	} else if err := putGUID(e[16:32], p.UUID); err != nil {
		return err
	}
	le := binary.LittleEndian
	le.PutUint64(e[32:], uint64(first))
	le.PutUint64(e[40:], uint64(last))
	attributes := p.Attributes
	if p.Boot {
		attributes |= 4
	}
	le.PutUint64(e[48:], attributes)
	units := utf16.Encode([]rune(p.Name))
	if len(units) > 36 {
		return fmt.Errorf("name %q has %d UTF-16 units, 36 fit", p.Name, len(units))
	}
	for i, unit := range units {
		le.PutUint16(e[56+2*i:], unit)
	}
	return nil
}

func entryName(raw []byte) string {
	var units []uint16
	for i := 0; i+1 < len(raw); i += 2 {
		unit := binary.LittleEndian.Uint16(raw[i:])
		if unit == 0 {
			break
		}
		units = append(units, unit)
	}
	return string(utf16.Decode(units))
}

func zero(b []byte) bool {
	for _, c := range b {
		if c != 0 {
			return false
		}
	}
	return true
}
