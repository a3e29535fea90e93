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

// Target is the device that is written to. All methods but Close are safe for concurrent use.
type Target struct {
	Path string // of the device, as it was opened
	Size int64  // bytes

	disk    *disk
	tail    tail
	touched atomic.Bool // something was written since Wipe
}

// Open opens a device exclusively. The number of content bytes that are written to it is added to written. Errors are
// *WriteError.
func Open(path string, written *atomic.Int64) (*Target, error) {
	d, err := openDisk(path, written)
	if err != nil {
		return nil, err
	}
	// The end of a device of less than two MiB is shorter.
	return &Target{
		Path: path, Size: d.size, disk: d, tail: tail{start: max(HeadSize, d.size-EndSize), size: d.size},
	}, nil
}

// Close releases the device.
func (t *Target) Close() error { return t.disk.close() }

// Touched reports whether something was written since the last Wipe.
func (t *Target) Touched() bool { return t.touched.Load() }

// Write writes p at off, except for the end of the device, which is kept in memory.
func (t *Target) Write(p []byte, off int64) error {
	if off+int64(len(p)) > t.Size {
		return &TooSmallError{Device: t.Path, Size: t.Size, Need: off + int64(len(p))}
	}
	t.touched.Store(true)
	if n := max(0, t.tail.start-off); n < int64(len(p)) {
		t.tail.hold(p[n:], off+n)
		p = p[:n]
	}
	return t.disk.write(p, off)
}

// WriteCached writes p at off through the page cache. The bytes do not count as content.
func (t *Target) WriteCached(p []byte, off int64) error {
	t.touched.Store(true)
	return t.disk.writeCached(p, off)
}

// Read fills p with what WriteCached wrote at off.
func (t *Target) Read(p []byte, off int64) error {
	if _, err := t.disk.file.ReadAt(p, off); err != nil {
		return t.disk.fail("read back", off, err)
	}
	return nil
}

// ReleaseEnd writes the end of the device, as far as there is content for it.
func (t *Target) ReleaseEnd() error { return t.tail.release(t.disk.write) }

// Wipe zeroes the first MiB and the end of the device, and waits until the zeros have reached the medium. If a part
// cannot be written, the others are zeroed nevertheless.
func (t *Target) Wipe() error {
	t.tail.drop()
	zeros := NewBuffer(wipeStep)
	var failed []error
	for _, e := range []extent{{0, min(HeadSize, t.Size)}, {max(0, t.Size-EndSize), min(EndSize, t.Size)}} {
		var first error
		for off := e.off; off < e.end(); off += wipeStep {
			if err := t.disk.wipe(zeros[:min(wipeStep, e.end()-off)], off); err != nil && first == nil {
				first = t.disk.fail("zero", off, err)
			}
		}
		failed = append(failed, first)
	}
	err := errors.Join(append(failed, t.disk.sync())...)
	if err == nil {
		t.touched.Store(false)
	}
	return err
}

// Sync waits until everything written has reached the medium.
func (t *Target) Sync() error { return t.disk.sync() }

// Flush is Sync, and drops the kernel's cache of the device, so that the next reader sees the medium.
func (t *Target) Flush() error {
	if err := t.disk.sync(); err != nil {
		return err
	}
	return t.disk.dropCache()
}
