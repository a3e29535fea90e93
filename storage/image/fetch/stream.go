package fetch

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"
)

// minProgress is the number of bytes that a connection must deliver before its loss resets the retry budget.
const minProgress = 4 << 20

var errChanged = errors.New("the file on the server changed while it was fetched")

// Stream reads a whole file. If a connection is lost or stalls, the stream resumes: it requests the rest, on the
// condition that the file is still the same (RFC 9110, section 13.1.5). If the server sends no validator, ignores
// ranges or has another file by then, Read returns the error.
type Stream struct {
	URL     string      // without credentials and query
	Total   int64       // length of the file in bytes, -1 if unknown
	Pos     int64       // offset of the next byte
	Resumed int         // connections after the first
	OnRead  func(n int) // called after a Read of n bytes; may be nil

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
	if n > 0 && s.OnRead != nil {
		s.OnRead(n)
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
