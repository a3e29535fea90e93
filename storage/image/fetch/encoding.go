package fetch

import (
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
)

// decoded returns the content of a small file. Some servers encode it with gzip although identity was requested (RFC
// 9110, section 8.4). Images are read as they arrive: their checksum is of the bytes on the server.
func (b *Response) decoded() io.ReadCloser {
	if strings.EqualFold(b.encoding, "gzip") || strings.EqualFold(b.encoding, "x-gzip") {
		return &gzipBody{response: b}
	}
	return b
}

// gzipBody decodes a body. It returns an error if the body is much longer than its content: empty blocks can be
// endless.
type gzipBody struct {
	response *Response
	reader   *gzip.Reader // nil before the first Read
	received int64
	content  int64
	failed   error // of the response
}

var errBloated = errors.New("the encoded file is much longer than its content")

func (g *gzipBody) Read(p []byte) (n int, err error) {
	if g.reader == nil {
		g.reader, err = gzip.NewReader(encoded{g})
	}
	if err == nil {
		n, err = g.reader.Read(p)
	}
	g.content += int64(n)
	switch {
	case err == nil || err == io.EOF: //nolint:errorlint // io.EOF is compared unwrapped, as by io.ReadFull
		return n, err
	case g.failed != nil:
		return n, g.failed
	}
	err = fmt.Errorf("decode Content-Encoding gzip: %w", err)
	return n, &DownloadError{URL: g.response.URL, Status: http.StatusOK, Err: err, Fatal: true}
}

func (g *gzipBody) Close() error { return g.response.Close() }

// encoded reads the body of a gzipBody.
type encoded struct{ *gzipBody }

func (e encoded) Read(p []byte) (int, error) {
	if e.received > 2*e.content+1<<20 {
		return 0, errBloated
	}
	n, err := e.response.Read(p)
	e.received += int64(n)
	if err != nil && err != io.EOF { //nolint:errorlint // see above
		e.failed = err
	}
	return n, err
}
