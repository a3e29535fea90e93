package unpack

import (
	"bytes"
	"fmt"
	"io"
)

// MinMemory is the number of bytes that every reader may use for its window or dictionary. gzip, bzip2 and lz4 need
// less in any case.
const MinMemory = 32 << 20

// Format is a compression format.
type Format struct {
	Name string
	// Detect reports whether a file that begins with head is of this format.
	Detect func(head []byte) bool
	// open returns a reader of the content that needs at most memory bytes for its window or dictionary. Close frees
	// them and never fails.
	open func(r io.Reader, memory int64) (io.ReadCloser, error)
}

// Formats are all known formats.
var Formats = []Format{
	{"gzip", begins("\x1f\x8b\x08"), openGzip},
	{"zstd", detectZstd, openZstd},
	{"xz", begins(xzMagic), func(r io.Reader, memory int64) (io.ReadCloser, error) {
		return io.NopCloser(newXZReader(r, memory)), nil
	}},
	{"bzip2", detectBzip2, openBzip2},
	{"lz4", detectLZ4, openLZ4},
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
	format  string
	content io.ReadCloser
}

// NewReader begins to read a compressed file. Files whose window or dictionary needs more than memory bytes are
// rejected; a value below MinMemory stands for MinMemory. Errors are *Error.
func (f *Format) NewReader(r io.Reader, memory int64) (*Reader, error) {
	content, err := f.open(r, max(memory, MinMemory))
	if err != nil {
		return nil, &Error{f.Name, err}
	}
	return &Reader{f.Name, content}, nil
}

// Read reads content. It returns io.EOF at the end, and an *Error if the file is damaged.
func (r *Reader) Read(p []byte) (int, error) {
	n, err := r.content.Read(p)
	if err != nil && err != io.EOF { //nolint:errorlint // only io.EOF itself is the end
		err = &Error{r.format, err}
	}
	return n, err
}

// Close frees the memory of the reader.
func (r *Reader) Close() { _ = r.content.Close() }
