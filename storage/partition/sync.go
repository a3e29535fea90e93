package partition

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"

	"golang.org/x/sys/unix"

	"ironroot/storage/block"
	"ironroot/storage/sysfs"
)

// Sync updates the kernel's partitions of a disk from the table on the disk. If possible, the kernel reads the table
// itself (BLKRRPART), and its result counts, because it knows more kinds of tables. This fails while a partition is in
// use, and with kernels that cannot read a GPT or an MBR. Then Sync removes and adds the partitions that differ
// (BLKPG). A partition that is in use and differs is an error. The kernel creates no partitions of a multipath map:
// Sync creates a map for each.
func Sync(ctx context.Context, sys sysfs.Root, device string) error {
	if block.MapUUID(sys, device) != "" {
		return withMaps(ctx, sys, device, openMapper, syncTable)
	}
	rescanErr := block.Rescan(ctx, device)
	if rescanErr != nil && !errors.Is(rescanErr, unix.EBUSY) && !errors.Is(rescanErr, unix.EINVAL) {
		return rescanErr
	}
	d := &plainDisk{sys: sys, device: device}
	known, err := d.partitions(ctx)
	if err != nil {
		return err
	}
	if errors.Is(rescanErr, unix.EINVAL) && len(known) == 0 {
		return nil // a device without partitions in the kernel, such as a loop device without LO_FLAGS_PARTSCAN
	}
	if rescanErr == nil && len(known) > 0 {
		return nil
	}
	return syncTable(ctx, device, d)
}

// Forget makes the kernel drop all its partitions of a disk. The table on the disk is not changed. A partition that is
// in use is an error.
func Forget(ctx context.Context, sys sysfs.Root, device string) error {
	if block.MapUUID(sys, device) != "" {
		return withMaps(ctx, sys, device, openMapper, forgetAll)
	}
	return forgetAll(ctx, device, &plainDisk{sys: sys, device: device})
}

// Release makes it possible to open a disk exclusively. The partitions of a multipath map prevent that, so they are
// dropped until the next Sync. Other disks are not changed.
func Release(ctx context.Context, sys sysfs.Root, device string) error {
	if block.MapUUID(sys, device) == "" {
		return nil
	}
	return Forget(ctx, sys, device)
}

// syncTable updates the kernel's partitions one by one.
func syncTable(ctx context.Context, device string, k kernelView) error {
	table, err := Read(ctx, device)
	if errors.Is(err, ErrNoTable) {
		table = &Table{}
	} else if err != nil {
		return err
	}
	return apply(ctx, device, table, k)
}

func forgetAll(ctx context.Context, device string, k kernelView) error {
	return apply(ctx, device, &Table{}, k)
}

// extent is a range of bytes on a disk.
type extent struct{ start, size int64 }

// kernelView provides the kernel's partitions of a disk.
type kernelView interface {
	partitions(ctx context.Context) (map[int]extent, error)
	add(n int, e extent) error
	remove(ctx context.Context, n int) error
}

// plainDisk is a disk whose partitions the kernel creates (BLKPG).
type plainDisk struct {
	sys    sysfs.Root
	device string
}

func (d *plainDisk) partitions(ctx context.Context) (map[int]extent, error) {
	parts, err := block.Partitions(ctx, d.sys, d.device)
	if err != nil {
		return nil, err
	}
	known := map[int]extent{}
	for _, part := range parts {
		start, err := attribute(d.sys.Sys("class/block", part.Name), "start")
		if err != nil {
			return nil, err
		}
		known[part.Number] = extent{start * 512, part.Size}
	}
	return known, nil
}

func (d *plainDisk) add(n int, e extent) error {
	return block.AddPartition(d.device, n, e.start, e.size)
}

func (d *plainDisk) remove(_ context.Context, n int) error {
	return block.RemovePartition(d.device, n)
}

func attribute(dir, name string) (int64, error) {
	data, err := os.ReadFile(filepath.Join(dir, name))
	if err != nil {
		return 0, err
	}
	return strconv.ParseInt(string(data[:max(0, len(data)-1)]), 10, 64)
}

// apply makes the kernel's partitions equal to a table's. Equal partitions are not touched.
func apply(ctx context.Context, device string, table *Table, k kernelView) error {
	known, err := k.partitions(ctx)
	if err != nil {
		return err
	}
	wanted := map[int]extent{}
	for _, p := range table.Partitions {
		e := extent{p.Start, p.Size}
		if table.Scheme == MBR && isExtended(p.Type) {
			// The kernel's size of an extended partition is two sectors, or one if sectors are larger.
			if have, ok := known[p.Number]; ok && have.start == p.Start {
				e = have
			} else {
				e.size = max(1024, table.SectorSize)
			}
		}
		if p.Start+p.Size > table.DiskSize {
			continue // truncated: the kernel does not create it either
		}
		wanted[p.Number] = e
	}
	for n, have := range known {
		if want, ok := wanted[n]; ok && want == have {
			delete(wanted, n)
			continue
		}
		if err := k.remove(ctx, n); err != nil {
			return fmt.Errorf("partitions of %s: %w", device, err)
		}
	}
	for _, n := range slices.Sorted(maps.Keys(wanted)) {
		if err := k.add(n, wanted[n]); err != nil {
			return fmt.Errorf("partitions of %s: %w", device, err)
		}
	}
	return nil
}

func isExtended(kind string) bool { return kind == "0x05" || kind == "0x0f" || kind == "0x85" }
