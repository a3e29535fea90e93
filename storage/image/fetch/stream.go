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

// minProgress is the number of bytes that a connection must deliver before its loss resets the retry budget.
const minProgress = 4 << 20

var errChanged = errors.New("the file on the server changed while it was fetched")

// Stream reads a whole file. If a connection is lost or stalls, the stream resumes: it requests the rest, on the
// condition that the file is still the same (RFC 9110, section 13.1.5). If the server sends no validator, ignores
// ranges or has another file by then, Read returns the error.
type Stream struct {
	URL     string  // without credentials and query
	Total   int64   // length of the file in bytes, -1 if unknown
	Pos     int64   // offset of the next byte
	Resumed int     // connections after the first
	Arrived Counter // of the bytes that Read returns; may be nil

	fetcher       *Fetcher
	ctx           context.Context
	cancel        context.CancelCauseFunc
	address       URL
	validator     string // "" if the server sends none
	response      *Response
	peeked        []byte // that the next Read returns
	start         int64  // offset at which the current connection began
	failedResumes int    // consecutive connections that delivered less than minProgress
}

// Counter counts bytes. An [atomic.Int64] is one.
type Counter interface {
	Add(n int64) (sum int64)
}

// OpenStream requests the whole file, or a part at its beginning.
func (f *Fetcher) OpenStream(ctx context.Context, u URL, part *Range) (*Stream, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	b, err := f.Open(ctx, u, part)
	if err != nil {
		cancel(nil)
		return nil, err
	}
	return &Stream{
		fetcher: f, ctx: ctx, cancel: cancel, address: u, URL: b.URL, Total: b.Total,
		validator: b.validator, response: b,
	}, nil
}

// Read returns io.EOF only at the end of the file.
func (s *Stream) Read(p []byte) (int, error) {
	n, err := copy(p, s.peeked), error(nil)
	if s.peeked = s.peeked[n:]; n == 0 {
		n, err = s.response.Read(p)
	}
	s.Pos += int64(n)
	if n > 0 && s.Arrived != nil {
		s.Arrived.Add(int64(n))
	}
	if err == nil || err == io.EOF { //nolint:errorlint // io.EOF is compared unwrapped, as by io.ReadFull
		return n, err
	}
	return n, s.resume(err)
}

// Peek returns the first n bytes of the file, or fewer where it is shorter. The next Read returns them again.
func (s *Stream) Peek(n int) ([]byte, error) {
	head := make([]byte, n)
	got, err := io.ReadFull(s.response, head)
	if AtEnd(err) {
		err = nil
	}
	s.peeked = head[:got]
	return s.peeked, err
}

// resume requests the rest of the file after the error why, or returns an error if that is impossible.
func (s *Stream) resume(why error) error {
	var down *DownloadError
	if !errors.As(why, &down) || down.Fatal || s.validator == "" || s.Total < 0 || s.Pos >= s.Total {
		return why
	}
	if s.Pos-s.start >= minProgress {
		s.failedResumes = 0
	}
	if s.failedResumes >= s.fetcher.Retries {
		return why
	}
	s.fetcher.log.Warn("connection lost, resuming", "url", s.URL, "at", s.Pos, "bytes", s.Total, "err", why)
	if s.failedResumes > 0 {
		if err := s.fetcher.WaitRetry(s.ctx); err != nil {
			return err
		}
	}
	s.failedResumes, s.start = s.failedResumes+1, s.Pos
	s.response.Close() //nolint:errcheck // it has failed before
	b, err := s.fetcher.Open(s.ctx, s.address, &Range{Off: s.Pos, Len: s.Total - s.Pos, validator: s.validator})
	if err != nil {
		if errors.As(err, &down) && down.Status == http.StatusRequestedRangeNotSatisfiable {
			return s.changed(why)
		}
		return err
	}
	s.response = b
	same := b.validator == "" || b.validator == s.validator
	switch {
	case !same, b.Total != s.Total:
		return s.changed(why)
	case !b.Partial: // the server ignores ranges
		return why
	}
	s.Resumed++
	return nil
}

func (s *Stream) changed(why error) error {
	return &DownloadError{URL: s.URL, Err: fmt.Errorf("%w, after this: %w", errChanged, why)}
}

// CheckLength returns an error if the server announced another length than n bytes.
func (s *Stream) CheckLength(n int64) error {
	if s.Total < 0 || n == s.Total {
		return nil
	}
	return Interrupted(&DownloadError{
		URL: s.URL, Err: fmt.Errorf("%w: got %d bytes, want %d", errTruncated, n, s.Total),
	})
}

// SetFetcher replaces the fetcher. Its retries apply when a connection is lost.
func (s *Stream) SetFetcher(f *Fetcher) { s.fetcher = f }

// IsPart reports whether the stream ends with the part that was requested.
func (s *Stream) IsPart() bool { return s.response.Partial }

// Abort interrupts a Read.
func (s *Stream) Abort(error) { s.cancel(context.Canceled) }

// Close ends the request.
func (s *Stream) Close() error {
	s.cancel(nil)
	return s.response.Close()
}

// validatorOf returns the value for If-Range: a strong entity tag, or a modification date that is old enough in
// comparison with the date of the response to be strong (RFC 9110, section 8.8.2.2). It returns "" if there is
// neither.
func validatorOf(h http.Header) string {
	if tag := h.Get("ETag"); strings.HasPrefix(tag, `"`) {
		return tag
	}
	modified := h.Get("Last-Modified")
	at, err := http.ParseTime(modified)
	if err != nil {
		return ""
	}
	if now, err := http.ParseTime(h.Get("Date")); err != nil || now.Sub(at) < time.Second {
		return ""
	}
	return modified
}

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

// AtEnd reports whether err is the error of io.ReadFull at the end of a body, which is not wrapped. One that wraps
// io.EOF or io.ErrUnexpectedEOF means a lost connection.
func AtEnd(err error) bool {
	return err == io.EOF || err == io.ErrUnexpectedEOF //nolint:errorlint // see above
}
