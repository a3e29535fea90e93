package partition

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

const (
	gptEntries   = 128 // of a new table
	gptEntrySize = 128
	gptRevision  = 0x00010000 // of UEFI 2.10: 1.0
)

// remains is how much of both ends of each new partition is overwritten with zeros, in bytes: what lay on the disk
// before must not be taken for the content of the partition. In it lie the superblocks of all common file systems, md
// arrays, volume groups and both headers of LUKS 2.
const remains = 8 << 20

// Create replaces the partition table of a device by a new one with the layout's partitions. It generates UUIDs and a
// disk id where the layout has none. It zeroes the first and last 8 MiB of each partition, and the first and last MiB
// of the device, including boot code. The layout must fit on the device; otherwise nothing is written. A device in use
// is rejected (EBUSY). When Create returns, the table is on the medium, but the kernel does not know it yet (see
// [Sync]).
func Create(ctx context.Context, device string, l Layout) (*Table, error) {
	d, err := open(ctx, device, os.O_RDWR|unix.O_EXCL)
	if err != nil {
		return nil, fmt.Errorf("create partitions on %s: %w", device, err)
	}
	table, err := d.create(ctx, l)
	if err = errors.Join(err, d.file.Close()); err != nil {
		return nil, fmt.Errorf("create partitions on %s: %w", device, err)
	}
	return table, nil
}

// Fits returns an error if a layout does not fit on a disk of the given size and sector size, both in bytes.
func (l Layout) Fits(size, sector int64) error {
	end := size / sector * sector
	switch l.Scheme {
	case GPT:
		end = (size/sector - 1 - entrySectors(sector)) * sector
	case MBR:
		if limit := maxLBA * sector; l.end() > limit {
			return fmt.Errorf("the partitions end at byte %d, an MBR reaches to %d with sectors of %d bytes",
				l.end(), limit, sector)
		}
	default:
		return fmt.Errorf("partition scheme %q is neither %s nor %s", l.Scheme, GPT, MBR)
	}
	if l.end() > end {
		return fmt.Errorf("the partitions end at byte %d, a disk of %d bytes has space up to byte %d",
			l.end(), size, end)
	}
	if alignment%sector != 0 || alignment < (2+entrySectors(sector))*sector {
		return fmt.Errorf("sectors of %d bytes leave no space for a table before the first partition", sector)
	}
	return nil
}

// entrySectors is how many sectors the entries of a new GPT take.
func entrySectors(sector int64) int64 { return (gptEntries*gptEntrySize + sector - 1) / sector }

func (d *disk) create(ctx context.Context, l Layout) (*Table, error) {
	if err := l.Fits(d.size, d.sector); err != nil {
		return nil, err
	}
	mbr, g, err := d.encodeTable(l)
	if err != nil {
		return nil, err
	}
	if err := d.clear(ctx, l); err != nil {
		return nil, err
	}
	if g != nil {
		if err := d.writeGPT(g); err != nil {
			return nil, err
		}
	}
	// Last, for it is what makes the rest a table.
	if err := d.write(mbr, 0); err != nil {
		return nil, err
	}
	if err := d.file.Sync(); err != nil {
		return nil, err
	}
	return d.read(ctx)
}

// encodeTable makes the first sector and, for a GPT, the table.
func (d *disk) encodeTable(l Layout) (sector []byte, g *gpt, err error) {
	sector = make([]byte, d.sector)
	sector[510], sector[511] = 0x55, 0xaa
	if l.Scheme == GPT {
		size := min(d.size/d.sector-1, maxLBA-1)
		putMBREntry(sector, 0, mbrEntry{kind: typeProtector, first: 1, size: size})
		copy(sector[mbrTable+1:], []byte{0, 2, 0}) // UEFI 2.10, table 5.4
		g, err = d.encodeGPT(l)
		return sector, g, err
	}
	// Without a disk id the partitions of a table have no PARTUUID.
	for binary.LittleEndian.Uint32(sector[440:]) == 0 {
		_, _ = rand.Read(sector[440:444]) // never fails
	}
	for i, p := range l.Partitions {
		kind, err := mbrType(p.Type)
		if err != nil {
			return nil, nil, err
		}
		e := mbrEntry{kind: kind, first: p.Start / d.sector, size: p.Size / d.sector}
		if p.Boot {
			e.boot = 0x80
		}
		putMBREntry(sector, i, e)
	}
	return sector, nil, nil
}

// encodeGPT makes the primary copy.
func (d *disk) encodeGPT(l Layout) (*gpt, error) {
	sector := make([]byte, d.sector)
	copy(sector, gptSignature)
	le := binary.LittleEndian
	le.PutUint32(sector[8:], gptRevision)
	le.PutUint32(sector[12:], gptHeaderSize)
	le.PutUint32(sector[80:], gptEntries)
	le.PutUint32(sector[84:], gptEntrySize)
	randomGUID(sector[56:72])
	g := &gpt{array: make([]byte, gptEntries*gptEntrySize), header: header{
		sector: sector, size: gptHeaderSize, count: gptEntries, entrySize: gptEntrySize,
		own: 1, other: d.lastLBA(), entries: 2, first: 2 + entrySectors(d.sector),
	}}
	g.last = d.lastUsable(g)
	for _, p := range l.Partitions {
		if err := encodeEntry(g.entry(p.Number-1), p.Partition, p.Start/d.sector, (p.Start+p.Size)/d.sector-1); err != nil {
			return nil, fmt.Errorf("partition %d: %w", p.Number, err)
		}
	}
	return g, nil
}

// clear zeroes the old table and the ends of the new partitions. It zeroes the table first: until the new one is
// written, the disk has none.
func (d *disk) clear(ctx context.Context, l Layout) error {
	ranges := [][2]int64{{0, alignment}, {d.size - min(d.size, alignment), d.size}}
	for _, p := range l.Partitions {
		end := p.Start + p.Size
		front := min(p.Start+remains, end)
		ranges = append(ranges, [2]int64{p.Start, front}, [2]int64{max(front, end-remains), end})
	}
	zeros := make([]byte, alignment)
	for _, r := range ranges {
		for offset := r[0]; offset < r[1]; {
			if err := ctx.Err(); err != nil {
				return err
			}
			n := min(alignment, r[1]-offset)
			if err := d.write(zeros[:n], offset); err != nil {
				return err
			}
			offset += n
		}
		if err := d.file.Sync(); err != nil {
			return err
		}
	}
	return nil
}
