package fetch

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"ironroot/internal/test/imagetest"
	"ironroot/internal/test/piped"
)

// Manifests and tokens have fixed limits, independent of the options.
func TestSlowRegistry(t *testing.T) {
	hold := func(w http.ResponseWriter, r *http.Request) {
		w.Write([]byte(" "))     //nolint:errcheck // the client may disconnect
		w.(http.Flusher).Flush() // one byte, and nothing more until the client disconnects
		<-r.Context().Done()
	}
	t.Run("token", func(t *testing.T) {
		f, reference := tokenRegistry(t, bearerOf, hold)
		f.smallFile = 200 * time.Millisecond
		_, err := ResolveOCI(t.Context(), f, reference, "amd64")
		if !imagetest.IsA[*TimeoutError](err) || strings.Contains(err.Error(), "secret") ||
			!strings.Contains(err.Error(), "200ms") {
			t.Errorf("got %T %v, want a TimeoutError with the limit", err, err)
		}
	})
	t.Run("manifest", func(t *testing.T) {
		r := newRegistry(t, "")
		r.files = http.HandlerFunc(hold)
		f := r.fetch("")
		f.smallFile = 200 * time.Millisecond
		_, err := ResolveOCI(t.Context(), f, "oci://"+r.host()+"/os/image", "amd64")
		if !imagetest.IsA[*TimeoutError](err) || !strings.Contains(err.Error(), "/v2/os/image/manifests/latest") {
			t.Errorf("got %T %v, want a TimeoutError on the manifest", err, err)
		}
	})
}

// Time between reads does not count, and a low rate within a window is not an error.
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

// Connect and each read have a time limit; a whole config drive has only the minimum rate.
//
// Parity: L5
func TestOpenLimitsEachRead(t *testing.T) {
	data := imagetest.RandomBytes(9, 20)
	synctest.Test(t, func(t *testing.T) {
		mux := http.NewServeMux()
		mux.HandleFunc("/drip", imagetest.Dripping(data, 50*time.Second))
		mux.HandleFunc("/stall", imagetest.Stalled(data, 5))
		mux.HandleFunc("/silent", func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
		client, stop := piped.Serve(mux)
		defer stop()
		read := func(path string) ([]byte, error) {
			drive, err := Open(t.Context(), Options{Client: client, ConnectTimeout: time.Minute}, "http://server"+path)
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

// After a stall the stream resumes: stalls have retries of their own and do not count as a low rate.
func TestStallIsNoLowRate(t *testing.T) {
	data := imagetest.RandomBytes(10, 12*mib)
	synctest.Test(t, func(t *testing.T) {
		f := &imagetest.Flaky{
			Data: data, Header: http.Header{"Etag": {`"one"`}}, Cuts: []int64{5 * mib, 5*mib + 100}, Silent: true,
		}
		client, stop := piped.Serve(f)
		defer stop()
		fetch := Options{
			Client: client, Retries: 3, RetryInterval: 10 * time.Second, MinRate: 1024, rateWindow: 30 * time.Second,
		}
		got, stream, err := readStream(t, fetch, mustParse("http://server/image"))
		if err != nil || stream.Resumed != 2 || !bytes.Equal(got, data) {
			t.Errorf("got %d bytes and %v, want the file in three connections", len(got), err)
		}
	})
}
