package erase

import (
	"context"
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"ironroot/storage/block"
	"ironroot/storage/partition"
	"ironroot/storage/sysfs"
)

// Exclusive waits for the holders of a device, as [Run] does, opens the device exclusively for direct I/O, and calls
// use, which may overwrite it. If use succeeds, the kernel reads the partition table again.
//
// Errors wrap ErrReadOnly for a read-only device, ErrBusy for a device in use, and ErrZoned for a disk that cannot be
// overwritten. A device that does not support direct I/O is an error.
func Exclusive(
	ctx context.Context, sys sysfs.Root, device block.Device, wait Wait,
	use func(f *os.File, size int64) error,
) error {
	if err := awaitWritable(ctx, sys, device, wait); err != nil {
		return err
	}
	if device.Zoned == "host-managed" {
		return ErrZoned
	}
	if err := partition.Release(ctx, sys, device.Path); err != nil {
		return err
	}
	var f *os.File
	err := wait.until(ctx, sys, device.Path, func() (err error) {
		f, err = os.OpenFile(device.Path, os.O_RDWR|unix.O_EXCL|directIO, 0)
		return err
	})
	if err != nil {
		return err
	}
	size, _, err := block.Geometry(f)
	if err == nil && size == 0 {
		err = fmt.Errorf("%s has no size", device.Path)
	}
	if err == nil {
		err = use(f, size)
	}
	if err := errors.Join(err, f.Close()); err != nil {
		return err
	}
	return forget(ctx, sys, device, wait)
}
