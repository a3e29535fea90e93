package block

import (
	"context"
	"errors"
)

// Disks lists the machine's disks sorted by kernel name: devices of type disk, RAID arrays and multipath maps that
// have a size. Floppies, RAM disks, optical drives, loop devices, partitions, logical volumes, encrypted mappings and
// the paths of a multipath map are left out.
func (s System) Disks(ctx context.Context) ([]Device, error) {
	return nil, errors.New("block: not yet")
}

// Partitions lists the partitions the kernel knows of disk (a kernel name or device path), in the order of their
// numbers.
func (s System) Partitions(ctx context.Context, disk string) ([]Device, error) {
	return nil, errors.New("block: not yet")
}

// WaitDisks lists the disks, and lists them again after every change the kernel reports, until enough accepts the
// list or the context ends. It returns the last list in either case, with the context's error in the second.
func (s System) WaitDisks(ctx context.Context, enough func([]Device) bool) ([]Device, error) {
	return nil, errors.New("block: not yet")
}

// WaitPartition waits until the kernel knows partition n of disk and its device node exists, and returns the node's
// path.
func (s System) WaitPartition(ctx context.Context, disk string, n int) (string, error) {
	return "", errors.New("block: not yet")
}

// Flush writes everything cached for the device to its medium (fsync) and drops the kernel's buffers (BLKFLSBUF).
func Flush(ctx context.Context, path string) error { return errors.New("block: not yet") }

// Rescan makes the kernel read the partition table of the disk again.
func Rescan(ctx context.Context, path string) error { return errors.New("block: not yet") }
