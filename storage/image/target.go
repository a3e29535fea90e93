package image

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

const (
	// headSize is how much of an image is held back until everything else is known to be right. It covers every place
	// that firmware boots a disk from: MBR, GPT and its entries, BIOS boot loaders behind them.
	headSize = 1 << 20
	// endSize is how much of the end of the device is zeroed beforehand, and held back where an image is that long: more
	// than a backup GPT and the superblocks of md arrays need.
	endSize = 1 << 20
	// wipeStep is how much of these two is zeroed at once, and left as it was where a sector of it fails.
	wipeStep = 256 << 10
	// directAlign suits O_DIRECT on every device: the offsets, lengths and addresses of its writes are multiples of it.
	directAlign = 4096
	// zeroStep is how much the kernel is asked to zero in one call, which cannot be interrupted.
	zeroStep = 256 << 20
)

// target is the device that is written to. All methods but close may be called concurrently.
type target struct {
	path     string
	size     int64
	block    bool     // a block device, not a regular file
	file     *os.File // through the page cache; holds the device exclusively
	direct   *os.File // past the page cache; nil where it is refused
	buffered atomic.Bool
	// unpunched is set when the device does not zero by itself.
	unpunched atomic.Bool
	written   *atomic.Int64
	touched   atomic.Bool // something has been written since wipe

	mu     sync.Mutex
	end    []byte // content of the last endSize bytes that is held back; nil as long as there is none
	within extent // of the device: what of it there is, with the gaps between
}

// openTarget takes exclusive hold of a device.
func openTarget(path string, written *atomic.Int64) (*target, error) {
	fail := func(err error) (*target, error) {
		return nil, &WriteError{Device: path, Op: "open", Offset: -1, Err: err}
	}
	file, err := os.OpenFile(path, os.O_RDWR|unix.O_EXCL, 0)
	if errors.Is(err, unix.EBUSY) {
		return fail(fmt.Errorf("the device is in use (mounted, or part of an array or a volume): %w", unix.EBUSY))
	} else if err != nil {
		return fail(errors.Unwrap(err))
	}
	t := &target{path: path, file: file, written: written}
	info, err := file.Stat()
	if err == nil && info.Mode().Type() != os.ModeDevice && !info.Mode().IsRegular() {
		err = fmt.Errorf("neither a block device nor a regular file (%v)", info.Mode().Type())
	}
	if err == nil {
		t.block = info.Mode().Type() == os.ModeDevice
		t.size, err = file.Seek(0, io.SeekEnd)
	}
	if err == nil && t.size == 0 {
		err = errors.New("the device has no medium: its size is 0")
	}
	if err != nil {
		file.Close() //nolint:errcheck // nothing was written
		return fail(err)
	}
	// A second descriptor for the bulk of the data. Some file systems refuse O_DIRECT; then all goes through the first.
	if t.direct, err = os.OpenFile(path, os.O_WRONLY|unix.O_DIRECT, 0); err != nil {
		t.direct = nil
		t.buffered.Store(true)
	}
	return t, nil
}

func (t *target) close() error {
	if t.direct != nil {
		t.direct.Close() //nolint:errcheck // everything was flushed, or has failed before
	}
	return t.file.Close()
}

func (t *target) fail(op string, off int64, err error) error {
	var path *os.PathError
	if errors.As(err, &path) {
		err = path.Err
	}
	return &WriteError{Device: t.path, Op: op, Offset: off, Err: err}
}

// writeAt writes the whole of p at off, but for what belongs to the end of the device: that is held back.
func (t *target) writeAt(p []byte, off int64) error {
	if off+int64(len(p)) > t.size {
		return &TooSmallError{Device: t.path, Size: t.size, Need: off + int64(len(p))}
	}
	t.touched.Store(true)
	if n := max(0, t.endStart()-off); n < int64(len(p)) {
		t.hold(p[n:], off+n)
		p = p[:n]
	}
	return t.put(p, off)
}

// endStart is where the end of the device begins that is held back. A device of two MiB or less has a shorter one.
func (t *target) endStart() int64 { return max(headSize, t.size-endSize) }

// hold keeps content of the end of the device in memory: firmware would look there for a backup GPT. The device has
// zeros there meanwhile.
func (t *target) hold(p []byte, off int64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	start := t.endStart()
	if t.end == nil {
		t.end = alignedBuffer(int(t.size - start))
		t.within = extent{off, 0}
	}
	copy(t.end[off-start:], p)
	from, to := min(off, t.within.off), max(off+int64(len(p)), t.within.end())
	t.within = extent{from, to - from}
}

// release writes what was held back.
func (t *target) release() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.end == nil {
		return nil
	}
	start := t.endStart()
	err := t.put(t.end[t.within.off-start:t.within.end()-start], t.within.off)
	t.end = nil
	return err
}

// put writes the whole of p at off: what is aligned past the page cache, the rest through it.
func (t *target) put(p []byte, off int64) error {
	if whole := len(p) &^ (directAlign - 1); whole > 0 && off%directAlign == 0 && isAligned(p) && !t.buffered.Load() {
		_, err := t.direct.WriteAt(p[:whole], off)
		switch {
		case errors.Is(err, unix.EINVAL):
			t.buffered.Store(true)
		case err != nil:
			return t.fail("write", off, err)
		default:
			t.written.Add(int64(whole))
			p, off = p[whole:], off+int64(whole)
		}
	}
	if len(p) == 0 {
		return nil
	}
	if err := t.cache(p, off); err != nil {
		return err
	}
	t.written.Add(int64(len(p)))
	return nil
}

// cache writes p at off through the page cache. It does not count as content.
func (t *target) cache(p []byte, off int64) error {
	t.touched.Store(true)
	if _, err := t.file.WriteAt(p, off); err != nil {
		return t.fail("write", off, err)
	}
	return nil
}

// wipe zeroes the places of the partition tables and makes sure the zeros have reached the device. Where one place
// cannot be written, the others are all the same.
func (t *target) wipe() error {
	t.mu.Lock()
	t.end = nil
	t.mu.Unlock()
	zeros := alignedBuffer(wipeStep)
	var failed []error
	for _, e := range []extent{{0, min(headSize, t.size)}, {max(0, t.size-endSize), min(endSize, t.size)}} {
		var first error
		for off := e.off; off < e.end(); off += wipeStep {
			if err := t.wipeAt(zeros[:min(wipeStep, e.end()-off)], off); err != nil && first == nil {
				first = t.fail("zero", off, err)
			}
		}
		failed = append(failed, first)
	}
	err := errors.Join(append(failed, t.sync())...)
	if err == nil {
		t.touched.Store(false)
	}
	return err
}

// wipeAt writes zeros past the page cache, where an error has a place, or else through it.
func (t *target) wipeAt(zeros []byte, off int64) error {
	if len(zeros)%directAlign == 0 && off%directAlign == 0 && !t.buffered.Load() {
		if _, err := t.direct.WriteAt(zeros, off); !errors.Is(err, unix.EINVAL) {
			return err
		}
		t.buffered.Store(true)
	}
	_, err := t.file.WriteAt(zeros, off)
	return err
}

// sync waits until everything written has reached the medium.
func (t *target) sync() error {
	if err := t.file.Sync(); err != nil {
		return t.fail("sync", -1, err)
	}
	return nil
}

// flush is sync, and drops what the kernel remembers of the device, so that the next reader sees the medium.
func (t *target) flush() error {
	if err := t.sync(); err != nil {
		return err
	}
	if !t.block {
		return nil
	}
	if err := unix.IoctlSetInt(int(t.file.Fd()), unix.BLKFLSBUF, 0); err != nil {
		return t.fail("flush buffers of", -1, err)
	}
	return nil
}

// isAligned reports whether O_DIRECT takes writes from p.
func isAligned(p []byte) bool { return addressOf(p)%directAlign == 0 }

// alignedBuffer returns n bytes that O_DIRECT takes.
func alignedBuffer(n int) []byte { return alignedTo(directAlign, n) }

// hugeBuffer returns n bytes that O_DIRECT takes, on huge pages where there are some: they are filled, hashed and handed
// to the device with less walking of page tables.
func hugeBuffer(n int) []byte {
	const hugePage = 2 << 20
	b := alignedTo(hugePage, n)
	_ = unix.Madvise(b, unix.MADV_HUGEPAGE) // small pages do as well
	return b
}

func alignedTo(align, n int) []byte {
	b := make([]byte, n+align)
	skip := int(-addressOf(b) % uintptr(align))
	return b[skip : skip+n : skip+n]
}

// isZero reports whether p consists of zeros only.
func isZero(p []byte) bool {
	return len(p) == 0 || p[0] == 0 && bytes.Equal(p[:len(p)-1], p[1:])
}
