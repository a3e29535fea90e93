package block

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"ironroot/internal/pause"
)

// Flush writes all cached data of the device to its medium (fsync) and drops the kernel's buffers (BLKFLSBUF), so that
// the next read comes from the medium.
func Flush(ctx context.Context, path string) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	f, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("flush: %w", err)
	}
	defer f.Close() //nolint:errcheck // nothing was written through it
	if err := f.Sync(); err != nil {
		return fmt.Errorf("flush %s: %w", path, err)
	}
	if err := flushBuffers(f); err != nil && !errors.Is(err, unix.ENOTTY) {
		return fmt.Errorf("flush %s: BLKFLSBUF: %w", path, err)
	}
	return nil
}

// Rescan makes the kernel reread the partition table of the disk (BLKRRPART). While a partition is open, the kernel
// returns EBUSY. Rescan then retries for up to two seconds. After that the error wraps unix.EBUSY.
func Rescan(ctx context.Context, path string) error {
	f, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("rescan: %w", err)
	}
	defer f.Close() //nolint:errcheck // nothing was written through it
	err = WhileBusy(ctx, func() error { return readTable(f) })
	if err != nil {
		return fmt.Errorf("rescan %s: BLKRRPART: %w", path, err)
	}
	return nil
}

// WhileBusy calls do until its error does not wrap unix.EBUSY, for up to two seconds. Programs that open a device
// briefly close it within that time.
func WhileBusy(ctx context.Context, do func() error) error {
	const tries = 10
	for try := 1; ; try++ {
		err := do()
		if !errors.Is(err, unix.EBUSY) || try == tries {
			return err
		}
		// The kernel does not report when a device is closed.
		if err := pause.For(ctx, 200*time.Millisecond); err != nil {
			return err
		}
	}
}

// AddPartition adds a partition to the kernel's list (BLKPG_ADD_PARTITION), which works while others are in use. start
// and size are in bytes.
func AddPartition(path string, n int, start, size int64) error {
	f, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("add partition: %w", err)
	}
	defer f.Close() //nolint:errcheck // nothing was written through it
	if err := addPartition(f, n, start, size); err != nil {
		return fmt.Errorf("add partition %d to %s: %w", n, path, err)
	}
	return nil
}

// RemovePartition removes a partition from the kernel's list (BLKPG_DEL_PARTITION). The error wraps unix.EBUSY while
// the partition is in use.
func RemovePartition(path string, n int) error {
	f, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("remove partition: %w", err)
	}
	defer f.Close() //nolint:errcheck // nothing was written through it
	if err := removePartition(f, n); err != nil {
		return fmt.Errorf("remove partition %d from %s: %w", n, path, err)
	}
	return nil
}

// Geometry returns the size and the logical sector size of an open device in bytes. The sector size of a regular file
// is 0.
func Geometry(f *os.File) (size, sector int64, err error) {
	info, err := f.Stat()
	if err != nil {
		return 0, 0, err
	}
	if info.Mode().IsRegular() {
		return info.Size(), 0, nil
	}
	if size, err = deviceSize(f); err != nil {
		return 0, 0, fmt.Errorf("size of %s: %w", f.Name(), err)
	}
	if sector, err = sectorSize(f); err != nil {
		return 0, 0, fmt.Errorf("sector size of %s: %w", f.Name(), err)
	}
	return size, sector, nil
}
