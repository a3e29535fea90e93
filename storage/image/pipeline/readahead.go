package pipeline

import (
	"errors"
	"hash"
	"io"

	"ironroot/internal/goroutine"
	"ironroot/storage/image/fetch"
)

const (
	readAheadSize    = 256 << 10 // bytes of a buffer
	readAheadBuffers = 4
)

// ReadAhead reads and hashes a source in a goroutine of its own, ahead of the reader that decompresses it.
type ReadAhead struct {
	source Source
	limit  int64 // of the source's length
	pos    int64 // of the source's next byte
	empty  chan []byte
	full   chan []byte
	buffer []byte // that is being read, to be returned to empty
	rest   []byte // of buffer
	err    error  // of the source, once full is closed; nil at its end
}

// NewReadAhead starts to read source. Close the ReadAhead after use.
func NewReadAhead(source Source, limit int64, sum hash.Hash) *ReadAhead {
	r := &ReadAhead{
		source: source, limit: limit,
		empty: make(chan []byte, readAheadBuffers), full: make(chan []byte, readAheadBuffers),
	}
	for range readAheadBuffers {
		r.empty <- make([]byte, readAheadSize)
	}
	goroutine.Go(func() error { return r.fill(sum) }, func(err error) {
		r.err = err
		close(r.full)
	})
	return r
}

// fill reads the source to its end.
func (r *ReadAhead) fill(sum hash.Hash) error {
	for buffer := range r.empty {
		n, err := io.ReadFull(r.source, buffer[:readAheadSize])
		sum.Write(buffer[:n]) //nolint:errcheck // a hash never fails
		r.full <- buffer[:n]  // has space for all
		if fetch.AtEnd(err) {
			return nil
		} else if err != nil {
			return err
		}
		if r.pos += int64(n); r.pos > r.limit {
			return ErrTooLong
		}
	}
	return nil
}

// next waits until rest is not empty. It returns io.EOF at the end of the source.
func (r *ReadAhead) next() error {
	for len(r.rest) == 0 {
		if r.buffer != nil {
			r.empty <- r.buffer // has space for all
			r.buffer = nil
		}
		buffer, ok := <-r.full
		if !ok {
			if r.err != nil {
				return r.err
			}
			return io.EOF
		}
		r.buffer, r.rest = buffer, buffer
	}
	return nil
}

// Read reads what the goroutine has read.
func (r *ReadAhead) Read(p []byte) (int, error) {
	if err := r.next(); err != nil {
		return 0, err
	}
	n := copy(p, r.rest)
	r.rest = r.rest[n:]
	return n, nil
}

// ReadByte reads one byte. Decompressors use it in place of a buffer of their own.
func (r *ReadAhead) ReadByte() (byte, error) {
	if err := r.next(); err != nil {
		return 0, err
	}
	b := r.rest[0]
	r.rest = r.rest[1:]
	return b, nil
}

// ErrTooLong means that the source is longer than its limit.
var ErrTooLong = errors.New("the file is too long")

// ErrTrailing means that Drain stopped before the end.
var ErrTrailing = errors.New("bytes follow beyond the end of the packed image")

// Drain reads the source to its end, so that its checksum is complete. More than limit bytes are an error.
func (r *ReadAhead) Drain(limit int64) error {
	for {
		if err := r.next(); err == io.EOF { //nolint:errorlint // next returns it unwrapped
			return nil
		} else if err != nil {
			return err
		}
		if limit -= int64(len(r.rest)); limit < 0 {
			return ErrTrailing
		}
		r.rest = nil
	}
}

// Close stops the goroutine.
func (r *ReadAhead) Close() {
	r.source.Abort(nil)
	close(r.empty)
	for range r.full { // until the goroutine has ended
	}
}
