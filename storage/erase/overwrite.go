package erase

import (
	"context"
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"ironroot/internal/goroutine"
	"ironroot/internal/timelimit"
	"ironroot/storage/block"
	"ironroot/storage/erase/evidence"
)

const blockSize = 4 << 20 // bytes per write

// overwrite writes the whole device, see [space.overwrite].
func overwrite(ctx context.Context, path string, o Options) (err error) {
	if o.passes() == 0 {
		return errNoPass
	}
	f, size, err := openExclusive(path)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	return space{f, []span{{0, size}}}.overwrite(ctx, o)
}

var errNoPass = fmt.Errorf("%w: no overwrite pass requested", ErrUnsupported)

// passes returns the number of passes of an overwrite.
func (o Options) passes() int {
	passes := max(0, o.Iterations)
	if o.Zeroize {
		passes++
	}
	return passes
}

// overwrite writes every byte: random passes with a new key each, then zeros. It uses direct I/O, so that each error is
// reported by the write that failed. Then it reads the last pass back. The last pass is random data, too, if the drive
// may be locked: one that ignores writes can return zeros.
func (s space) overwrite(ctx context.Context, o Options) (err error) {
	passes, size := o.passes(), s.size()
	if passes == 0 {
		return errNoPass
	}
	buffers, err := newBuffers()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, buffers.free()) }()
	var last *pattern
	for pass := range passes {
		instead := pass >= o.Iterations && pass == passes-1 && o.prove
		if last, err = newPattern(pass < o.Iterations || instead); err != nil {
			return err
		}
		progress := func(done int64) {
			o.Recorder.observe(Progress{Done: int64(pass)*size + done, Total: int64(passes) * size})
		}
		progress(0)
		if err := writePass(ctx, s, size, buffers, last, progress); err != nil {
			return fmt.Errorf("pass %d of %d: %w", pass+1, passes, err)
		}
		if err := s.file.Sync(); err != nil {
			return fmt.Errorf("pass %d of %d: %w", pass+1, passes, err)
		}
		timelimit.Progress(ctx)
		o.Recorder.change(func(r *Report) {
			r.InsteadOfZeros = instead
			r.Passes = append(r.Passes, evidence.Pass{Pattern: last.name(), Bytes: size, Ended: time.Now().UTC()})
		})
	}
	if err := block.Flush(ctx, s.file.Name()); err != nil {
		return err
	}
	return readBack(ctx, s, isDirect(s.file), size, last.expected(), o.Recorder)
}

// pattern is the content of a pass: zeros, or random data that can be generated again at any place.
type pattern struct{ random cipher.Block } // nil for zeros

func newPattern(random bool) (*pattern, error) {
	if !random {
		return &pattern{}, nil
	}
	key := make([]byte, 16)
	if _, err := rand.Read(key); err != nil {
		return nil, err
	}
	engine, err := aes.NewCipher(key)
	return &pattern{engine}, err
}

// fill fills a buffer with the content at an offset, which is a multiple of 16.
func (p *pattern) fill(b []byte, offset int64) {
	clear(b)
	if p.random == nil {
		return
	}
	var counter [aes.BlockSize]byte
	binary.BigEndian.PutUint64(counter[8:], uint64(offset)/aes.BlockSize)
	cipher.NewCTR(p.random, counter[:]).XORKeyStream(b, b)
}

func (p *pattern) name() string {
	if p.random == nil {
		return evidence.PatternZeros
	}
	return evidence.PatternRandom
}

// expected returns what a read-back expects after the pass.
func (p *pattern) expected() expected {
	if p.random == nil {
		return expected{name: evidence.ExpectZeros, written: p}
	}
	return expected{name: evidence.ExpectWritten, written: p}
}

// buffers are two buffers at addresses that direct I/O accepts: one is filled while the other is written.
type buffers [2][]byte

func newBuffers() (b buffers, err error) {
	for i := range b {
		if b[i], err = unix.Mmap(-1, 0, blockSize, unix.PROT_READ|unix.PROT_WRITE,
			unix.MAP_ANON|unix.MAP_PRIVATE); err != nil {
			return b, errors.Join(fmt.Errorf("buffer of %d bytes: %w", blockSize, err), b.free())
		}
	}
	return b, nil
}

func (b buffers) free() error {
	var problems []error
	for _, buffer := range b {
		if buffer != nil {
			problems = append(problems, unix.Munmap(buffer))
		}
	}
	return errors.Join(problems...)
}

// writePass writes the content of a pass from the first to the last byte. Zeros are filled in once; random data is
// generated while the data before it is written.
func writePass(
	ctx context.Context, f io.WriterAt, size int64, b buffers, content *pattern, progress func(int64),
) error {
	part := func(i int, offset int64) []byte { return b[i][:max(0, min(blockSize, size-offset))] }
	current := 0
	content.fill(part(current, 0), 0)
	for offset := int64(0); offset < size; {
		if err := ctx.Err(); err != nil {
			return err
		}
		data, following := part(current, offset), offset+blockSize
		filled := make(chan error, 1)
		if content.random == nil || following >= size {
			filled <- nil
		} else {
			current = 1 - current
			next := part(current, following)
			goroutine.Go(func() error {
				content.fill(next, following)
				return nil
			}, func(err error) { filled <- err })
		}
		_, err := f.WriteAt(data, offset)
		if err != nil {
			err = fmt.Errorf("write %d bytes at byte %d: %w", len(data), offset, err)
		}
		if err := errors.Join(err, <-filled); err != nil { // the caller frees the buffers
			return err
		}
		offset += int64(len(data))
		timelimit.Progress(ctx)
		progress(offset)
	}
	return nil
}

// openExclusive opens a device for direct writes. It fails with EBUSY if the device is in use: mounted, with a mounted
// partition, or a member of an array or a volume.
func openExclusive(path string) (*os.File, int64, error) {
	f, err := os.OpenFile(path, os.O_RDWR|unix.O_EXCL|directIO, 0)
	if errors.Is(err, unix.EINVAL) { // a device without direct I/O
		f, err = os.OpenFile(path, os.O_RDWR|unix.O_EXCL, 0)
	}
	if err != nil {
		return nil, 0, err
	}
	size, _, err := block.Geometry(f)
	if err == nil && size == 0 {
		err = fmt.Errorf("%s has no size", path)
	}
	if err != nil {
		return nil, 0, errors.Join(err, f.Close())
	}
	return f, size, nil
}
