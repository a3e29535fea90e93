package partition

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"

	blockdev "github.com/siderolabs/go-blockdevice/v2/block"
	"golang.org/x/sys/unix"

	"ironroot/storage/block"
)

// Sync makes the kernel's view of a disk's partitions that of the table on the disk. The kernel reads the table itself
// where it can (BLKRRPART), and what it finds then counts: it knows more kinds of tables. While a partition is in use
// it refuses to, and there are kernels that cannot read a GPT or an MBR: then the partitions that differ are removed and
// added one by one (BLKPG). A partition that is in use and differs is an error. Of multipath maps the kernel makes no
// partitions at all, and there is nothing to do.
func Sync(ctx context.Context, sys block.System, device string) error {
	rescanErr := block.Rescan(ctx, device)
	if rescanErr != nil && !errors.Is(rescanErr, unix.EBUSY) && !errors.Is(rescanErr, unix.EINVAL) {
		return rescanErr
	}
	known, err := kernelPartitions(ctx, sys, device)
	if err != nil {
		return err
	}
	if errors.Is(rescanErr, unix.EINVAL) && len(known) == 0 {
		return nil // a device of which the kernel makes no partitions: a multipath map, a loop device without the flag
	}
	if rescanErr == nil && len(known) > 0 {
		return nil
	}
	table, err := Read(ctx, device)
	if errors.Is(err, ErrNoTable) {
		table = &Table{}
	} else if err != nil {
		return err
	}
	if err := apply(device, table, known); err != nil {
		return fmt.Errorf("partitions of %s: %w", device, err)
	}
	return nil
}

// extent is where a partition lies, in bytes.
type extent struct{ start, size int64 }

func kernelPartitions(ctx context.Context, sys block.System, device string) (map[int]extent, error) {
	parts, err := sys.Partitions(ctx, device)
	if err != nil {
		return nil, err
	}
	known := map[int]extent{}
	for _, part := range parts {
		dir := sys.Sys("class/block", part.Name)
		number, err := attribute(dir, "partition")
		if err != nil {
			return nil, err
		}
		start, err := attribute(dir, "start")
		if err != nil {
			return nil, err
		}
		known[int(number)] = extent{start * 512, part.Size}
	}
	return known, nil
}

func attribute(dir, name string) (int64, error) {
	data, err := os.ReadFile(filepath.Join(dir, name))
	if err != nil {
		return 0, err
	}
	return strconv.ParseInt(string(data[:max(0, len(data)-1)]), 10, 64)
}

func apply(device string, table *Table, known map[int]extent) error {
	wanted := map[int]extent{}
	for _, p := range table.Partitions {
		e := extent{p.Start, p.Size}
		if table.Scheme == MBR && isExtended(p.Type) {
			// The kernel shows two sectors of an extended partition, or one where sectors are larger.
			if have, ok := known[p.Number]; ok && have.start == p.Start {
				e = have
			} else {
				e.size = max(1024, table.SectorSize)
			}
		}
		if p.Start+p.Size > table.DiskSize {
			continue // cut off: the kernel does not offer it either
		}
		wanted[p.Number] = e
	}
	disk, err := blockdev.NewFromPath(device)
	if err != nil {
		return err
	}
	defer disk.Close() //nolint:errcheck // nothing is written through it
	for n, have := range known {
		if want, ok := wanted[n]; ok && want == have {
			delete(wanted, n)
			continue
		}
		if err := disk.KernelPartitionDelete(n); err != nil {
			return fmt.Errorf("remove partition %d: %w", n, err)
		}
	}
	for n, want := range wanted {
		if err := block.AddPartition(device, n, want.start, want.size); err != nil {
			return err
		}
	}
	return nil
}

func isExtended(kind string) bool { return kind == "0x05" || kind == "0x0f" || kind == "0x85" }
