package image

import (
	"cmp"
	"context"
	"hash"
	"slices"
	"sync"
)

const (
	// zeroTogether is how long a stretch of zeros has become when the device is asked for it, and zeroWaiting how many
	// shorter ones may wait to become longer: each is asked for once while the image arrives.
	zeroTogether = 64 << 20
	zeroWaiting  = 4
)

// pipeRaw writes a raw image from its second MiB on and returns where it ended.
func (w *writer) pipeRaw(ctx context.Context, from source, sum hash.Hash) (int64, error) {
	r := &rawPlacer{ctx: ctx, target: w.target}
	end, err := (&pipeline{source: from, start: headSize, sum: sum, place: r.place, memory: w.memory}).run(ctx)
	if err == nil {
		err = r.zero(r.waiting)
	}
	return end, err
}

// rawPlacer writes content, and has the device zero long ranges of zeros by itself.
type rawPlacer struct {
	ctx    context.Context
	target *target
	probe  sync.Once // whether the device does

	mu      sync.Mutex
	waiting []extent // zeros to be made, sorted; none touches another
}

func (r *rawPlacer) place(c *chunk, submit func(func() error) error) error {
	if c.end() > r.target.size {
		// Also the end of a download that does not end.
		return &TooSmallError{Device: r.target.path, Size: r.target.size, Need: c.end()}
	}
	data, off := c.data, c.off
	return submit(func() error { return r.put(data, off) })
}

// put writes p at off, which is aligned.
func (r *rawPlacer) put(p []byte, off int64) error {
	for len(p) > 0 {
		n, zeros := stretch(p)
		e := extent{off, int64(n)}
		if zeros {
			r.probe.Do(func() { r.target.punch(e) })
		}
		var err error
		if zeros && !r.target.unpunched.Load() {
			err = r.zero(r.join(e))
		} else {
			err = r.target.writeAt(p[:n], off)
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
	i, _ := slices.BinarySearchFunc(r.waiting, e.off, func(w extent, off int64) int { return cmp.Compare(w.off, off) })
	if i < len(r.waiting) && r.waiting[i].off == e.end() {
		e.len += r.waiting[i].len
		r.waiting = slices.Delete(r.waiting, i, i+1)
	}
	if i > 0 && r.waiting[i-1].end() == e.off {
		i--
		e = extent{r.waiting[i].off, r.waiting[i].len + e.len}
		r.waiting = slices.Delete(r.waiting, i, i+1)
	}
	if e.len >= zeroTogether {
		return []extent{e}
	}
	if r.waiting = slices.Insert(r.waiting, i, e); len(r.waiting) <= zeroWaiting {
		return nil
	}
	first := r.waiting[0] // it has grown for the longest time
	r.waiting = slices.Delete(r.waiting, 0, 1)
	return []extent{first}
}

// zero zeroes ranges of the device.
func (r *rawPlacer) zero(list []extent) error {
	for _, e := range list {
		if r.target.punch(e) {
			continue
		}
		if err := r.target.writeZeros(r.ctx, e); err != nil {
			return err
		}
	}
	return nil
}
