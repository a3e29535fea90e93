package fetch

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync/atomic"
	"time"
)

// Response is the body of an HTTP response. The time between two reads is limited.
type Response struct {
	URL     string // without credentials and query
	Total   int64  // length of the whole file in bytes, -1 if unknown
	Partial bool   // the response contains the requested range only

	ctx    context.Context
	cancel context.CancelCauseFunc
	body   io.ReadCloser
	timer  *time.Timer
	stall  time.Duration
	// rate and redirected may be nil.
	rate       *rateMeter
	redirected *atomic.Bool
	// validator identifies this version of the file, see validatorOf.
	validator string
	encoding  string // Content-Encoding
}

// Read returns io.EOF only if the response is complete.
func (b *Response) Read(p []byte) (int, error) {
	b.timer.Reset(b.stall)
	begin := time.Now()
	n, err := b.body.Read(p)
	b.timer.Stop()
	if err == nil || err == io.EOF { //nolint:errorlint // io.EOF is compared unwrapped, as by io.ReadFull
		// A failed read does not count: stalls and broken connections have retries of their own.
		if slow := b.rate.add(n, time.Since(begin), b.URL); slow != nil {
			return n, slow
		}
		return n, err
	}
	return n, b.fail(err)
}

// Close ends the request.
func (b *Response) Close() error {
	b.timer.Stop()
	b.cancel(nil)
	return b.body.Close()
}

// fail turns an error of net/http into a DownloadError, and a cancelled context into its cause.
func (b *Response) fail(err error) error {
	cause := context.Cause(b.ctx)
	if cause != nil && !errors.Is(cause, errStalled) {
		return cause
	}
	if cause != nil {
		err = errStalled
	}
	var redirect *redirectError
	var proxy *proxyError
	fatal := errors.As(err, &redirect) || errors.As(err, &proxy) && !proxy.isTemporary()
	if cause == nil {
		err = publicCause(err, b.redirected != nil && b.redirected.Load())
	}
	if errors.Is(err, io.ErrUnexpectedEOF) {
		err = errTruncated
	}
	return &DownloadError{URL: b.URL, Err: err, Fatal: fatal}
}

var errTruncated = errors.New("the connection was closed before the whole file had arrived")

// accept checks the status and the range of a response.
func (b *Response) accept(resp *http.Response, part *Range) error {
	switch {
	case resp.StatusCode == http.StatusOK:
		b.Total = resp.ContentLength
		return nil
	case resp.StatusCode == http.StatusPartialContent && part != nil:
		first, total, err := parseContentRange(resp.Header.Get("Content-Range"))
		if err == nil && first != part.Off {
			err = fmt.Errorf("got bytes from %d on, want them from %d", first, part.Off)
		}
		if err != nil {
			return &DownloadError{
				URL: b.URL, Status: resp.StatusCode, Err: fmt.Errorf("range request: %w", err), Fatal: true,
			}
		}
		b.Partial, b.Total = true, total
		return nil
	}
	return &DownloadError{URL: b.URL, Status: resp.StatusCode, Fatal: resp.StatusCode < http.StatusInternalServerError}
}

// parseContentRange parses "bytes FIRST-LAST/TOTAL"; total is -1 if the server does not know it. The error does not
// quote the header.
func parseContentRange(text string) (first, total int64, err error) {
	bad := fmt.Errorf("got a Content-Range of %d characters, want bytes FIRST-LAST/TOTAL", len(text))
	rest, ok := strings.CutPrefix(text, "bytes ")
	if !ok {
		return 0, 0, bad
	}
	positions, length, ok := strings.Cut(rest, "/")
	from, _, ok2 := strings.Cut(positions, "-")
	if !ok || !ok2 {
		return 0, 0, bad
	}
	if first, err = strconv.ParseInt(strings.TrimSpace(from), 10, 64); err != nil || first < 0 {
		return 0, 0, bad
	}
	if length == "*" {
		return first, -1, nil
	}
	if total, err = strconv.ParseInt(strings.TrimSpace(length), 10, 64); err != nil || total < 0 {
		return 0, 0, bad
	}
	return first, total, nil
}

// AtEnd reports whether err is that of io.ReadFull at the end of a body, which is not wrapped. An error that wraps
// io.EOF or io.ErrUnexpectedEOF is that of a lost connection.
func AtEnd(err error) bool {
	return err == io.EOF || err == io.ErrUnexpectedEOF //nolint:errorlint // see above
}
