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

	blockdev "github.com/siderolabs/go-blockdevice/v2/block"
	"golang.org/x/sys/unix"

	"ironroot/storage/block"
)

// Sync makes the kernel's view of a disk's partitions that of the table on the disk. The kernel reads the table itself
// where it can (BLKRRPART), and what it finds then counts: it knows more kinds of tables. While a partition is in use
// it refuses to, and there are kernels that cannot read a GPT or an MBR: then the partitions that differ are removed
// and added one by one (BLKPG). A partition that is in use and differs is an error. Of a multipath map the kernel
// makes no partitions at all: they are maps of their own, that this package makes.
func Sync(ctx context.Context, sys block.System, device string) error {
	if sys.MapUUID(device) != "" {
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

// Forget makes the kernel drop all partitions it knows of a disk. The table on the disk stays. A partition that is in
// use is an error.
func Forget(ctx context.Context, sys block.System, device string) error {
	if sys.MapUUID(device) != "" {
		return withMaps(ctx, sys, device, openMapper, forgetAll)
	}
	return forgetAll(ctx, device, &plainDisk{sys: sys, device: device})
}

// Release makes a disk free to be opened exclusively, which the partitions of a multipath map prevent, unlike those of
// others: they are dropped, until the next Sync. Other disks are left alone.
func Release(ctx context.Context, sys block.System, device string) error {
	if sys.MapUUID(device) == "" {
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
	sys    block.System
	device string
}

func (d *plainDisk) partitions(ctx context.Context) (map[int]extent, error) {
	parts, err := d.sys.Partitions(ctx, d.device)
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
	disk, err := blockdev.NewFromPath(d.device)
	if err != nil {
		return err
	}
	defer disk.Close() //nolint:errcheck // nothing is written through it
	return disk.KernelPartitionDelete(n)
}

func attribute(dir, name string) (int64, error) {
	data, err := os.ReadFile(filepath.Join(dir, name))
	if err != nil {
		return 0, err
	}
	return strconv.ParseInt(string(data[:max(0, len(data)-1)]), 10, 64)
}

// apply makes the kernel's partitions equal to those of a table. Equal partitions are not touched.
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
			return fmt.Errorf("partitions of %s: remove partition %d: %w", device, n, err)
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
