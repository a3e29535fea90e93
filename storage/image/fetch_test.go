package image

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/iotest"
	"time"
)

func TestContentRange(t *testing.T) {
	for text, want := range map[string]struct{ first, total int64 }{
		"bytes 0-9/10":         {0, 10},
		"bytes 512-1023/99999": {512, 99999},
		"bytes 5-6/*":          {5, -1},
	} {
		if first, total, err := parseContentRange(text); err != nil || first != want.first || total != want.total {
			t.Errorf("%q: got %d, %d, %v, want %+v", text, first, total, err, want)
		}
	}
	for _, text := range []string{"", "bytes", "bytes 1", "bytes -5/10", "bytes 1-2/-3", "items 0-9/10", "bytes 0-9/99999999999999999999"} {
		if first, total, err := parseContentRange(text); err == nil {
			t.Errorf("%q was read as %d, %d", text, first, total)
		}
	}
}

// A server that answers with another range than the one asked for cannot be used.
func TestWrongRange(t *testing.T) {
	image := simpleImage(t)
	server := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Range", "bytes 4096-8191/1000000")
		w.WriteHeader(http.StatusPartialContent)
		w.Write(image[4096:8192]) //nolint:errcheck // the client may go
	})
	disk := usedDisk(t, 16*mib)
	_, err := Write(t.Context(), disk, qcowSource(image, server.URL), Options{})
	if !isA[*DownloadError](err) || !strings.Contains(err.Error(), "got bytes from 4096 on, want them from 0") {
		t.Errorf("got error %v, want one about the range", err)
	}
	mustNotBoot(t, disk)
}

// An error of the connection is none of its end, whatever it wraps.
func TestBrokenConnectionIsNoEnd(t *testing.T) {
	for _, end := range []error{io.EOF, io.ErrUnexpectedEOF} {
		open := func() *stream {
			ctx, cancel := context.WithCancelCause(t.Context())
			connection := io.MultiReader(strings.NewReader("begin"), iotest.ErrReader(fmt.Errorf("connection: %w", end)))
			b := &body{ctx: ctx, cancel: cancel, stream: io.NopCloser(connection), timer: time.NewTimer(time.Hour), stall: time.Hour, total: -1}
			return &stream{ctx: ctx, cancel: cancel, body: b, total: -1}
		}
		if head, err := open().peek(); !isA[*DownloadError](err) {
			t.Errorf("head: got %q, %v, want a DownloadError", head, err)
		}
		place := func(*chunk, func(func() error) error) error { return nil }
		p := &pipeline{source: open(), place: place, memory: newChunks()}
		if n, err := p.run(t.Context()); !isA[*DownloadError](err) {
			t.Errorf("pipeline: got %d bytes, %v, want a DownloadError", n, err)
		}
	}
}

func TestRedactURL(t *testing.T) {
	for raw, want := range map[string]string{
		"http://host/a/image.raw":                    "http://host/a/image.raw",
		"https://user:secret@host:8443/a?sig=secret": "https://host:8443/a?...",
		"http://host/a#secret":                       "http://host/a",
		"http://user:secret@[::1/x":                  "(unreadable URL)",
	} {
		if got := redactURL(raw); got != want {
			t.Errorf("%q: got %q, want %q", raw, got, want)
		}
	}
}

func TestSnapshotText(t *testing.T) {
	for want, s := range map[string]Snapshot{
		"transfer: 512 of 1024 MiB (50 %)": {Phase: PhaseTransfer, Attempt: 1, Read: 512 * mib, Total: 1024 * mib},
		"transfer: 3 MiB, attempt 2":       {Phase: PhaseTransfer, Attempt: 2, Read: 3 * mib},
		"waiting: 0 MiB":                   new(Progress).Snapshot(),
	} {
		if got := s.String(); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}
