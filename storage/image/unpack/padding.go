package unpack

import (
	"bufio"
	"compress/bzip2"
	"errors"
	"io"

	"github.com/klauspost/compress/gzip"
)

// Zeros may follow the last stream of a file that is padded to a multiple of some size. gzip, bzip2 and xz ignore them,
// the libraries do not.

// onlyZeros reads a file to its end. It returns io.EOF if the rest has only zeros, otherwise invalid.
func onlyZeros(r io.ByteReader, invalid error) error {
	for {
		b, err := r.ReadByte()
		if err != nil {
			return err
		}
		if b != 0 {
			return invalid
		}
	}
}

// gzipReader reads one member of a file after the other.
type gzipReader struct {
	source *bufio.Reader
	member *gzip.Reader
}

func openGzip(r io.Reader, _ int64) (io.ReadCloser, error) {
	source := bufio.NewReader(r)
	member, err := gzip.NewReader(source)
	if err != nil {
		return nil, err
	}
	member.Multistream(false)
	return io.NopCloser(&gzipReader{source, member}), nil
}

func (g *gzipReader) Read(p []byte) (int, error) {
	for {
		n, err := g.member.Read(p)
		if err != io.EOF { //nolint:errorlint // only io.EOF itself is the end of a member
			return n, err
		}
		next, err := g.source.Peek(1)
		switch {
		case err != nil:
			return n, err
		case next[0] == 0:
			return n, onlyZeros(g.source, gzip.ErrHeader)
		}
		if err := g.member.Reset(g.source); err != nil {
			return n, truncated(err)
		}
		g.member.Multistream(false)
		if n > 0 {
			return n, nil
		}
	}
}

// bzip2Reader reads a file with compress/bzip2, which reads two bytes after each stream: the start of the next one.
type bzip2Reader struct {
	content io.Reader
	source  paddedReader
}

func openBzip2(r io.Reader, _ int64) (io.ReadCloser, error) {
	b := &bzip2Reader{source: paddedReader{r: bufio.NewReader(r), last: 0xffff}}
	b.content = bzip2.NewReader(&b.source)
	return io.NopCloser(b), nil
}

func (b *bzip2Reader) Read(p []byte) (int, error) {
	n, err := b.content.Read(p)
	if errors.Is(err, errNextStream) && b.source.last == 0 {
		err = onlyZeros(&b.source, err)
	}
	return n, err
}

// errNextStream is the error of compress/bzip2 for a stream that starts with other bytes than "BZ".
const errNextStream = bzip2.StructuralError("bad magic value in continuation file")

// paddedReader adds two zeros to a file whose last byte is zero. compress/bzip2 reads two bytes after each stream, but
// padding can be a single byte.
type paddedReader struct {
	r     *bufio.Reader
	last  uint16 // the last two bytes
	added int
}

// ReadByte reads one byte.
func (p *paddedReader) ReadByte() (byte, error) {
	b, err := p.r.ReadByte()
	if err == io.EOF && byte(p.last) == 0 && p.added < 2 { //nolint:errorlint // the end of the file itself
		p.added++
		b, err = 0, nil
	}
	if err == nil {
		p.last = p.last<<8 | uint16(b)
	}
	return b, err
}

// Read is not used: compress/bzip2 reads bytes.
func (p *paddedReader) Read(to []byte) (int, error) { return p.r.Read(to) }
