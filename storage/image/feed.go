package image

import (
	"context"
	"errors"
	"fmt"
	"hash"
	"io"
	"math"
	"runtime"

	"ironroot/internal/goroutine"
)

const (
	feedSize = 256 << 10
	feeds    = 4
	// maxTrailing is the number of bytes that may follow the end of a packed image.
	maxTrailing = 1 << 20
)

// feed hands a source on to one that unpacks it, and hashes it beside.
type feed struct {
	source *stream
	limit  int64 // of the source's length
	empty  chan []byte
	full   chan []byte
	buffer []byte // being read, to be given back
	rest   []byte // of it
	err    error  // of the source, once full is closed; nil at its end
}

// newFeed begins to read the source. The feed must be closed.
func newFeed(source *stream, limit int64, sum hash.Hash) *feed {
	f := &feed{source: source, limit: limit, empty: make(chan []byte, feeds), full: make(chan []byte, feeds)}
	for range feeds {
		f.empty <- make([]byte, feedSize)
	}
	goroutine.Go(func() error { return f.fill(sum) }, func(err error) {
		f.err = err
		close(f.full)
	})
	return f
}

// fill reads the source to its end.
func (f *feed) fill(sum hash.Hash) error {
	for buffer := range f.empty {
		n, err := io.ReadFull(f.source, buffer[:feedSize])
		sum.Write(buffer[:n]) //nolint:errcheck // a hash never fails
		f.full <- buffer[:n]  // has room for all
		if atEnd(err) {
			return nil
		} else if err != nil {
			return err
		}
		if f.source.pos > f.limit {
			return fileTooLong("packed", f.limit)
		}
	}
	return nil
}

// next makes sure that there is something to read.
func (f *feed) next() error {
	for len(f.rest) == 0 {
		if f.buffer != nil {
			f.empty <- f.buffer // has room for all
			f.buffer = nil
		}
		buffer, ok := <-f.full
		if !ok {
			if f.err != nil {
				return f.err
			}
			return io.EOF
		}
		f.buffer, f.rest = buffer, buffer
	}
	return nil
}

func (f *feed) Read(p []byte) (int, error) {
	if err := f.next(); err != nil {
		return 0, err
	}
	n := copy(p, f.rest)
	f.rest = f.rest[n:]
	return n, nil
}

// ReadByte makes readers of packed data do without a buffer of their own.
func (f *feed) ReadByte() (byte, error) {
	if err := f.next(); err != nil {
		return 0, err
	}
	b := f.rest[0]
	f.rest = f.rest[1:]
	return b, nil
}

// errTrailing says that drain was to stop before the end.
var errTrailing = errors.New("bytes follow beyond the end of the packed image")

// drain reads the source to its end, so that its checksum can be told. More than limit bytes are an error.
func (f *feed) drain(limit int64) error {
	for {
		if err := f.next(); err == io.EOF { //nolint:errorlint // next returns it unwrapped
			return nil
		} else if err != nil {
			return err
		}
		if limit -= int64(len(f.rest)); limit < 0 {
			return errTrailing
		}
		f.rest = nil
	}
}

// close ends reading, wherever it is.
func (f *feed) close() {
	f.source.abort(nil)
	close(f.empty)
	for range f.full { // until the reading end is done
	}
}

// fed is the content of a feed.
type fed struct {
	*unpacked
	source *stream
}

// abort ends the source where the disk failed. Where the pipeline came to its end, or the content was broken, the rest of
// the source is needed for its checksum.
func (f *fed) abort(why error) {
	var wrong *unpackError
	if !errors.As(why, &wrong) && !errors.Is(why, context.Canceled) {
		f.source.abort(why)
	}
}

// copyPacked writes what a packed file unpacks to.
func (w *writer) copyPacked(ctx context.Context, b *stream, p *packing) (Report, error) {
	sum, err := w.src.Checksum.hash()
	if err != nil {
		return Report{}, err
	}
	w.begin(b)
	runtime.GC() // frees what the first look or the last attempt has unpacked with, before there is another of it
	f := newFeed(b, maxFile(w.target.size), sum)
	defer f.close()
	head, end, format, err := w.placePacked(ctx, f, p)
	if err := f.settle(err, func() error { return w.src.Checksum.verify(sum, b.url) }); err != nil {
		return Report{}, broken(err)
	}
	if err := w.complete(ctx, b, b.pos, sum); err != nil {
		return Report{}, err
	}
	if end == 0 {
		return Report{}, &FormatError{Format: p.name, Reason: fmt.Sprintf("image %s is empty", b.url)}
	}
	if err := w.finish(head); err != nil {
		return Report{}, err
	}
	report := w.report(b, format, end, b.pos, sum)
	report.Packed = p.name
	return report, nil
}

// placePacked unpacks a file, and puts all but its first MiB onto the disk.
func (w *writer) placePacked(ctx context.Context, f *feed, p *packing) (head []byte, end int64, format string, err error) {
	u, err := p.unpack(f)
	if err != nil {
		return nil, 0, "", err
	}
	defer u.free()
	n, err := io.ReadFull(u, w.head)
	if err != nil && !atEnd(err) {
		return nil, 0, "", err
	}
	head, end = w.head[:n], int64(n)
	if format, err = w.options.inspectPacked(p, head); err != nil || n < headSize {
		return head, end, format, err
	}
	end, err = w.pipeRaw(ctx, &fed{u, f.source}, nil)
	return head, end, format, err
}

// settle reads a packed file to its end after its content was unpacked with err, and says what is to be told of it: what
// went wrong with the source counts first, its checksum next, and only a file that is the one asked for can be at fault
// itself.
func (f *feed) settle(err error, verify func() error) error {
	var wrong *unpackError
	if err != nil && !errors.As(err, &wrong) {
		return err
	}
	limit := int64(maxTrailing)
	if wrong != nil {
		limit = math.MaxInt64
	}
	if rest := f.drain(limit); errors.Is(rest, errTrailing) {
		return &FormatError{Reason: fmt.Sprintf("image %s: %v", f.source.url, rest)}
	} else if rest != nil {
		return rest
	}
	if wrong == nil {
		return nil
	}
	if err := verify(); err != nil {
		return err
	}
	return &FormatError{Format: wrong.name, Reason: wrong.Error()}
}
