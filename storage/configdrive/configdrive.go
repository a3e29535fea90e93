package configdrive

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/url"
	"slices"
	"strings"
)

// MaxSize is the maximum size of a config drive in bytes after decompression.
const MaxSize = 64 << 20

// ErrTooLarge is returned for a config drive of more than MaxSize bytes.
var ErrTooLarge = fmt.Errorf("config drive is larger than %d bytes", MaxSize)

// Opener opens URLs for reading. An HTTP status of 400 or above is an error.
type Opener interface {
	Open(ctx context.Context, url string) (io.ReadCloser, error)
}

// Load returns the config drive's image. source is base64 text of gzip data, or an http or https URL whose body is
// such a text or the image itself. Other schemes, and images without a file system, are rejected.
func Load(ctx context.Context, source string, o Opener) ([]byte, error) {
	source = strings.TrimSpace(source)
	if scheme, _, ok := strings.Cut(source, "://"); ok {
		return loadURL(ctx, source, strings.ToLower(scheme), o)
	}
	drive, err := decode(strings.NewReader(source))
	if err == nil {
		err = checkFileSystem(drive)
	}
	if err != nil {
		return nil, fmt.Errorf("config drive: %w", err)
	}
	return drive, nil
}

func loadURL(ctx context.Context, source, scheme string, o Opener) ([]byte, error) {
	name := "from a URL"
	if parsed, err := url.Parse(source); err == nil {
		parsed.RawQuery, parsed.Fragment = "", "" // may contain the signature of a temporary URL
		name = parsed.Redacted()
	}
	if scheme != "http" && scheme != "https" {
		return nil, fmt.Errorf("config drive %s: scheme %q is neither http nor https", name, scheme)
	}
	body, err := o.Open(ctx, source)
	if err != nil {
		return nil, fmt.Errorf("config drive %s: %w", name, err)
	}
	defer body.Close() //nolint:errcheck // only read
	drive, err := loadBody(body)
	if err == nil {
		err = checkFileSystem(drive)
	}
	if err != nil {
		return nil, fmt.Errorf("config drive %s: %w", name, err)
	}
	return drive, nil
}

// gzipText is the start of base64 text of gzip data: the bytes 1f 8b 08. No file system starts with it.
const gzipText = "H4sI"

func loadBody(body io.Reader) ([]byte, error) {
	buffered := bufio.NewReaderSize(body, 64<<10)
	start, err := buffered.Peek(512)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	if bytes.HasPrefix(bytes.TrimLeft(start, " \t\r\n"), []byte(gzipText)) {
		return decode(buffered)
	}
	return bounded(buffered)
}

// checkFileSystem returns an error that names the kind of data if the drive has no known file system. A server can
// send a page of its own, or gzip data that is not encoded. A file system that is damaged is not an error.
func checkFileSystem(drive []byte) error {
	_, err := openFiles(drive)
	if isKnown := blockSize(drive) < math.MaxInt64; isKnown || !errors.Is(err, errUnknown) {
		return nil
	}
	return fmt.Errorf("no file system: got %s, want ISO 9660, FAT or ext2 to ext4, or base64 text of gzip data",
		http.DetectContentType(drive))
}

// decode decodes and decompresses base64 text of gzip data.
func decode(text io.Reader) ([]byte, error) {
	text = &limited{text, 2 * MaxSize}
	unzip, err := gzip.NewReader(base64.NewDecoder(base64.StdEncoding, &noSpace{text}))
	if err != nil {
		return nil, fmt.Errorf("is not the base64 text of gzip data: %w", err)
	}
	drive, err := bounded(unzip)
	if err != nil {
		return nil, fmt.Errorf("unpack: %w", err)
	}
	return drive, unzip.Close()
}

// limited returns ErrTooLarge after a number of bytes: white space and empty members of gzip data can be endless.
type limited struct {
	source io.Reader
	left   int64
}

func (l *limited) Read(p []byte) (int, error) {
	if l.left <= 0 {
		return 0, ErrTooLarge
	}
	n, err := l.source.Read(p[:min(int64(len(p)), l.left)])
	l.left -= int64(n)
	return n, err
}

// piece is the number of bytes of a read.
const piece = 1 << 20

// bounded reads a drive in pieces and joins them at the end. Growing a single buffer would allocate several times as
// much memory.
func bounded(r io.Reader) ([]byte, error) {
	r = io.LimitReader(r, MaxSize+1)
	var pieces [][]byte
	size, free := 0, []byte(nil)
	for {
		if len(free) == 0 {
			free = make([]byte, piece)
			pieces = append(pieces, free)
		}
		n, err := r.Read(free)
		size, free = size+n, free[n:]
		switch {
		case size > MaxSize:
			return nil, ErrTooLarge
		case err == nil:
		case !errors.Is(err, io.EOF):
			return nil, err
		case size == 0:
			return nil, errors.New("is empty")
		default:
			return slices.Concat(pieces...)[:size], nil
		}
	}
}

// noSpace drops white space, which base64 text may contain anywhere. The decoder ignores only line ends.
type noSpace struct{ r io.Reader }

func (n *noSpace) Read(p []byte) (int, error) {
	for {
		count, err := n.r.Read(p)
		kept := 0
		for _, c := range p[:count] {
			if c != ' ' && c != '\t' && c != '\r' && c != '\n' {
				p[kept] = c
				kept++
			}
		}
		if kept > 0 || err != nil || len(p) == 0 {
			return kept, err
		}
	}
}
