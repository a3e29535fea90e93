package erase

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"math/big"
	"os"

	"golang.org/x/sys/unix"
)

const (
	sampleSize  = 4096 // bytes
	sampleCount = 256
	unitSize    = 512 // bytes that are compared
)

// ErrNotErased is returned if a drive reports that it was erased and still holds data.
var ErrNotErased = errors.New("drive reported success but still holds data")

// samples are blocks of a device before it is erased by a command of its own. The device is divided into parts of equal
// size with one block each at a random place, except that the first and the last block of the device are taken. So one
// of the blocks is in any range of 2/256 of the device and two blocks.
type samples struct {
	offsets []int64
	buffer  []byte // aligned for direct I/O
}

// plantSamples writes random data to the samples, so that they differ from whatever the device holds after an erase.
// The samples of a device that must be written sequentially are read instead.
func plantSamples(ctx context.Context, f *os.File, size int64, sequential bool) (*samples, error) {
	s, err := newSamples(size)
	if err != nil {
		return nil, err
	}
	plant := func(at []byte, offset int64) error {
		if _, err := rand.Read(at); err != nil {
			return err
		}
		_, err := f.WriteAt(at, offset)
		return err
	}
	verb := "write"
	if sequential {
		verb, plant = "read", func(at []byte, offset int64) error { _, err := f.ReadAt(at, offset); return err }
	}
	for i, offset := range s.offsets {
		if err = ctx.Err(); err != nil {
			break
		}
		if err = plant(s.buffer[i*sampleSize:(i+1)*sampleSize], offset); err != nil {
			err = fmt.Errorf("%s sample at byte %d: %w", verb, offset, err)
			break
		}
		ReportProgress(ctx)
	}
	if err == nil {
		err = f.Sync()
	}
	if err != nil {
		return nil, errors.Join(err, s.free())
	}
	return s, nil
}

// newSamples chooses the places of the samples on a device of the size.
func newSamples(size int64) (*samples, error) {
	count := min(sampleCount, size/sampleSize)
	if count == 0 {
		return nil, fmt.Errorf("device of %d bytes is too small for samples", size)
	}
	buffer, err := unix.Mmap(-1, 0, int(count+1)*sampleSize, unix.PROT_READ|unix.PROT_WRITE,
		unix.MAP_ANON|unix.MAP_PRIVATE)
	if err != nil {
		return nil, fmt.Errorf("buffer of %d samples: %w", count, err)
	}
	s := &samples{buffer: buffer}
	blocks := size / sampleSize
	for i := range count {
		first, next := blocks*i/count, blocks*(i+1)/count
		random, err := rand.Int(rand.Reader, big.NewInt(next-first))
		if err != nil {
			return nil, errors.Join(err, s.free())
		}
		s.offsets = append(s.offsets, (first+random.Int64())*sampleSize)
	}
	s.offsets[0] = 0
	s.offsets[count-1] = size - sampleSize
	return s, nil
}

func (s *samples) free() error { return unix.Munmap(s.buffer) }

// verify reads the samples. The error wraps ErrNotErased if a part of them is unchanged, unless all of its bytes are
// equal: a device that was not written may hold that before and after an erase.
func (s *samples) verify(ctx context.Context, f *os.File) error {
	block := s.buffer[len(s.offsets)*sampleSize:]
	kept, first := 0, int64(0)
	for i, offset := range s.offsets {
		if err := ctx.Err(); err != nil {
			return err
		}
		if _, err := f.ReadAt(block, offset); err != nil {
			return fmt.Errorf("read sample at byte %d: %w", offset, err)
		}
		ReportProgress(ctx)
		if !sharesData(s.buffer[i*sampleSize:(i+1)*sampleSize], block) {
			continue
		}
		if kept++; kept == 1 {
			first = offset
		}
	}
	if kept > 0 {
		return fmt.Errorf("%w: %d of %d samples, the first at byte %d", ErrNotErased, kept, len(s.offsets), first)
	}
	return nil
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
