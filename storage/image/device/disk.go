package device

import (
	"errors"
	"fmt"
	"io"
	"os"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// disk writes to a block device or to a file of fixed size, and bypasses the page cache if possible.
type disk struct {
	path     string
	size     int64
	isBlock  bool          // a block device, not a regular file
	file     *os.File      // through the page cache; exclusive
	direct   *os.File      // with O_DIRECT; nil if the file system refuses it
	buffered atomic.Bool   // direct is not used
	written  *atomic.Int64 // bytes of content
}

// openDisk opens a device exclusively.
func openDisk(path string, written *atomic.Int64) (*disk, error) {
	fail := func(err error) (*disk, error) {
		return nil, &WriteError{Device: path, Op: "open", Offset: -1, Err: err}
	}
	file, err := os.OpenFile(path, os.O_RDWR|unix.O_EXCL, 0)
	if errors.Is(err, unix.EBUSY) {
		return fail(fmt.Errorf("the device is in use (mounted, or part of an array or a volume): %w", unix.EBUSY))
	} else if err != nil {
		return fail(errors.Unwrap(err))
	}
	d := &disk{path: path, file: file, written: written}
	info, err := file.Stat()
	if err == nil && info.Mode().Type() != os.ModeDevice && !info.Mode().IsRegular() {
		err = fmt.Errorf("neither a block device nor a regular file (%v)", info.Mode().Type())
	}
	if err == nil {
		d.isBlock = info.Mode().Type() == os.ModeDevice
		d.size, err = file.Seek(0, io.SeekEnd)
	}
	if err == nil && d.size == 0 {
		err = errors.New("the device has no medium: its size is 0")
	}
	if err != nil {
		file.Close() //nolint:errcheck // nothing was written
		return fail(err)
	}
	// The second descriptor is for most of the data. Some file systems refuse O_DIRECT.
	if d.direct, err = openDirect(path); err != nil {
		d.direct = nil
		d.buffered.Store(true)
	}
	return d, nil
}

func (d *disk) close() error {
	if d.direct != nil {
		d.direct.Close() //nolint:errcheck // everything was flushed, or has failed before
	}
	return d.file.Close()
}

// fail returns err as a WriteError.
func (d *disk) fail(op string, off int64, err error) error {
	var path *os.PathError
	if errors.As(err, &path) {
		err = path.Err
	}
	return &WriteError{Device: d.path, Op: op, Offset: off, Err: err}
}

// write writes p at off: aligned data with O_DIRECT, the rest through the page cache.
func (d *disk) write(p []byte, off int64) error {
	if whole := len(p) &^ (Align - 1); whole > 0 && off%Align == 0 && isAligned(p) && !d.buffered.Load() {
		_, err := d.direct.WriteAt(p[:whole], off)
		switch {
		case errors.Is(err, unix.EINVAL):
			d.buffered.Store(true)
		case err != nil:
			return d.fail("write", off, err)
		default:
			d.written.Add(int64(whole))
			p, off = p[whole:], off+int64(whole)
		}
	}
	if len(p) == 0 {
		return nil
	}
	if err := d.writeCached(p, off); err != nil {
		return err
	}
	d.written.Add(int64(len(p)))
	return nil
}

// writeCached writes p at off through the page cache. The bytes do not count as content.
func (d *disk) writeCached(p []byte, off int64) error {
	if _, err := d.file.WriteAt(p, off); err != nil {
		return d.fail("write", off, err)
	}
	return nil
}

// wipe writes zeros at off, if possible with O_DIRECT: then an error belongs to this write.
func (d *disk) wipe(zeros []byte, off int64) error {
	if len(zeros)%Align == 0 && off%Align == 0 && !d.buffered.Load() {
		if _, err := d.direct.WriteAt(zeros, off); !errors.Is(err, unix.EINVAL) {
			return err
		}
		d.buffered.Store(true)
	}
	_, err := d.file.WriteAt(zeros, off)
	return err
}

// sync waits until everything written has reached the medium.
func (d *disk) sync() error {
	if err := d.file.Sync(); err != nil {
		return d.fail("sync", -1, err)
	}
	return nil
}

// dropCache drops the kernel's cache of a block device.
func (d *disk) dropCache() error {
	if !d.isBlock {
		return nil
	}
	if err := dropBuffers(d.file); err != nil {
		return d.fail("flush buffers of", -1, err)
	}
	return nil
}
