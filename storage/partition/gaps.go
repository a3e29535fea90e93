package partition

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"reflect"
	"slices"

	"golang.org/x/sys/unix"

	"ironroot/storage/block"
)

// bootCode is the number of bytes of an MBR that hold a boot loader. The disk id and the table follow.
const bootCode = 440

// errChanged is returned if a table is not the same after the space beside its partitions was zeroed.
var errChanged = errors.New("partition table differs afterwards")

// WipeGaps zeroes what is on a disk outside of its partitions, and keeps its table: the boot code, the rest of the
// MBR's sector if that is larger, and both ends of each gap before, between and after partitions, 8 MiB each. Then it
// reads them again. No partition may be in use. A table is an error if it is damaged, has an extended partition or
// unusual places, or is not the same afterwards.
func WipeGaps(ctx context.Context, device string) error {
	if err := wipeGaps(ctx, device); err != nil {
		return fmt.Errorf("wipe %s beside its partitions: %w", device, err)
	}
	return nil
}

// Gaps returns the ranges of a disk that neither its table nor a partition takes, by their start and end in bytes, in
// order. A damaged table, and one with an extended partition or unusual places, are errors.
func Gaps(ctx context.Context, device string) ([][2]int64, error) {
	table, err := Read(ctx, device)
	if err != nil {
		return nil, err
	}
	gaps, err := table.gaps()
	if err != nil {
		return nil, fmt.Errorf("space of %s beside its partitions: %w", device, err)
	}
	return slices.DeleteFunc(gaps, func(gap [2]int64) bool { return gap[0] == gap[1] }), nil
}

func wipeGaps(ctx context.Context, device string) (err error) {
	table, err := Read(ctx, device)
	if err != nil {
		return err
	}
	gaps, err := table.gaps()
	if err != nil {
		return err
	}
	f, err := os.OpenFile(device, os.O_RDWR|unix.O_EXCL, 0)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	gaps = append(gaps, [2]int64{0, bootCode}, [2]int64{mbrSize, table.SectorSize}) // the latter is empty for 512 bytes
	if err := block.WipeEnds(ctx, f, gaps...); err != nil {
		return err
	}
	after, err := Read(ctx, device)
	if err != nil {
		return err
	}
	if !reflect.DeepEqual(after, table) {
		return errChanged
	}
	return nil
}

// gaps returns the ranges of a disk that neither its table nor a partition takes.
func (t *Table) gaps() ([][2]int64, error) {
	if t.Damaged || t.BackupMisplaced {
		return nil, errors.New("partition table is damaged")
	}
	if t.Unusual { // they would be taken for a gap
		return nil, errors.New("partition table has its entries at an unusual place")
	}
	start, end := t.SectorSize, t.DiskSize
	if t.Scheme == GPT {
		start, end = 2*t.SectorSize+gptArray, t.DiskSize/t.SectorSize*t.SectorSize-t.SectorSize-gptArray
	}
	byStart := func(a, b Partition) int { return cmp.Compare(a.Start, b.Start) }
	var gaps [][2]int64
	for _, p := range slices.SortedFunc(slices.Values(t.Partitions), byStart) {
		if p.Extended() {
			return nil, errors.New("partition table has an extended partition")
		}
		if p.Start > start {
			gaps = append(gaps, [2]int64{start, p.Start})
		}
		start = max(start, p.Start+p.Size)
	}
	return append(gaps, [2]int64{start, max(start, end)}), nil
}
