package device

import (
	"errors"
	"fmt"
	"io"
	"os"
	"sync/atomic"

	"golang.org/x/sys/unix"
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

// Disk is the device that is written to: a block device, or a file of fixed size. All methods but Close are safe for
// concurrent use.
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

// file writes to a block device or to a file of fixed size, and bypasses the page cache if possible.
type file struct {
	path     string
	size     int64
	isBlock  bool          // a block device, not a regular file
	cached   *os.File      // through the page cache; exclusive
	direct   *os.File      // with O_DIRECT; nil if the file system refuses it
	buffered atomic.Bool   // direct is not used
	written  *atomic.Int64 // bytes of content
}

// openFile opens a device exclusively.
func openFile(path string, written *atomic.Int64) (*file, error) {
	fail := func(err error) (*file, error) {
		return nil, &WriteError{Device: path, Op: "open", Offset: -1, Err: err}
	}
	cached, err := os.OpenFile(path, os.O_RDWR|unix.O_EXCL, 0)
	if errors.Is(err, unix.EBUSY) {
		return fail(fmt.Errorf("the device is in use (mounted, or part of an array or a volume): %w", unix.EBUSY))
	} else if err != nil {
		return fail(errors.Unwrap(err))
	}
	f := &file{path: path, cached: cached, written: written}
	info, err := cached.Stat()
	if err == nil && info.Mode().Type() != os.ModeDevice && !info.Mode().IsRegular() {
		err = fmt.Errorf("neither a block device nor a regular file (%v)", info.Mode().Type())
	}
	if err == nil {
		f.isBlock = info.Mode().Type() == os.ModeDevice
		f.size, err = cached.Seek(0, io.SeekEnd)
	}
	if err == nil && f.size == 0 {
		err = errors.New("the device has no medium: its size is 0")
	}
	if err != nil {
		cached.Close() //nolint:errcheck // nothing was written
		return fail(err)
	}
	// The second descriptor is for most of the data. Some file systems refuse O_DIRECT.
	if f.direct, err = openDirect(path); err != nil {
		f.direct = nil
		f.buffered.Store(true)
	}
	return f, nil
}

func (f *file) close() error {
	if f.direct != nil {
		f.direct.Close() //nolint:errcheck // everything was flushed, or has failed before
	}
	return f.cached.Close()
}

// fail returns err as a WriteError.
func (f *file) fail(op string, off int64, err error) error {
	var path *os.PathError
	if errors.As(err, &path) {
		err = path.Err
	}
	return &WriteError{Device: f.path, Op: op, Offset: off, Err: err}
}

// write writes p at off: aligned data with O_DIRECT, the rest through the page cache.
func (f *file) write(p []byte, off int64) error {
	if whole := len(p) &^ (Align - 1); whole > 0 && off%Align == 0 && isAligned(p) && !f.buffered.Load() {
		_, err := f.direct.WriteAt(p[:whole], off)
		switch {
		case errors.Is(err, unix.EINVAL):
			f.buffered.Store(true)
		case err != nil:
			return f.fail("write", off, err)
		default:
			f.written.Add(int64(whole))
			p, off = p[whole:], off+int64(whole)
		}
	}
	if len(p) == 0 {
		return nil
	}
	if err := f.writeCached(p, off); err != nil {
		return err
	}
	f.written.Add(int64(len(p)))
	return nil
}

// writeCached writes p at off through the page cache. The bytes do not count as content.
func (f *file) writeCached(p []byte, off int64) error {
	if _, err := f.cached.WriteAt(p, off); err != nil {
		return f.fail("write", off, err)
	}
	return nil
}

// wipe writes zeros at off, if possible with O_DIRECT: then an error belongs to this write.
func (f *file) wipe(zeros []byte, off int64) error {
	if len(zeros)%Align == 0 && off%Align == 0 && !f.buffered.Load() {
		if _, err := f.direct.WriteAt(zeros, off); !errors.Is(err, unix.EINVAL) {
			return err
		}
		f.buffered.Store(true)
	}
	_, err := f.cached.WriteAt(zeros, off)
	return err
}

// sync waits until everything written has reached the medium.
func (f *file) sync() error {
	if err := f.cached.Sync(); err != nil {
		return f.fail("sync", -1, err)
	}
	return nil
}

// dropCache drops the kernel's cache of a block device.
func (f *file) dropCache() error {
	if !f.isBlock {
		return nil
	}
	if err := dropBuffers(f.cached); err != nil {
		return f.fail("flush buffers of", -1, err)
	}
	return nil
}
