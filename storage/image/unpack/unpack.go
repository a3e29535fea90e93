// Package unpack reads files that are compressed as a whole by gzip (RFC 1952), zstd (RFC 8878), xz, bzip2 or lz4.
//
// Concatenated files unpack to the concatenation of their contents, as they do by the tools of these formats. The
// memory of a reader is limited: files that need a larger window or dictionary are rejected.
package unpack

import (
	"bytes"
	"compress/bzip2"
	"fmt"
	"io"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"
	"github.com/pierrec/lz4/v4"
)

// Limits to the memory of a reader in bytes. gzip, bzip2 and lz4 need less in any case. A zstd reader keeps twice its
// window.
const (
	maxXZDictionary = 32 << 20
	maxZstdWindow   = 16 << 20
)

// Format is a compression format.
type Format struct {
	Name string
	// Detect reports whether a file that begins with head is of this format.
	Detect func(head []byte) bool
	// open returns a reader of the content, and a function that frees its memory.
	open func(r io.Reader) (io.Reader, func(), error)
}

// Formats are all known formats.
var Formats = []Format{
	{"gzip", begins("\x1f\x8b\x08"), func(r io.Reader) (io.Reader, func(), error) {
		z, err := gzip.NewReader(r)
		return z, func() {}, err
	}},
	{"zstd", begins("\x28\xb5\x2f\xfd"), func(r io.Reader) (io.Reader, func(), error) {
		z, err := zstd.NewReader(r,
			zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true), zstd.WithDecoderMaxWindow(maxZstdWindow))
		if err != nil {
			return nil, nil, err
		}
		return z, z.Close, nil
	}},
	{"xz", begins(xzMagic), func(r io.Reader) (io.Reader, func(), error) { return newXZReader(r), func() {}, nil }},
	{"bzip2", detectBzip2, func(r io.Reader) (io.Reader, func(), error) { return bzip2.NewReader(r), func() {}, nil }},
	{"lz4", begins("\x04\x22\x4d\x18"), func(r io.Reader) (io.Reader, func(), error) {
		return lz4.NewReader(r), func() {}, nil
	}},
}

// begins returns a Detect for a file that begins with magic.
func begins(magic string) func(head []byte) bool {
	return func(head []byte) bool { return bytes.HasPrefix(head, []byte(magic)) }
}

// detectBzip2 reports whether a file begins as one of bzip2: with a block, or with the end of an empty stream.
func detectBzip2(head []byte) bool {
	return len(head) >= 10 && string(head[:3]) == "BZh" &&
		(string(head[4:10]) == "\x31\x41\x59\x26\x53\x59" || string(head[4:10]) == "\x17\x72\x45\x38\x50\x90")
}

// Error is an error of a compressed file. It does not wrap its cause: an io.EOF in the file is not the end of the
// content.
type Error struct {
	Format string
	Err    error
}

func (e *Error) Error() string { return fmt.Sprintf("%s image: %v", e.Format, e.Err) }

// Reader reads the content of a compressed file. Close it after use.
type Reader struct {
	format string
	r      io.Reader
	free   func()
}

// NewReader begins to read a compressed file. Its errors are *Error.
func (f *Format) NewReader(r io.Reader) (*Reader, error) {
	content, free, err := f.open(r)
	if err != nil {
		return nil, &Error{f.Name, err}
	}
	return &Reader{f.Name, content, free}, nil
}

// Read reads content. It returns io.EOF at the end, and an *Error if the file is damaged.
func (r *Reader) Read(p []byte) (int, error) {
	n, err := r.r.Read(p)
	if err != nil && err != io.EOF { //nolint:errorlint // only io.EOF itself is the end
		err = &Error{r.format, err}
	}
	return n, err
}

// Close frees the memory of the reader.
func (r *Reader) Close() { r.free() }
