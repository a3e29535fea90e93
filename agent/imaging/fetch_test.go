package imaging

import (
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"ironroot/agent/config"
	"ironroot/internal/test/piped"
	"ironroot/storage/configdrive"
)

// Images are fetched by HTTP/1.1 even if the server supports HTTP/2: it takes less processor time.
func TestImagesComeByHTTP1(t *testing.T) {
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, r.Proto)
	}))
	server.EnableHTTP2 = true
	server.StartTLS()
	defer server.Close()
	i := newImager(t, nil)
	i.o.Config.Update(func(c *config.Config) { c.Insecure = true })
	client, err := i.client(Proxies{})
	if err != nil {
		t.Fatal(err)
	}
	defer client.CloseIdleConnections()
	answer, err := client.Get(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close() //nolint:errcheck // only read
	if got, err := io.ReadAll(answer.Body); err != nil || string(got) != "HTTP/1.1" {
		t.Errorf("got %s and %v, want HTTP/1.1", got, err)
	}
}

// The download options apply to the download of an image.
func TestFetchLimits(t *testing.T) {
	i := newImager(t, nil)
	i.o.Config.Update(func(c *config.Config) {
		c.ImageDownloadConnectionTimeout, c.ImageDownloadConnectionRetries = time.Second, 2
		c.ImageDownloadConnectionRetryInterval = 3 * time.Second
		c.ImageDownloadMaxDuration = 4 * time.Second
		c.ImageDownloadMinRate = 5
	})
	got, err := i.fetchOptions(ImageInfo{})
	if err != nil {
		t.Fatal(err)
	}
	if got.ConnectTimeout != time.Second || got.Retries != 2 || got.RetryInterval != 3*time.Second ||
		got.MaxDuration != 4*time.Second || got.MinRate != 5 {
		t.Errorf("got %+v, want the limits of the options", got)
	}
}

// A config drive may take longer than the time limit of a read, but its server must not be silent or too slow, and
// the limit of the whole transfer applies.
//
// Parity: L5
func TestConfigDriveLimits(t *testing.T) {
	const size = 40 << 10
	sending := func(size, pieces int, pause time.Duration) http.HandlerFunc {
		drive := make([]byte, size)
		copy(drive[32768:], "\x01CD001\x01") // ISO 9660
		return func(w http.ResponseWriter, r *http.Request) {
			for piece := range slices.Chunk(drive, size/pieces) {
				select {
				case <-r.Context().Done():
					return
				case <-time.After(pause):
				}
				if _, err := w.Write(piece); err != nil {
					return
				}
				w.(http.Flusher).Flush()
			}
		}
	}
	synctest.Test(t, func(t *testing.T) {
		mux := http.NewServeMux()
		mux.HandleFunc("/slow", sending(size, 4, 9*time.Second))
		mux.HandleFunc("/stall", sending(size, 2, time.Hour))
		mux.HandleFunc("/long", sending(1<<20, 40, 9*time.Second))
		mux.HandleFunc("/drip", sending(size, size, 9*time.Second))
		client, stop := piped.Serve(mux)
		defer stop()
		i := newImager(t, nil)
		i.o.Config.Update(func(c *config.Config) {
			c.ImageDownloadConnectionTimeout, c.ImageDownloadMinRate = 10*time.Second, 1024
			c.ImageDownloadMaxDuration = 5 * time.Minute
		})
		for path, want := range map[string]string{
			"/slow": "", "/stall": "no data arrived in time", "/drip": "bytes per second over 2m6s, want at least 1024",
			"/long": "maximum duration reached",
		} {
			begin := time.Now()
			drive, err := configdrive.Load(t.Context(), "http://host"+path+"?key=secret",
				driveOpener{client, i.o.Config.Get()})
			if want == "" && (err != nil || len(drive) != size) {
				t.Errorf("%s: got %d bytes and %v, want the drive", path, len(drive), err)
			}
			if want != "" && (err == nil || !strings.Contains(err.Error(), want) ||
				!strings.Contains(err.Error(), "http://host"+path) || strings.Contains(err.Error(), "secret")) {
				t.Errorf("%s: got %v, want %q and the URL", path, err, want)
			}
			if took := time.Since(begin); path == "/stall" && took != 10*time.Second ||
				path == "/long" && took != 5*time.Minute {
				t.Errorf("%s: got an error after %v, want it after the time of the option", path, took)
			}
		}
	})
}
