package device

import (
	"context"
	"errors"

	"ironroot/storage/block"
)

// zeroStep is the number of bytes that the kernel zeroes in one call, which cannot be interrupted.
const zeroStep = 256 << 20

// extent is a range of bytes.
type extent struct{ off, len int64 }

func (e extent) end() int64 { return e.off + e.len }

// Zero makes n bytes at off read as zeros. The device or the file system does it if it can; otherwise zeros are
// written.
func (d *Disk) Zero(ctx context.Context, off, n int64) error {
	e := extent{off, n}
	if e.end() > d.Size {
		return &TooSmallError{Device: d.Path, Size: d.Size, Need: e.end()}
	}
	d.touched.Store(true)
	for e.len > 0 {
		if err := context.Cause(ctx); err != nil {
			return err
		}
		step := extent{e.off, min(e.len, zeroStep-e.off%zeroStep)}
		// The kernel zeroes whole sectors only. The edges are written.
		inner := extent{off: roundUp(step.off, Align)}
		inner.len = step.end()/Align*Align - inner.off
		if inner.len <= 0 {
			if err := d.WriteZeros(ctx, step.off, step.len); err != nil {
				return err
			}
		} else if err := errors.Join(
			d.WriteZeros(ctx, step.off, inner.off-step.off),
			d.zeroSectors(ctx, inner),
			d.WriteZeros(ctx, inner.end(), step.end()-inner.end()),
		); err != nil {
			return err
		}
		e = extent{step.end(), e.len - step.len}
	}
	return nil
}

// zeroSectors has the kernel zero whole sectors, and writes zeros where it cannot.
func (d *Disk) zeroSectors(ctx context.Context, e extent) error {
	err := block.Zero(d.file.cached, e.off, e.len)
	if errors.Is(err, block.ErrNoZero) {
		return d.WriteZeros(ctx, e.off, e.len)
	}
	if err != nil {
		return d.file.fail("zero", e.off, err)
	}
	return nil
}

// Punch makes n bytes at off read as zeros, if the device guarantees that without writing. It reports whether it did.
// An error of the medium shows when the range is written.
func (d *Disk) Punch(off, n int64) bool {
	if off+n > d.Size {
		return false
	}
	d.touched.Store(true)
	return block.Punch(d.file.cached, off, n) == nil
}

// WriteZeros writes n zeros at off.
func (d *Disk) WriteZeros(ctx context.Context, off, n int64) error {
	if n <= 0 {
		return nil
	}
	zeros := NewBuffer(int(min(n, 1<<20)))
	for n > 0 {
		if err := context.Cause(ctx); err != nil {
			return err
		}
		step := min(n, int64(len(zeros)))
		if err := d.Write(zeros[:step], off); err != nil {
			return err
		}
		off, n = off+step, n-step
	}
	return nil
}
