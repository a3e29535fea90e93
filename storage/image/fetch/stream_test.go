package fetch

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"ironroot/internal/test/imagetest"
	"ironroot/storage/image/device"
)

// An error of the connection is not its end, whatever it wraps.
func TestBrokenConnectionIsNoEnd(t *testing.T) {
	for _, end := range []error{io.EOF, io.ErrUnexpectedEOF} {
		open := func() *Stream {
			ctx, cancel := context.WithCancelCause(t.Context())
			connection := io.MultiReader(strings.NewReader("begin"),
				iotest.ErrReader(fmt.Errorf("connection: %w", end)))
			b := &Response{
				ctx: ctx, cancel: cancel, body: io.NopCloser(connection), timer: time.NewTimer(time.Hour),
				stall: time.Hour, Total: -1,
			}
			return &Stream{ctx: ctx, cancel: cancel, response: b, Total: -1}
		}
		if head, err := open().Peek(device.HeadSize); !imagetest.IsA[*DownloadError](err) {
			t.Errorf("head: got %q, %v, want a DownloadError", head, err)
		}
		if data, err := io.ReadAll(open()); !imagetest.IsA[*DownloadError](err) {
			t.Errorf("stream: got %q, %v, want a DownloadError", data, err)
		}
	}
}

// A stream resumes after each lost connection, and no byte is sent twice.
func TestStreamResumes(t *testing.T) {
	data := imagetest.RandomBytes(23, 3*mib+17)
	f := &imagetest.Flaky{Data: data, Header: http.Header{"Etag": {`"one"`}}, Cuts: imagetest.Tenths(len(data))}
	got, s, err := readStream(t, Options{Retries: 10}, mustParse(imagetest.Serve(t, f.ServeHTTP).URL))
	if err != nil || !bytes.Equal(got, data) {
		t.Fatalf("got %d bytes and error %v, want %d", len(got), err, len(data))
	}
	if s.Resumed != 10 || f.Sent != int64(len(data)) || s.Pos != int64(len(data)) {
		t.Errorf("got %d resumed connections, %d bytes sent, and position %d, want 10 and twice %d",
			s.Resumed, f.Sent, s.Pos, len(data))
	}
}

// A stream ends with an error if it must not or cannot resume.
func TestStreamDoesNotResume(t *testing.T) {
	data := imagetest.RandomBytes(24, 3*mib)
	tag := http.Header{"Etag": {`"one"`}}
	for _, c := range []struct {
		name     string
		server   *imagetest.Flaky
		text     string
		requests int
	}{
		{"no validator", &imagetest.Flaky{}, "before the whole file had arrived", 1},
		{"no ranges", &imagetest.Flaky{Header: tag, NoRanges: true}, "before the whole file had arrived", 2},
		{"another file", &imagetest.Flaky{Header: tag, OnCut: func(f *imagetest.Flaky) {
			f.Header = http.Header{"Etag": {`"two"`}}
		}}, "the file on the server changed", 2},
		{"a shorter file", &imagetest.Flaky{Header: tag, IgnoreIfRange: true, OnCut: func(f *imagetest.Flaky) {
			f.Data = f.Data[:mib]
		}}, "the file on the server changed", 2},
		{"no progress", &imagetest.Flaky{Header: tag, OnCut: func(f *imagetest.Flaky) {
			f.Cuts = []int64{2 * mib}
		}}, "before the whole file had arrived", 4},
	} {
		t.Run(c.name, func(t *testing.T) {
			c.server.Data, c.server.Cuts = data, []int64{2 * mib}
			got, _, err := readStream(t, Options{Retries: 3}, mustParse(imagetest.Serve(t, c.server.ServeHTTP).URL))
			if !imagetest.IsA[*DownloadError](err) || !strings.Contains(err.Error(), c.text) || len(got) != 2*mib {
				t.Errorf("got %d bytes and error %v, want %d and %q", len(got), err, 2*mib, c.text)
			}
			if len(c.server.Ranges) != c.requests {
				t.Errorf("got requests for the ranges %q, want %d", c.server.Ranges, c.requests)
			}
		})
	}
}
