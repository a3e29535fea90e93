package partition

import (
	"context"
	"errors"
	"maps"
	"slices"

	"ironroot/storage/block"
	"ironroot/storage/sysfs"
)

// Known returns number, start and size of a disk's partitions that the kernel knows. The partitions of a multipath map
// are maps; those that are not a plain range of the disk are omitted.
func Known(ctx context.Context, sys sysfs.Root, device string) ([]Partition, error) {
	return known(ctx, sys, device, openMapper)
}

func known(
	ctx context.Context, sys sysfs.Root, device string, open func() (mapperFile, error),
) (found []Partition, err error) {
	parts, err := block.Partitions(ctx, sys, device)
	if err != nil {
		return nil, err
	}
	if len(parts) > 0 && block.MapUUID(sys, device) != "" {
		err := withMaps(ctx, sys, device, open, func(ctx context.Context, _ string, k kernelView) error {
			extents, err := k.partitions(ctx)
			for _, n := range slices.Sorted(maps.Keys(extents)) {
				if e := extents[n]; e.start >= 0 {
					found = append(found, Partition{Number: n, Start: e.start, Size: e.size})
				}
			}
			return err
		})
		return found, err
	}
	for _, part := range parts {
		found = append(found, Partition{Number: part.Number, Start: part.Start, Size: part.Size})
	}
	return found, nil
}

// Hidden returns the partitions in the table of a disk, as [ReadAll] reads it, that the kernel does not know with the
// same start and size. Partitions are hidden if the primary GPT is damaged: Linux reads the backup only with the
// parameter "gpt". The kernel also ignores partitions after the 255th, and partitions of a GPT that end beyond the end
// of the disk. A partition that starts beyond the end of the disk is not hidden, nor is an extended one.
func Hidden(ctx context.Context, sys sysfs.Root, device string) ([]Partition, error) {
	table, err := ReadAll(ctx, device)
	if errors.Is(err, ErrNoTable) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	shown, err := Known(ctx, sys, device)
	if err != nil {
		return nil, err
	}
	return table.hidden(shown), nil
}

func (t *Table) hidden(shown []Partition) []Partition {
	known := map[extent]bool{}
	for _, p := range shown {
		known[extent{p.Start, p.Size}] = true
	}
	return slices.DeleteFunc(slices.Clone(t.Partitions), func(p Partition) bool {
		size := p.Size
		if t.Scheme == MBR {
			size = min(size, t.DiskSize-p.Start) // Linux truncates it
		}
		return p.Start >= t.DiskSize || p.Extended() || known[extent{p.Start, size}]
	})
}
