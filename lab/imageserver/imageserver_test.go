package imageserver_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"

	"ironroot/lab/imageserver"
)

var content = bytes.Repeat([]byte("0123456789abcdef"), 64<<10) // 1 MiB

func serve(t *testing.T, o imageserver.Options) *imageserver.Server {
	t.Helper()
	s, err := imageserver.New(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	s.Bytes("image", content)
	return s
}

// answer is the reply to a request. The body may be incomplete.
type answer struct {
	status int
	length int64 // as announced, -1 is unknown
	tag    string
}

func get(t *testing.T, ctx context.Context, url, ranges string) (answer, []byte, error) {
	t.Helper()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	if ranges != "" {
		req.Header.Set("Range", ranges)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close() //nolint:errcheck // read to its end
	body, err := io.ReadAll(resp.Body)
	return answer{resp.StatusCode, resp.ContentLength, resp.Header.Get("ETag")}, body, err
}

// observer receives the numbers of bytes.
type observer chan int64

func (o observer) Served(_ string, sent int64) { o <- sent }

func TestServesWholeAndRanges(t *testing.T) {
	served := make(observer, 10)
	s := serve(t, imageserver.Options{Observer: served})
	resp, body, err := get(t, t.Context(), s.URL("image"), "")
	if err != nil || resp.status != http.StatusOK || !bytes.Equal(body, content) || resp.tag == "" {
		t.Errorf("whole: got %v, %d bytes, ETag %q, %v", resp.status, len(body), resp.tag, err)
	}
	resp, body, err = get(t, t.Context(), s.URL("image"), "bytes=16-31")
	if err != nil || resp.status != http.StatusPartialContent || !bytes.Equal(body, content[16:32]) {
		t.Errorf("range: got %v, %q, %v", resp.status, body, err)
	}
	if first, second := <-served, <-served; first != int64(len(content)) || second != 16 {
		t.Errorf("served: got %d and %d bytes, want %d and 16", first, second, len(content))
	}
	want := imageserver.Stats{Requests: 2, Ranges: 1, Bytes: int64(len(content)) + 16}
	if got := s.Stats("image"); got != want {
		t.Errorf("stats: got %+v, want %+v", got, want)
	}
	if resp, _, _ := get(t, t.Context(), s.URL("other"), ""); resp.status != http.StatusNotFound {
		t.Errorf("unknown name: got %d, want 404", resp.status)
	}
}

func TestServesFilesOverTLS(t *testing.T) {
	s := serve(t, imageserver.Options{TLS: true, Names: []string{"10.0.2.2"}})
	path := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(path, content, 0o600); err != nil {
		t.Fatal(err)
	}
	s.File("file", path)
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(s.CertificatePEM())
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots}}}
	resp, err := client.Get(s.URL("file"))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close() //nolint:errcheck // read to its end
	if body, err := io.ReadAll(resp.Body); err != nil || !bytes.Equal(body, content) {
		t.Errorf("got %d bytes, %v, want %d", len(body), err, len(content))
	}
}

func TestFaults(t *testing.T) {
	s := serve(t, imageserver.Options{})
	url := s.URL("image")

	s.Fault("image", imageserver.Fault{Status: http.StatusServiceUnavailable, Times: 2})
	for i, want := range []int{503, 503, 200} {
		if resp, _, _ := get(t, t.Context(), url, ""); resp.status != want {
			t.Errorf("request %d: got %d, want %d", i, resp.status, want)
		}
	}

	s.Fault("image", imageserver.Fault{Truncate: 1000})
	if resp, body, err := get(t, t.Context(), url, ""); err == nil || len(body) != 1000 ||
		resp.length != int64(len(content)) {
		t.Errorf("truncated: got %d of %d bytes, error %v", len(body), resp.length, err)
	}

	s.Fault("image", imageserver.Fault{Flip: 100})
	if _, body, err := get(t, t.Context(), url, ""); err != nil || body[99] != content[99]^0xff ||
		!bytes.Equal(body[100:], content[100:]) {
		t.Errorf("flipped: byte 99 is %#x, want %#x, error %v", body[99], content[99]^0xff, err)
	}
	if _, body, err := get(t, t.Context(), url, "bytes=98-100"); err != nil ||
		!bytes.Equal(body, []byte{content[98], content[99] ^ 0xff, content[100]}) {
		t.Errorf("flipped in a range: got %x, error %v", body, err)
	}

	s.Fault("image", imageserver.Fault{NoRange: true})
	if resp, body, err := get(t, t.Context(), url, "bytes=0-0"); err != nil || resp.status != 200 ||
		len(body) != len(content) {
		t.Errorf("without ranges: got %d, %d bytes, %v", resp.status, len(body), err)
	}
}

func TestEndlessAndStallLastUntilTheClientLeaves(t *testing.T) {
	s := serve(t, imageserver.Options{})
	s.Fault("image", imageserver.Fault{Endless: true})
	resp, err := http.Get(s.URL("image"))
	if err != nil {
		t.Fatal(err)
	}
	if n, err := io.CopyN(io.Discard, resp.Body, 8<<20); err != nil || resp.ContentLength != -1 {
		t.Errorf("endless: got %d bytes, length %d, %v", n, resp.ContentLength, err)
	}
	_ = resp.Body.Close() // there is no end to read to

	s.Fault("image", imageserver.Fault{Stall: 4096})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, s.URL("image"), nil)
	if err != nil {
		t.Fatal(err)
	}
	if resp, err = http.DefaultClient.Do(req); err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close() //nolint:errcheck // only read
	if _, err := io.ReadFull(resp.Body, make([]byte, 4096)); err != nil {
		t.Fatal(err)
	}
	time.AfterFunc(200*time.Millisecond, cancel) // from the last byte on
	if rest, err := io.ReadAll(resp.Body); !errors.Is(err, context.Canceled) || len(rest) > 0 {
		t.Errorf("stalled: got %d more bytes, %v, want none until the client leaves", len(rest), err)
	}
}
