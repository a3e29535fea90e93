package mkfs

import (
	"context"
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"ironroot/storage/block"
)

const (
	// margin is the number of bytes at both ends of a device that are zeroed first. They contain the signatures of
	// file systems, arrays and volumes.
	margin = 1 << 20
	// zeroStep is the number of bytes that the kernel zeroes in one call, which cannot be interrupted.
	zeroStep = 256 << 20
)

// device is the block device or file on which a file system is made.
type device struct {
	file   *os.File
	size   int64 // bytes
	sector int64 // bytes
}

// openDevice opens a device exclusively. A file counts as a device with sectors of 512 bytes.
func openDevice(path string) (*device, error) {
	f, err := os.OpenFile(path, os.O_RDWR|unix.O_EXCL, 0)
	if errors.Is(err, unix.EBUSY) {
		return nil, fmt.Errorf("the device is in use (mounted, or part of an array or a volume): %w", unix.EBUSY)
	} else if err != nil {
		return nil, err
	}
	d := &device{file: f}
	if d.size, d.sector, err = block.Geometry(f); err != nil {
		f.Close() //nolint:errcheck // nothing was written
		return nil, err
	}
	d.sector = max(d.sector, 512)
	return d, nil
}

func (d *device) close() error { return d.file.Close() }

// WriteAt writes all of p.
func (d *device) WriteAt(p []byte, off int64) (int, error) {
	if off < 0 || off+int64(len(p)) > d.size {
		return 0, fmt.Errorf("write %d bytes at byte %d of a device of %d", len(p), off, d.size)
	}
	return d.file.WriteAt(p, off)
}

func (d *device) write(p []byte, off int64) error {
	_, err := d.WriteAt(p, off)
	return err
}

// sync waits until all writes have reached the medium.
func (d *device) sync() error { return d.file.Sync() }

// finish writes the signature of the file system after all other writes have reached the medium.
func (d *device) finish(p []byte, off int64) error {
	if err := d.sync(); err != nil {
		return err
	}
	if err := d.write(p, off); err != nil {
		return err
	}
	return d.sync()
}

// clear zeroes both ends of the device, so that no old signature remains.
func (d *device) clear(ctx context.Context) error {
	head := min(margin, d.size)
	tail := max(head, d.size-margin)
	return errors.Join(d.Zero(ctx, 0, head), d.Zero(ctx, tail, min(margin, d.size-head)), d.sync())
}

// Zero makes a range of the device read as zeros, by a command of the device if it has one, otherwise by writing.
func (d *device) Zero(ctx context.Context, off, length int64) error {
	for length > 0 {
		if err := context.Cause(ctx); err != nil {
			return err
		}
		n := min(length, zeroStep)
		err := block.Zero(d.file, off, n)
		if errors.Is(err, block.ErrNoZero) {
			n = min(n, margin)
			err = d.write(make([]byte, n), off)
		}
		if err != nil {
			return fmt.Errorf("zero %d bytes at byte %d: %w", n, off, err)
		}
		off, length = off+n, length-n
	}
	return nil
}
