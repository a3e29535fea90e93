package erase

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"ironroot/internal/timelimit"
	"ironroot/storage/erase/evidence"
)

const (
	sampleSize = evidence.SampleBytes
	unitSize   = evidence.UnitBytes // bytes that are compared
)

// ErrNotErased is returned if a drive reports that it was erased and still holds data.
var ErrNotErased = errors.New("drive reported success but still holds data")

// samples are blocks of a device before it is erased by a command of its own, at the places of
// [evidence.SampleOffsets].
type samples struct {
	size    int64 // of the device
	seed    evidence.Seed
	written bool // the content is random data; otherwise the previous one of the device
	offsets []int64
	buffer  []byte // aligned for direct I/O
	record  *Recorder
}

// sampling has the rules by which samples of a device are taken.
type sampling struct {
	sequential bool // the device is a zoned disk that must be written sequentially
	prove      bool // the drive may ignore writes, see Options.prove
	record     *Recorder
}

// takeSamples writes random data to the samples, so that they differ from what the device holds after an erase.
// The samples of a device that must be written sequentially are read instead.
func takeSamples(ctx context.Context, f *os.File, size int64, how sampling) (*samples, error) {
	s, err := newSamples(size)
	if err != nil {
		return nil, err
	}
	transfer := func(at []byte, offset int64) error {
		if _, err := rand.Read(at); err != nil {
			return err
		}
		_, err := f.WriteAt(at, offset)
		return err
	}
	verb := "write"
	s.written, s.record = !how.sequential, how.record
	if how.sequential {
		verb, transfer = "read", func(at []byte, offset int64) error { _, err := f.ReadAt(at, offset); return err }
	}
	for i, offset := range s.offsets {
		if err = ctx.Err(); err != nil {
			break
		}
		if err = transfer(s.buffer[i*sampleSize:(i+1)*sampleSize], offset); err != nil {
			err = fmt.Errorf("%s sample at byte %d: %w", verb, offset, err)
			break
		}
		timelimit.Progress(ctx)
	}
	if err == nil {
		err = f.Sync()
	}
	if err == nil && s.written && how.prove {
		err = s.compare(ctx, f)
	}
	if err == nil {
		err = ctx.Err() // the next command erases the device
	}
	if err != nil {
		s.free()
		return nil, err
	}
	return s, nil
}

// compare reads the samples before the erase. A drive that ignores writes would pass the comparison after it.
func (s *samples) compare(ctx context.Context, f *os.File) error {
	return s.read(ctx, f, func(offset int64, sample, found []byte) error {
		if !bytes.Equal(found, sample) {
			return fmt.Errorf("sample at byte %d is not what was written: the drive ignores writes", offset)
		}
		return nil
	})
}

// read reads the device at the places of the samples, and calls do with each sample and what was found there, which is
// valid until do returns.
func (s *samples) read(ctx context.Context, f *os.File, do func(offset int64, sample, found []byte) error) error {
	found := s.buffer[len(s.offsets)*sampleSize:]
	for i, offset := range s.offsets {
		if err := ctx.Err(); err != nil {
			return err
		}
		if _, err := f.ReadAt(found, offset); err != nil {
			return fmt.Errorf("read sample at byte %d: %w", offset, err)
		}
		timelimit.Progress(ctx)
		if err := do(offset, s.buffer[i*sampleSize:(i+1)*sampleSize], found); err != nil {
			return err
		}
	}
	return nil
}

// newSamples chooses the places of the samples on a device of the size.
func newSamples(size int64) (*samples, error) {
	s := &samples{size: size}
	if _, err := rand.Read(s.seed[:]); err != nil {
		return nil, err
	}
	if s.offsets = evidence.SampleOffsets(size, s.seed); len(s.offsets) == 0 {
		return nil, fmt.Errorf("device of %d bytes is too small for samples", size)
	}
	var err error
	s.buffer, err = unix.Mmap(-1, 0, (len(s.offsets)+1)*sampleSize, unix.PROT_READ|unix.PROT_WRITE,
		unix.MAP_ANON|unix.MAP_PRIVATE)
	if err != nil {
		return nil, fmt.Errorf("buffer of %d samples: %w", len(s.offsets), err)
	}
	return s, nil
}

// free releases the buffer.
func (s *samples) free() { _ = unix.Munmap(s.buffer) } // the arguments come from Mmap

// verify reads the samples. The error wraps ErrNotErased if a part of them is unchanged, unless all of its bytes are
// equal: a device that was not written may hold that before and after an erase.
func (s *samples) verify(ctx context.Context, f *os.File) error {
	kept, first := 0, int64(0)
	err := s.read(ctx, f, func(offset int64, sample, found []byte) error {
		if sharesData(sample, found) {
			if kept++; kept == 1 {
				first = offset
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	s.record.change(func(r *Report) { r.Samples = s.evidence(int64(kept)) })
	if kept > 0 {
		return fmt.Errorf("%w: %d of %d samples, the first at byte %d", ErrNotErased, kept, len(s.offsets), first)
	}
	return nil
}

// evidence describes the samples, of which so many have not changed.
func (s *samples) evidence(kept int64) *evidence.Samples {
	e := evidence.Samples{
		Seed: s.seed.String(), Blocks: int64(len(s.offsets)), Bytes: sampleSize, Written: s.written, Unchanged: kept,
	}
	e.Comparable = s.comparable()
	if s.written {
		e.Detection = evidence.SampleDetection(s.size, s.offsets)
	}
	return &e
}

// comparable returns the number of samples of which not all bytes are equal.
func (s *samples) comparable() (count int64) {
	for i := range s.offsets {
		if sample := s.buffer[i*sampleSize : (i+1)*sampleSize]; sharesData(sample, sample) {
			count++
		}
	}
	return count
}

// sharesData reports whether two samples have a part in common whose bytes are not all equal.
func sharesData(before, after []byte) bool {
	for at := 0; at < len(before); at += unitSize {
		unit := before[at : at+unitSize]
		if bytes.Equal(unit, after[at:at+unitSize]) && bytes.Count(unit, unit[:1]) < unitSize {
			return true
		}
	}
	return false
}
