package image

import (
	"crypto/sha256"
	"errors"
	"hash"
	"io"
	"testing"

	"ironroot/internal/goroutine"
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

func (zeros) abort(error) {}

// brokenHash panics when it is written to.
type brokenHash struct{ hash.Hash }

func (brokenHash) Write([]byte) (int, error) { panic("oops") }

// A panic in any goroutine of the pipeline ends the pipeline with an error.
func TestPipelineContainsPanics(t *testing.T) {
	oops := func() error { panic("oops") }
	write := func(c *chunk, submit func(func() error) error) error { return submit(func() error { return nil }) }
	for name, p := range map[string]*pipeline{
		"reader": {source: zeros{func() { _ = oops() }}, place: write},
		"place":  {source: zeros{}, place: func(*chunk, func(func() error) error) error { return oops() }},
		"writer": {source: zeros{}, place: func(_ *chunk, submit func(func() error) error) error { return submit(oops) }},
		"hash":   {source: zeros{}, place: write, sum: brokenHash{sha256.New()}},
	} {
		t.Run(name, func(t *testing.T) {
			p.memory = newChunks()
			_, err := p.run(t.Context())
			var caught *goroutine.PanicError
			if !errors.As(err, &caught) || caught.Value != "oops" {
				t.Errorf("got error %v, want the panic", err)
			}
		})
	}
}

// A panic in the source of a packed image is an error of the reader that unpacks it.
func TestFeedContainsPanic(t *testing.T) {
	source := &stream{again: []byte("packed"), onRead: func(int) { panic("oops") }, cancel: func(error) {}}
	f := newFeed(source, 1<<20, sha256.New())
	defer f.close()
	_, err := io.ReadAll(f)
	var caught *goroutine.PanicError
	if !errors.As(err, &caught) || caught.Value != "oops" {
		t.Errorf("got error %v, want the panic", err)
	}
}
