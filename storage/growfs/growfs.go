// Package growfs enlarges file systems to the size of their device: ext4, XFS and Btrfs. The kernel's drivers do it, on
// a mount that no other process sees (see package mounted).
package growfs

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"

	"ironroot/storage/block"
	"ironroot/storage/mounted"
)

// ErrUnsupported is the cause of an error about a file system that Grow does not support.
var ErrUnsupported = errors.New("unsupported file system")

// driver enlarges one kind of file system.
type driver struct {
	kind string
	// grow enlarges the file system with a root directory to the size of its device in bytes. It returns the new size
	// and the number of bytes that the file system can leave unused at the end of a device.
	grow func(root, device *os.File, deviceSize int64) (size, maxUnused int64, err error)
}

// Grow enlarges the file system of a device, which must not be mounted, to the size of the device, and checks the new
// size. After an error the file system is valid and has its former size or, if the driver stopped in between, one
// between the two.
func Grow(ctx context.Context, device string) error {
	found, err := block.Probe(ctx, device)
	if err != nil {
		return err
	}
	kind := found.Type
	i := slices.IndexFunc(drivers, func(d driver) bool { return d.kind == kind })
	if i < 0 {
		return fmt.Errorf("grow the file system of %s: %w: %q", device, ErrUnsupported, kind)
	}
	if err := drivers[i].run(ctx, device); err != nil {
		return fmt.Errorf("grow the %s file system of %s: %w", kind, device, err)
	}
	return nil
}

func (d driver) run(ctx context.Context, device string) (err error) {
	f, err := os.Open(device)
	if err != nil {
		return err
	}
	defer f.Close() //nolint:errcheck // only read
	deviceSize, _, err := block.Geometry(f)
	if err != nil {
		return err
	}
	fs, err := mounted.Open(ctx, device, true)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, fs.Close()) }()
	root, err := fs.Open(".")
	if err != nil {
		return err
	}
	defer root.Close() //nolint:errcheck // a directory
	size, maxUnused, err := d.grow(root, f, deviceSize)
	if err != nil {
		return err
	}
	if size > deviceSize || size < deviceSize-maxUnused {
		return fmt.Errorf("got file system of %d bytes, want %d", size, deviceSize)
	}
	return nil
}
