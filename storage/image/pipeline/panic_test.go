package pipeline

import (
	"crypto/sha256"
	"errors"
	"hash"
	"io"
	"strings"
	"testing"
	"testing/iotest"

	"ironroot/internal/goroutine"
	"ironroot/internal/test/imagetest"
	"ironroot/storage/image/fetch"
)

// zeros is a source of zeros; read is called before each Read.
type zeros struct{ read func() }

func (e zeros) Read(p []byte) (int, error) {
	if e.read != nil {
		e.read()
	}
	clear(p)
	return len(p), nil
}

func (zeros) Abort(error) {}

// brokenHash panics when it is written to.
type brokenHash struct{ hash.Hash }

func (brokenHash) Write([]byte) (int, error) { panic("oops") }

// A panic in any goroutine of the pipeline ends the pipeline with an error.
func TestPipelineContainsPanics(t *testing.T) {
	oops := func() error { panic("oops") }
	write := place(func(c *Chunk, submit func(func() error) error) error {
		return submit(func() error { return nil })
	})
	for name, p := range map[string]*Pipeline{
		"reader": {Source: zeros{func() { _ = oops() }}, Placer: write},
		"place":  {Source: zeros{}, Placer: place(func(*Chunk, func(func() error) error) error { return oops() })},
		"writer": {
			Source: zeros{},
			Placer: place(func(_ *Chunk, submit func(func() error) error) error { return submit(oops) }),
		},
		"hash": {Source: zeros{}, Placer: write, Sum: brokenHash{sha256.New()}},
	} {
		t.Run(name, func(t *testing.T) {
			p.Memory = NewMemory()
			_, err := p.Run(t.Context())
			var caught *goroutine.PanicError
			if !errors.As(err, &caught) || caught.Value != "oops" {
				t.Errorf("got error %v, want the panic", err)
			}
		})
	}
}

// A panic in the source of a compressed image is an error of its reader.
func TestReadAheadContainsPanic(t *testing.T) {
	source := zeros{func() { panic("oops") }}
	f := NewReadAhead(source, 1<<20, sha256.New())
	defer f.Close()
	_, err := io.ReadAll(f)
	var caught *goroutine.PanicError
	if !errors.As(err, &caught) || caught.Value != "oops" {
		t.Errorf("got error %v, want the panic", err)
	}
}

// brokenSource is a download that fails after its first bytes.
type brokenSource struct{ io.Reader }

func (brokenSource) Abort(error) {}

// An error of the source is not its end, whatever it wraps.
func TestBrokenSourceIsNoEnd(t *testing.T) {
	for _, end := range []error{io.EOF, io.ErrUnexpectedEOF} {
		source := brokenSource{
			io.MultiReader(strings.NewReader("begin"), iotest.ErrReader(&fetch.DownloadError{Err: end})),
		}
		p := &Pipeline{
			Source: source, Memory: NewMemory(),
			Placer: place(func(*Chunk, func(func() error) error) error { return nil }),
		}
		if n, err := p.Run(t.Context()); !imagetest.IsA[*fetch.DownloadError](err) {
			t.Errorf("got %d bytes, %v, want a DownloadError", n, err)
		}
	}
}
