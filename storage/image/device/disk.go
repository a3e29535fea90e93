package device

import (
	"errors"
	"sync/atomic"
)

const (
	// HeadSize is the length in bytes of the beginning of an image that is written last. It covers every place that
	// firmware boots a disk from: MBR, GPT and its entries, BIOS boot loaders behind them.
	HeadSize = 1 << 20
	// EndSize is the length in bytes of the end of a device that is zeroed first, and written last if an image is that
	// long. A backup GPT and the superblocks of md arrays need less.
	EndSize = 1 << 20
	// wipeStep is the number of bytes that Wipe zeroes in one call. If a sector fails, so many remain unchanged.
	wipeStep = 256 << 10
)

// Disk is the device that is written to: a block device, or a file of fixed size. All methods but Close are safe for concurrent use.
type Disk struct {
	Path string // of the device, as it was opened
	Size int64  // bytes

	file    *file
	tail    tail
	touched atomic.Bool // something was written since Wipe
}

// Open opens a device exclusively. The number of content bytes that are written to it is added to written. Errors are
// *WriteError.
func Open(path string, written *atomic.Int64) (*Disk, error) {
	f, err := openFile(path, written)
	if err != nil {
		return nil, err
	}
	// The end of a device of less than two MiB is shorter.
	return &Disk{
		Path: path, Size: f.size, file: f, tail: tail{start: max(HeadSize, f.size-EndSize), size: f.size},
	}, nil
}

// Close releases the device.
func (d *Disk) Close() error { return d.file.close() }

// Touched reports whether something was written since the last Wipe.
func (d *Disk) Touched() bool { return d.touched.Load() }

// Write writes p at off, except for the end of the device, which is kept in memory.
func (d *Disk) Write(p []byte, off int64) error {
	if off+int64(len(p)) > d.Size {
		return &TooSmallError{Device: d.Path, Size: d.Size, Need: off + int64(len(p))}
	}
	d.touched.Store(true)
	if n := max(0, d.tail.start-off); n < int64(len(p)) {
		d.tail.hold(p[n:], off+n)
		p = p[:n]
	}
	return d.file.write(p, off)
}

// WriteCached writes p at off through the page cache. The bytes do not count as content.
func (d *Disk) WriteCached(p []byte, off int64) error {
	d.touched.Store(true)
	return d.file.writeCached(p, off)
}

// Read fills p with what WriteCached wrote at off.
func (d *Disk) Read(p []byte, off int64) error {
	if _, err := d.file.cached.ReadAt(p, off); err != nil {
		return d.file.fail("read back", off, err)
	}
	return nil
}

// ReleaseEnd writes the end of the device, as far as there is content for it.
func (d *Disk) ReleaseEnd() error { return d.tail.release(d.file.write) }

// Wipe zeroes the first MiB and the end of the device, and waits until the zeros have reached the medium. If a part
// cannot be written, the others are zeroed nevertheless.
func (d *Disk) Wipe() error {
	d.tail.drop()
	zeros := NewBuffer(wipeStep)
	var failed []error
	for _, e := range []extent{{0, min(HeadSize, d.Size)}, {max(0, d.Size-EndSize), min(EndSize, d.Size)}} {
		var first error
		for off := e.off; off < e.end(); off += wipeStep {
			if err := d.file.wipe(zeros[:min(wipeStep, e.end()-off)], off); err != nil && first == nil {
				first = d.file.fail("zero", off, err)
			}
		}
		failed = append(failed, first)
	}
	err := errors.Join(append(failed, d.file.sync())...)
	if err == nil {
		d.touched.Store(false)
	}
	return err
}

// Sync waits until everything written has reached the medium.
func (d *Disk) Sync() error { return d.file.sync() }

// Flush is Sync, and drops the kernel's cache of the device, so that the next reader sees the medium.
func (d *Disk) Flush() error {
	if err := d.file.sync(); err != nil {
		return err
	}
	return d.file.dropCache()
}
