package image

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"ironroot/internal/piped"
)

// dripping sends the header at once and then a byte of data in every interval.
func dripping(data []byte, interval time.Duration) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Length", fmt.Sprint(len(data)))
		w.WriteHeader(http.StatusOK)
		w.(http.Flusher).Flush()
		for i := range data {
			select {
			case <-r.Context().Done():
				return
			case <-time.After(interval):
			}
			if _, err := w.Write(data[i : i+1]); err != nil {
				return
			}
			w.(http.Flusher).Flush()
		}
	}
}

// Every kind of fetch ends within minutes if a server sends single bytes just often enough not to stall.
func TestSlowServer(t *testing.T) {
	const address = "http://server/file?token=secret"
	data := randomBytes(7, 8*mib)
	disk := usedDisk(t, 16*mib)
	for _, tt := range []struct {
		name  string
		limit time.Duration // of the download
		is    func(error) bool
		want  []string
		fetch func(ctx context.Context, f Fetch) error
	}{
		{
			name: "raw image", limit: 5 * time.Minute, is: isA[*SlowError],
			want: []string{"http://server/file?...", "0.0", "bytes per second", "at least 1024"},
			fetch: func(ctx context.Context, f Fetch) error {
				_, err := Write(ctx, disk, Source{URLs: []string{address}, Format: "raw", Checksum: sha256Of(data), Fetch: f}, Options{})
				return err
			},
		},
		{
			name: "image that is inspected first", limit: 10 * time.Minute, is: isA[*SlowError],
			want: []string{"http://server/file?...", "at least 1024"},
			fetch: func(ctx context.Context, f Fetch) error {
				_, err := Write(ctx, disk, Source{URLs: []string{address}, Format: "qcow2", Checksum: sha256Of(data), Fetch: f}, Options{})
				return err
			},
		},
		{
			name: "two servers", limit: 30 * time.Minute, is: isA[*SlowError],
			want: []string{"http://server/file?...", "at least 1024"},
			fetch: func(ctx context.Context, f Fetch) error {
				_, err := Write(ctx, disk, Source{URLs: []string{address, address}, Format: "raw", Checksum: sha256Of(data), Fetch: f}, Options{})
				return err
			},
		},
		{
			name: "checksum file", limit: 5 * time.Minute, is: isA[*TimeoutError],
			want: []string{"http://server/file?...", "longer than the maximum of 5m0s"},
			fetch: func(ctx context.Context, f Fetch) error {
				f.MinRate = 0
				_, err := ResolveChecksum(ctx, f, address, "", "http://server/image", false)
				return err
			},
		},
		{
			name: "config drive", limit: 5 * time.Minute, is: isA[*SlowError],
			want: []string{"http://server/file?...", "at least 1024"},
			fetch: func(ctx context.Context, f Fetch) error {
				drive, err := Open(ctx, f, address)
				if err != nil {
					return err
				}
				defer drive.Close() //nolint:errcheck // only read
				_, err = io.Copy(io.Discard, drive)
				return err
			},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				client, stop := piped.Serve(dripping(data, 55*time.Second))
				defer stop()
				begin := time.Now()
				err := tt.fetch(t.Context(), Fetch{Client: client, Retries: 9, RetryInterval: 10 * time.Second, MinRate: 1024})
				if took := time.Since(begin); !tt.is(err) || took > tt.limit {
					t.Errorf("got %T %v after %v, want the error of a slow server within %v", err, err, took, tt.limit)
				}
				for _, want := range append(tt.want, "download ") {
					if !strings.Contains(fmt.Sprint(err), want) {
						t.Errorf("got %v, want %q in it", err, want)
					}
				}
				if strings.Contains(fmt.Sprint(err), "secret") {
					t.Errorf("got %v, want no query in it", err)
				}
			})
		})
	}
}

// A manifest and a token have fixed limits of their own, whatever the options say.
func TestSlowRegistry(t *testing.T) {
	hold := func(w http.ResponseWriter, r *http.Request) {
		w.Write([]byte(" "))     //nolint:errcheck // the client may go
		w.(http.Flusher).Flush() // a byte, and nothing more until the client goes
		<-r.Context().Done()
	}
	t.Run("token", func(t *testing.T) {
		f, reference := tokenRegistry(t, bearerOf, hold)
		f.smallFile = 200 * time.Millisecond
		_, err := ResolveOCI(t.Context(), f, reference, "amd64")
		if !isA[*TimeoutError](err) || strings.Contains(err.Error(), "secret") || !strings.Contains(err.Error(), "200ms") {
			t.Errorf("got %T %v, want a TimeoutError with the limit", err, err)
		}
	})
	t.Run("manifest", func(t *testing.T) {
		r := newRegistry(t, "")
		r.files = http.HandlerFunc(hold)
		f := r.fetch("")
		f.smallFile = 200 * time.Millisecond
		_, err := ResolveOCI(t.Context(), f, "oci://"+r.host()+"/os/image", "amd64")
		if !isA[*TimeoutError](err) || !strings.Contains(err.Error(), "/v2/os/image/manifests/latest") {
			t.Errorf("got %T %v, want a TimeoutError on the manifest", err, err)
		}
	})
}

// Time between reads does not count, and a low rate within a window is no error.
func TestRateMeter(t *testing.T) {
	m := &rateMeter{minimum: 1000, window: time.Minute}
	for range 100 {
		if err := m.add(30_000, 30*time.Second, "u"); err != nil {
			t.Fatal(err)
		}
	}
	if err := m.add(0, 59*time.Second, "u"); err != nil {
		t.Errorf("before the end of a window: got %v", err)
	}
	err := m.add(59_999, time.Second, "u")
	var slow *SlowError
	if !errors.As(err, &slow) || slow.Min != 1000 || slow.Window != time.Minute || !slow.Timeout() {
		t.Errorf("got %v, want a SlowError", err)
	}
	none := &rateMeter{window: time.Minute}
	if err := none.add(0, time.Hour, "u"); err != nil {
		t.Errorf("without a minimum: got %v", err)
	}
}

// After a slow server, the next URL is tried.
func TestSlowServerThenAnother(t *testing.T) {
	data := randomBytes(8, 3*mib)
	disk := usedDisk(t, 4*mib)
	synctest.Test(t, func(t *testing.T) {
		mux := http.NewServeMux()
		mux.HandleFunc("/slow", dripping(data, 20*time.Second))
		mux.HandleFunc("/good", whole(data))
		client, stop := piped.Serve(mux)
		defer stop()
		src := Source{URLs: []string{"http://server/slow", "http://server/good"}, Format: "raw", Checksum: sha256Of(data)}
		src.Fetch = Fetch{Client: client, Retries: 1, MinRate: 1024}
		if report, err := Write(t.Context(), disk, src, Options{}); err != nil || report.URL != "http://server/good" {
			t.Errorf("got %+v and %v, want the image of the second server", report, err)
		}
	})
}

// Connect and each read have a time limit; a whole config drive has only the minimum rate.
//
// Parity: L5
func TestOpenLimitsEachRead(t *testing.T) {
	data := randomBytes(9, 20)
	synctest.Test(t, func(t *testing.T) {
		mux := http.NewServeMux()
		mux.HandleFunc("/drip", dripping(data, 50*time.Second))
		mux.HandleFunc("/stall", stalled(data, 5))
		mux.HandleFunc("/silent", func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
		client, stop := piped.Serve(mux)
		defer stop()
		read := func(path string) ([]byte, error) {
			drive, err := Open(t.Context(), Fetch{Client: client, ConnectTimeout: time.Minute}, "http://server"+path)
			if err != nil {
				return nil, err
			}
			defer drive.Close() //nolint:errcheck // only read
			return io.ReadAll(drive)
		}
		if got, err := read("/drip"); err != nil || len(got) != len(data) {
			t.Errorf("reads of 50 s: got %d bytes and %v, want all", len(got), err)
		}
		for _, path := range []string{"/stall", "/silent"} {
			begin := time.Now()
			if _, err := read(path); !errors.Is(err, errStalled) || time.Since(begin) != time.Minute {
				t.Errorf("%s: got %v after %v, want the end of the time for one read", path, err, time.Since(begin))
			}
		}
	})
}

// After a stall the rest is requested again, however long a read may take: stalls have retries of their own and do not
// count as a low rate.
func TestStallIsNoLowRate(t *testing.T) {
	data := randomBytes(10, 12*mib)
	disk := usedDisk(t, 16*mib)
	synctest.Test(t, func(t *testing.T) {
		f := &fragile{data: data, header: http.Header{"Etag": {`"one"`}}, cuts: []int64{5 * mib, 5*mib + 100}, ends: func() {}}
		client, stop := piped.Serve(f)
		defer stop()
		src := rawSource(data, "http://server/image")
		src.Fetch = Fetch{Client: client, Retries: 3, RetryInterval: 10 * time.Second, MinRate: 1024, rateWindow: 30 * time.Second}
		if report, err := Write(t.Context(), disk, src, Options{}); err != nil || report.Resumed != 2 {
			t.Errorf("got %+v and %v, want an image in three connections", report, err)
		}
	})
}
