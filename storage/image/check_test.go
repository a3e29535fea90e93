package image

import (
	"bytes"
	"context"
	"errors"
	"net/http"
	"strconv"
	"testing"
	"time"

	"ironroot/internal/test/imagetest"
	"ironroot/storage/image/device"
	"ironroot/storage/image/fetch"
)

func TestCheck(t *testing.T) {
	raw := imagetest.RandomBytes(1, 3*mib)
	qcow := simpleImage(t) // of 8 MiB
	backed := bytes.Clone(qcow)
	backed[15] = 16 // the length of a backing file's name at an offset
	for name, c := range map[string]struct {
		format  string
		data    []byte
		answer  func([]byte) http.HandlerFunc
		size    int64
		need    int64 // of a TooSmallError
		refused bool  // by a FormatError
	}{
		"raw that fits":             {"raw", raw, imagetest.Content, 3 * mib, 0, false},
		"raw that does not":         {"raw", raw, imagetest.Content, 3*mib - 1, 3 * mib, false},
		"raw without ranges":        {"raw", raw, imagetest.WithoutRanges, 3*mib - 1, 3 * mib, false},
		"raw, detected":             {"", raw, imagetest.Content, 3 * mib, 0, false},
		"qcow2 that fits":           {"qcow2", qcow, imagetest.Content, 8 * mib, 0, false},
		"qcow2 that does not":       {"qcow2", qcow, imagetest.Content, 8*mib - 1, 8 * mib, false},
		"not the format it says":    {"qcow2", raw, imagetest.Content, 3 * mib, 0, true},
		"qcow2 with a backing file": {"qcow2", backed, imagetest.Content, 8 * mib, 0, true},
		"a server that cannot now": {
			"raw", raw, func([]byte) http.HandlerFunc { return imagetest.Status(503) }, 1, 0, false,
		},
		"qcow2 on a server that died": {
			"qcow2", qcow, func([]byte) http.HandlerFunc { return imagetest.Status(503) }, 1, 0, false,
		},
	} {
		t.Run(name, func(t *testing.T) {
			server := imagetest.Serve(t, c.answer(c.data))
			src := Source{
				URLs: urls(server.URL), Format: c.format, Checksum: sha256Of(c.data),
				Fetch: fetch.Options{Retries: 3, RetryInterval: time.Hour},
			}
			err := Check(t.Context(), "/dev/root", c.size, src, Options{})
			var small *device.TooSmallError
			var format *FormatError
			switch {
			case c.need > 0:
				if !errors.As(err, &small) || small.Need != c.need || small.Size != c.size ||
					small.Device != "/dev/root" {
					t.Errorf("got %v, want a TooSmallError for %d bytes", err, c.need)
				}
			case c.refused:
				if !errors.As(err, &format) {
					t.Errorf("got %v, want a FormatError", err)
				}
			case err != nil:
				t.Errorf("got %v, want nil", err)
			}
		})
	}
	t.Run("cancelled", func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		server := imagetest.Serve(t, imagetest.Content(raw))
		if err := Check(ctx, "", 1, rawSource(raw, server.URL), Options{}); !errors.Is(err, context.Canceled) {
			t.Errorf("got %v, want %v", err, context.Canceled)
		}
	})
	// A server that sends the whole file is not left waiting until somebody takes it.
	t.Run("hangs up", func(t *testing.T) {
		gone := make(chan struct{})
		server := imagetest.Serve(t, func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Length", strconv.Itoa(len(qcow)+1))
			w.Write(qcow) //nolint:errcheck // the client may disconnect
			w.(http.Flusher).Flush()
			<-r.Context().Done()
			close(gone)
		})
		if err := Check(t.Context(), "", 8*mib, qcowSource(qcow, server.URL), Options{}); err != nil {
			t.Fatal(err)
		}
		select {
		case <-gone:
		case <-time.After(time.Minute):
			t.Error("the connection is still open")
		}
	})
}
