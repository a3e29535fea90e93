package partition

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
)

// lastLBAOffset is the place of the last LBA in an entry of a GPT (UEFI 2.10, table 5.6).
const lastLBAOffset = 40

// ErrCannotGrow is the cause of an error of Grow if the table does not permit the growth: there is no such partition,
// the size is out of range, the space is not free, or the disk has no space for the backup GPT. The table is valid, and
// unchanged except for the place of its backup. Errors of reading and writing do not wrap it.
var ErrCannotGrow = errors.New("partition cannot grow")

// Grow enlarges a partition of a GPT to size bytes, rounded down to whole sectors. Its start, and all other entries,
// stay the same. The space must be free. A misplaced backup GPT is moved first. When Grow returns, the table is on the
// medium, but the kernel does not know it yet (see [Sync]).
func Grow(ctx context.Context, device string, number int, size int64) (grown Partition, err error) {
	d, err := open(ctx, device, os.O_RDWR)
	if err != nil {
		return Partition{}, fmt.Errorf("grow partition %d: %w", number, err)
	}
	grown, err = d.grow(number, size)
	if err = errors.Join(err, d.file.Close()); err != nil {
		return Partition{}, fmt.Errorf("grow partition %d of %s: %w", number, device, err)
	}
	return grown, nil
}

func (d *disk) grow(number int, size int64) (grown Partition, err error) {
	g, err := d.writable()
	if errors.Is(err, errNoBackupSpace) {
		return Partition{}, fmt.Errorf("%w: %w", ErrCannotGrow, err)
	}
	if err != nil {
		return Partition{}, err
	}
	var p *Partition
	var others []Partition
	for i := range g.partitions {
		if g.partitions[i].Number == number {
			p = &g.partitions[i]
		} else {
			others = append(others, g.partitions[i])
		}
	}
	if p == nil {
		return Partition{}, fmt.Errorf("%w: no such partition", ErrCannotGrow)
	}
	size = size / d.sector * d.sector
	if size < p.Size || size > d.size {
		return Partition{}, fmt.Errorf("%w: got size %d bytes, want at least %d and at most %d",
			ErrCannotGrow, size, p.Size, d.size)
	}
	end := p.Start + size
	limit := (g.LastUsableLBA + 1) * d.sector
	if end > limit || !free(append(others, g.extent(d)), p.Start+p.Size, end) {
		return Partition{}, fmt.Errorf("%w: partition would end at byte %d: space not free, or beyond the usable area "+
			"(ends at byte %d)", ErrCannotGrow, end, limit)
	}
	binary.LittleEndian.PutUint64(g.entry(number - 1)[lastLBAOffset:], uint64(end/d.sector-1))
	if err := d.writeGPT(g); err != nil {
		return Partition{}, err
	}
	p.Size = size
	return *p, nil
}
