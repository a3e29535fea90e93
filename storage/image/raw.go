package image

import (
	"bytes"
	"cmp"
	"context"
	"hash"
	"io"
	"slices"
	"sync"
	"sync/atomic"

	"ironroot/storage/image/device"
	"ironroot/storage/image/fetch"
	"ironroot/storage/image/pipeline"
)

const (
	// minZeroGrain is the length in bytes of the shortest range of zeros that the device zeroes by itself. To write a
	// shorter one takes no longer.
	minZeroGrain = 512 << 10
	// zeroBatch is the length in bytes at which a range of zeros is zeroed while the image arrives.
	zeroBatch = 64 << 20
	// maxPendingZeros is the number of shorter ranges that wait for zeros next to them. Each is zeroed in one call.
	maxPendingZeros = 4
)

// extent is a range of bytes.
type extent struct{ off, len int64 }

func (e extent) end() int64 { return e.off + e.len }

// rawContent is an image that is copied as it is.
type rawContent struct{}

// openRaw opens an image of a format that is copied.
func openRaw(context.Context, *attempt) (content, error) { return rawContent{}, nil }

// write copies the file.
func (rawContent) write(ctx context.Context, a *attempt) (Report, error) {
	if err := a.requestFile(ctx); err != nil {
		return Report{}, err
	}
	s := a.stream
	if s.Total > a.size {
		return Report{}, &device.TooSmallError{Device: a.path, Size: a.size, Need: s.Total}
	}
	a.begin()
	n, err := io.ReadFull(s, a.head)
	if err != nil && !fetch.AtEnd(err) {
		return Report{}, fetch.Interrupted(err)
	}
	head, end := a.head[:n], int64(n)
	if err := a.recheck(head, nil); err != nil {
		return Report{}, err
	}
	if err := checkDisk(a.url, head, a.options.DiskSectorSize); err != nil {
		return Report{}, err
	}
	a.sum.Write(head) //nolint:errcheck // a hash never fails
	a.end.add(head)
	if n == device.HeadSize {
		if end, err = a.copyRest(ctx, s, a.sum); err != nil {
			return Report{}, fetch.Interrupted(err)
		}
	}
	if err := a.complete(ctx, end); err != nil {
		return Report{}, err
	}
	if err := a.recheck(head, a.end); err != nil {
		return Report{}, err
	}
	if err := a.writeHead(head); err != nil {
		return Report{}, err
	}
	return a.report(a.header.format, end, end), nil
}

// copyRest copies from, a raw image from its second MiB on, and returns the end of the image. sum may be nil.
func (a *attempt) copyRest(ctx context.Context, from pipeline.Source, sum hash.Hash) (int64, error) {
	r := &rawPlacer{ctx: ctx, disk: a.disk, end: &a.end}
	p := &pipeline.Pipeline{
		Source: from, Start: device.HeadSize, Sum: sum, Placer: r, Memory: a.memory,
		Arrived: &a.options.Progress.read, Written: &a.options.Progress.readWritten,
	}
	end, err := p.Run(ctx)
	if err == nil {
		err = r.zero(r.pending)
	}
	return end, err
}

// rawPlacer writes content, and has the device zero long ranges of zeros by itself.
type rawPlacer struct {
	ctx  context.Context
	disk *device.Disk
	end  *ending
	try  sync.Once
	// noPunch is set if the device does not zero by itself. The first try finds out.
	noPunch atomic.Bool

	mu      sync.Mutex
	pending []extent // ranges of zeros, sorted, with gaps between them
}

// Place implements [pipeline.Placer].
func (r *rawPlacer) Place(c *pipeline.Chunk, submit func(func() error) error) error {
	if c.End() > r.disk.Size {
		// This also ends a download that never ends.
		return &device.TooSmallError{Device: r.disk.Path, Size: r.disk.Size, Need: c.End()}
	}
	r.end.add(c.Data)
	data, off := c.Data, c.Off
	return submit(func() error { return r.put(data, off) })
}

// put writes p at off, which is aligned.
func (r *rawPlacer) put(p []byte, off int64) error {
	for len(p) > 0 {
		n, zeros := split(p)
		e := extent{off, int64(n)}
		if zeros {
			r.try.Do(func() { r.punch(e) })
		}
		var err error
		if zeros && !r.noPunch.Load() {
			err = r.zero(r.join(e))
		} else {
			err = r.disk.Write(p[:n], off)
		}
		if err != nil {
			return err
		}
		p, off = p[n:], e.end()
	}
	return nil
}

// join adds e to the pending ranges of zeros, and returns what must be zeroed now.
func (r *rawPlacer) join(e extent) []extent {
	r.mu.Lock()
	defer r.mu.Unlock()
	i, _ := slices.BinarySearchFunc(r.pending, e.off, func(w extent, off int64) int { return cmp.Compare(w.off, off) })
	if i < len(r.pending) && r.pending[i].off == e.end() {
		e.len += r.pending[i].len
		r.pending = slices.Delete(r.pending, i, i+1)
	}
	if i > 0 && r.pending[i-1].end() == e.off {
		i--
		e = extent{r.pending[i].off, r.pending[i].len + e.len}
		r.pending = slices.Delete(r.pending, i, i+1)
	}
	if e.len >= zeroBatch {
		return []extent{e}
	}
	if r.pending = slices.Insert(r.pending, i, e); len(r.pending) <= maxPendingZeros {
		return nil
	}
	first := r.pending[0] // the least likely to grow
	r.pending = slices.Delete(r.pending, 0, 1)
	return []extent{first}
}

// zero zeroes ranges of the device.
func (r *rawPlacer) zero(list []extent) error {
	for _, e := range list {
		if r.punch(e) {
			continue
		}
		if err := r.disk.WriteZeros(r.ctx, e.off, e.len); err != nil {
			return err
		}
	}
	return nil
}

// punch has the device zero e by itself, and reports whether it did.
func (r *rawPlacer) punch(e extent) bool {
	if r.noPunch.Load() {
		return false
	}
	if !r.disk.Punch(e.off, e.len) {
		r.noPunch.Store(true)
		return false
	}
	return true
}

// split returns the length of the beginning of p that is alike: whole grains of zeros, or anything else.
func split(p []byte) (n int, zeros bool) {
	for n < len(p) {
		grain := p[n:min(n+minZeroGrain, len(p))]
		same := len(grain) == minZeroGrain && isZero(grain)
		if n > 0 && same != zeros {
			break
		}
		zeros = same
		n += len(grain)
	}
	return n, zeros
}

// isZero reports whether p consists of zeros only.
func isZero(p []byte) bool {
	return len(p) == 0 || p[0] == 0 && bytes.Equal(p[:len(p)-1], p[1:])
}
