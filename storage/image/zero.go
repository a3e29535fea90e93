package image

import (
	"context"
	"errors"

	"ironroot/storage/block"
)

// zeroGrain is the shortest stretch of zeros in a raw image that is left to the device: less is written as fast.
const zeroGrain = 512 << 10

// extent is a range of bytes.
type extent struct{ off, len int64 }

func (e extent) end() int64 { return e.off + e.len }

// zero makes a range of the device read as zeros: by the device's or the file system's own means where it has them,
// by writing zeros where not.
func (t *target) zero(ctx context.Context, e extent) error {
	if e.end() > t.size {
		return &TooSmallError{Device: t.path, Size: t.size, Need: e.end()}
	}
	t.touched.Store(true)
	for e.len > 0 {
		if err := context.Cause(ctx); err != nil {
			return err
		}
		step := extent{e.off, min(e.len, zeroStep-e.off%zeroStep)}
		// The kernel zeroes whole sectors only; the edges are written.
		inner := extent{off: roundUp(step.off, directAlign)}
		inner.len = step.end()/directAlign*directAlign - inner.off
		if inner.len <= 0 {
			if err := t.writeZeros(ctx, step); err != nil {
				return err
			}
		} else if err := errors.Join(
			t.writeZeros(ctx, extent{step.off, inner.off - step.off}),
			t.zeroAligned(ctx, inner),
			t.writeZeros(ctx, extent{inner.end(), step.end() - inner.end()}),
		); err != nil {
			return err
		}
		e = extent{step.end(), e.len - step.len}
	}
	return nil
}

// put writes p at off, which is aligned. Long stretches of zeros are not sent to a device that makes them by itself.
func (t *target) put(p []byte, off int64) error {
	for len(p) > 0 {
		n, zeros := stretch(p)
		if !zeros || !t.punch(extent{off, int64(n)}) {
			if err := t.writeAt(p[:n], off); err != nil {
				return err
			}
		}
		p, off = p[n:], off+int64(n)
	}
	return nil
}

// stretch returns how much of p is alike: whole grains of zeros, or anything else.
func stretch(p []byte) (n int, zeros bool) {
	for n < len(p) {
		grain := p[n:min(n+zeroGrain, len(p))]
		same := len(grain) == zeroGrain && isZero(grain)
		if n > 0 && same != zeros {
			break
		}
		zeros = same
		n += len(grain)
	}
	return n, zeros
}

// punch has a range of the device read as zeros, if the device guarantees that and needs nothing to be written for it.
func (t *target) punch(e extent) bool {
	if t.unpunched.Load() || e.end() > t.size {
		return false
	}
	t.touched.Store(true)
	err := block.Punch(t.file, e.off, e.len)
	if err != nil {
		t.unpunched.Store(true) // an error of the medium shows when the same range is written
	}
	return err == nil
}

func (t *target) zeroAligned(ctx context.Context, e extent) error {
	err := block.Zero(t.file, e.off, e.len)
	if errors.Is(err, block.ErrNoZero) {
		return t.writeZeros(ctx, e)
	}
	if err != nil {
		return t.fail("zero", e.off, err)
	}
	return nil
}

func (t *target) writeZeros(ctx context.Context, e extent) error {
	if e.len <= 0 {
		return nil
	}
	zeros := alignedBuffer(int(min(e.len, 1<<20)))
	for e.len > 0 {
		if err := context.Cause(ctx); err != nil {
			return err
		}
		n := min(e.len, int64(len(zeros)))
		if err := t.writeAt(zeros[:n], e.off); err != nil {
			return err
		}
		e = extent{e.off + n, e.len - n}
	}
	return nil
}

func roundUp(n, to int64) int64 { return (n + to - 1) / to * to }
