package partition

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"os"

	"github.com/diskfs/go-diskfs/partition/gpt"
	"github.com/diskfs/go-diskfs/partition/mbr"
	"golang.org/x/sys/unix"

	"ironroot/internal/ondisk"
)

// gptArray is the size of the entry array of a new GPT in bytes: 128 entries of 128 bytes.
const gptArray = 128 * gpt.PartitionEntrySize

// margin is the number of bytes that are zeroed at both ends of each new partition, so that old data on the disk is
// not recognised as its content. It covers the superblocks of all common file systems, md arrays and volume groups,
// and both headers of LUKS 2.
const margin = 8 << 20

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
		end = size/sector*sector - sector - gptArray
	case MBR:
		if limit := maxLBA * sector; l.end() > limit {
			return fmt.Errorf("the partitions end at byte %d, an MBR reaches to %d with sectors of %d bytes",
				l.end(), limit, sector)
		}
		if err := l.checkCount(); err != nil {
			return err
		}
	default:
		return fmt.Errorf("partition scheme %q is neither %s nor %s", l.Scheme, GPT, MBR)
	}
	if l.end() > end {
		return fmt.Errorf("the partitions end at byte %d, a disk of %d bytes has space up to byte %d",
			l.end(), size, end)
	}
	if alignment%sector != 0 || sector > gptArray {
		return fmt.Errorf("sectors of %d bytes leave no space for a table before the first partition", sector)
	}
	return nil
}

func (d *disk) create(ctx context.Context, l Layout) (*Table, error) {
	if err := l.Fits(d.size, d.sector); err != nil {
		return nil, err
	}
	sector, table, err := d.encodeTable(l)
	if err != nil {
		return nil, err
	}
	if err := d.clear(ctx, l); err != nil {
		return nil, err
	}
	if table != nil {
		// The backup is on the medium before the primary is written.
		m := &medium{File: d.file}
		if err := table.Write(m, d.size); err != nil {
			return nil, cmp.Or(m.err, err)
		}
	}
	// The first sector is written last, because it makes the table valid.
	if err := d.write(sector, 0); err != nil {
		return nil, err
	}
	if err := d.file.Sync(); err != nil {
		return nil, err
	}
	return d.read(ctx)
}

// encodeTable returns the first sector and, for a GPT, the table.
func (d *disk) encodeTable(l Layout) (sector []byte, table *gpt.Table, err error) {
	var first mbr.Table
	sector = make([]byte, d.sector)
	if l.Scheme == GPT {
		protective := mbrPartition(mbrEntry{kind: typeProtective, first: 1, size: min(d.size/d.sector-1, maxLBA-1)})
		protective.StartHead, protective.StartSector, protective.StartCylinder = 0, 2, 0 // UEFI 2.10, table 5.4
		first.Partitions = []*mbr.Partition{protective}
		encodeMBR(&first, sector)
		table, err = d.newGPT(l)
		return sector, table, err
	}
	// Without a disk id the partitions of a table have no PARTUUID. go-diskfs does not write a disk id.
	sector = overlay(sector, ondisk.MBR{DiskID: newDiskID()})
	for _, p := range l.Partitions {
		e, err := newMBREntry(p.Partition, p.Start/d.sector, p.Size/d.sector)
		if err != nil {
			return nil, nil, err
		}
		first.Partitions = append(first.Partitions, mbrPartition(e))
	}
	encodeMBR(&first, sector)
	return sector, nil, nil
}

// newDiskID returns a random number other than 0, which means that there is none.
func newDiskID() uint32 {
	for {
		var id [4]byte
		_, _ = rand.Read(id[:]) // never fails
		if n := binary.LittleEndian.Uint32(id[:]); n != 0 {
			return n
		}
	}
}

// newGPT returns the table of a layout. A table that go-diskfs cannot encode is an error.
func (d *disk) newGPT(l Layout) (*gpt.Table, error) {
	table := &gpt.Table{LogicalSectorSize: int(d.sector), PhysicalSectorSize: int(d.sector)}
	for _, p := range l.Partitions {
		entry, err := gptPartition(p.Partition, p.Start/d.sector, (p.Start+p.Size)/d.sector-1)
		if err != nil {
			return nil, fmt.Errorf("partition %d: %w", p.Number, err)
		}
		table.Partitions = append(table.Partitions, entry)
	}
	return table, table.Write(newMemory(nil), d.size)
}

// clear zeroes the old table and the ends of the new partitions. It zeroes the table first: until the new one is
// written, the disk has none.
func (d *disk) clear(ctx context.Context, l Layout) error {
	ranges := [][2]int64{{0, alignment}, {d.size - min(d.size, alignment), d.size}}
	for _, p := range l.Partitions {
		end := p.Start + p.Size
		front := min(p.Start+margin, end)
		ranges = append(ranges, [2]int64{p.Start, front}, [2]int64{max(front, end-margin), end})
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
