package image

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"
)

// fruitful is how much has to arrive over a connection before its breaking off is no reason to lose patience.
const fruitful = chunkSize

var errChanged = errors.New("the file on the server changed while it was fetched")

// stream is the whole of a file as one sequence of bytes. Where a connection breaks off or falls silent, the next one
// asks for the rest, on the condition that the file is still the same (RFC 9110, section 13.1.5). A server that gives no
// validator, knows no ranges or has another file by now ends the stream with an error.
type stream struct {
	fetch     *fetcher
	ctx       context.Context
	cancel    context.CancelCauseFunc
	rawURL    string
	url       string // for errors
	validator string // "" where the server gives none
	total     int64  // of the file, -1 unknown
	resumed   int    // connections after the first
	onRead    func(n int)

	body    *body
	again   []byte // what was read of the body already, and is handed out once more
	pos     int64  // of the next byte
	since   int64  // pos when the present connection began
	patient int    // connections in a row that brought little
}

// openStream asks for the whole file, or for a part that begins where the file does.
func (f *fetcher) openStream(ctx context.Context, rawURL string, part *span) (*stream, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	b, err := f.open(ctx, rawURL, part)
	if err != nil {
		cancel(nil)
		return nil, err
	}
	return &stream{
		fetch: f, ctx: ctx, cancel: cancel, rawURL: rawURL, url: b.url, validator: b.validator, total: b.total, body: b,
	}, nil
}

// Read ends with io.EOF only where the server's answer is complete.
func (s *stream) Read(p []byte) (int, error) {
	n, err := copy(p, s.again), error(nil)
	if s.again = s.again[n:]; n == 0 {
		n, err = s.body.Read(p)
	}
	s.pos += int64(n)
	if n > 0 && s.onRead != nil {
		s.onRead(n)
	}
	if err == nil || err == io.EOF { //nolint:errorlint // io.EOF is compared unwrapped, as by io.ReadFull
		return n, err
	}
	return n, s.resume(err)
}

// peek reads the file's first MiB, or less where it is shorter, without the stream's going on.
func (s *stream) peek() ([]byte, error) {
	head := make([]byte, headSize)
	n, err := io.ReadFull(s.body, head)
	if atEnd(err) {
		err = nil
	}
	s.again = head[:n]
	return s.again, err
}

// resume opens a connection for the rest of the file, or returns why that cannot be.
func (s *stream) resume(why error) error {
	var down *DownloadError
	if !errors.As(why, &down) || down.Fatal || s.validator == "" || s.total < 0 || s.pos >= s.total {
		return why
	}
	if s.pos-s.since >= fruitful {
		s.patient = 0
	}
	if s.patient >= s.fetch.Retries {
		return why
	}
	s.fetch.log.Warn("the connection broke off, asking for the rest", "url", s.url, "at", s.pos, "bytes", s.total, "err", why)
	if s.patient > 0 {
		if err := pause(s.ctx, s.fetch.RetryInterval); err != nil {
			return err
		}
	}
	s.patient, s.since = s.patient+1, s.pos
	s.body.Close() //nolint:errcheck // it has failed already
	b, err := s.fetch.open(s.ctx, s.rawURL, &span{off: s.pos, len: s.total - s.pos, validator: s.validator})
	if err != nil {
		if errors.As(err, &down) && down.Status == http.StatusRequestedRangeNotSatisfiable {
			return s.changed(why)
		}
		return err
	}
	s.body = b
	same := b.validator == "" || b.validator == s.validator
	switch {
	case !same, b.total != s.total:
		return s.changed(why)
	case !b.partial: // the server does not know ranges after all
		return why
	}
	s.resumed++
	return nil
}

func (s *stream) changed(why error) error {
	return &DownloadError{URL: s.url, Err: fmt.Errorf("%w, after this: %w", errChanged, why)}
}

// abort makes a Read that is under way return.
func (s *stream) abort(error) { s.cancel(context.Canceled) }

// Close ends the request, whatever has not arrived yet.
func (s *stream) Close() error {
	s.cancel(nil)
	return s.body.Close()
}

// validatorOf returns what If-Range may be asked with: a strong entity tag, or a date of change that is far enough from
// the date of the answer to be one (RFC 9110, section 8.8.2.2).
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
