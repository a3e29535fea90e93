package image

import (
	"compress/bzip2"
	"errors"
	"fmt"
	"io"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"
	"github.com/pierrec/lz4/v4"
)

// Limits to what a packed image may have its reader remember: gzip, bzip2 and lz4 need less in any case. A zstd reader
// keeps twice its window.
const (
	maxDictionary = 32 << 20 // of xz
	maxWindow     = 16 << 20 // of zstd
)

// packing is a way to pack a whole raw image.
type packing struct {
	name  string
	match func(head []byte) bool
	// open returns a reader that unpacks, and what frees its memory.
	open func(r io.Reader) (io.Reader, func(), error)
}

// packings are told by the first bytes of a file. Concatenated files unpack to the concatenation, as by their tools.
var packings = []packing{
	{"gzip", at(0, "\x1f\x8b\x08"), func(r io.Reader) (io.Reader, func(), error) {
		z, err := gzip.NewReader(r)
		return z, func() {}, err
	}},
	{"zstd", at(0, "\x28\xb5\x2f\xfd"), func(r io.Reader) (io.Reader, func(), error) {
		z, err := zstd.NewReader(r, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true), zstd.WithDecoderMaxWindow(maxWindow))
		if err != nil {
			return nil, nil, err
		}
		return z, z.Close, nil
	}},
	{"xz", at(0, xzMagic), func(r io.Reader) (io.Reader, func(), error) { return newXZ(r), func() {}, nil }},
	{"bzip2", func(head []byte) bool {
		return at(0, "BZh")(head) && (at(4, "\x31\x41\x59\x26\x53\x59")(head) || at(4, "\x17\x72\x45\x38\x50\x90")(head))
	}, func(r io.Reader) (io.Reader, func(), error) { return bzip2.NewReader(r), func() {}, nil }},
	{"lz4", at(0, "\x04\x22\x4d\x18"), func(r io.Reader) (io.Reader, func(), error) { return lz4.NewReader(r), func() {}, nil }},
}

// packingOf returns the packing with that name, nil where it is none.
func packingOf(name string) *packing {
	for i := range packings {
		if packings[i].name == name {
			return &packings[i]
		}
	}
	return nil
}

// unpackError is what a packed file is wrong about. It hides what it wraps: the end of file within one is none of the
// image's.
type unpackError struct {
	name string
	err  error
}

func (e *unpackError) Error() string { return fmt.Sprintf("%s image: %v", e.name, e.err) }

// unpacked is a packed file's content.
type unpacked struct {
	*packing
	io.Reader
	free func()
}

// unpack begins to read a packed file.
func (p *packing) unpack(r io.Reader) (*unpacked, error) {
	content, free, err := p.open(r)
	if err != nil {
		return nil, &unpackError{p.name, err}
	}
	return &unpacked{p, content, free}, nil
}

func (u *unpacked) Read(b []byte) (int, error) {
	n, err := u.Reader.Read(b)
	if err != nil && err != io.EOF { //nolint:errorlint // io.EOF alone is the end
		err = &unpackError{u.name, err}
	}
	return n, err
}

// inspectPacked checks the beginning of a packed image's content. Its format must be one that is copied as raw, and
// raw must be permitted, whether or not formats are inspected otherwise.
func (o Options) inspectPacked(p *packing, content []byte) (string, error) {
	if !o.permits(formatRaw) {
		return "", o.forbidden(formatRaw)
	}
	format, err := o.inspect("", content)
	if err != nil {
		return "", err
	}
	if format == formatQcow2 || packingOf(format) != nil {
		return "", &FormatError{Format: p.name, Reason: fmt.Sprintf(
			"there is an image of format %s inside the %s image: only raw images are written from packed files; serve it unpacked", format, p.name)}
	}
	return format, nil
}

// peekPacked inspects what can be had of a packed image's content from the beginning of the file.
func (o Options) peekPacked(p *packing, head []byte) error {
	if !o.permits(formatRaw) {
		return o.forbidden(formatRaw)
	}
	content := make([]byte, headSize)
	n := 0
	u, err := p.unpack(&peeked{rest: head})
	if err == nil {
		defer u.free()
		n, err = io.ReadFull(u, content)
	}
	var wrong *unpackError
	if n == 0 && errors.As(err, &wrong) && !errors.Is(wrong.err, errPeekedAll) {
		return &FormatError{Format: p.name, Reason: err.Error()}
	}
	if n == 0 {
		return nil // not even one block was whole
	}
	_, err = o.inspectPacked(p, content[:n])
	return err
}

var errPeekedAll = errors.New("the beginning of the file is not enough")

// peeked is the beginning of a file. Its end is none of the file's.
type peeked struct{ rest []byte }

func (p *peeked) Read(b []byte) (int, error) {
	if len(p.rest) == 0 {
		return 0, errPeekedAll
	}
	n := copy(b, p.rest)
	p.rest = p.rest[n:]
	return n, nil
}
