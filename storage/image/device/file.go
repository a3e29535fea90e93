package device

import (
	"errors"
	"fmt"
	"io"
	"os"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

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
