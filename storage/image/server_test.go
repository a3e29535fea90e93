package image

import (
	"bytes"
	"crypto/md5"
	"crypto/sha256"
	"crypto/sha512"
	"encoding/hex"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// script is a server that answers its requests one after another by its steps; the last step repeats.
type script struct {
	*httptest.Server
	requests atomic.Int64
	mu       sync.Mutex
	headers  []http.Header
}

func serve(t testing.TB, steps ...http.HandlerFunc) *script {
	t.Helper()
	s := &script{}
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		n := int(s.requests.Add(1))
		s.mu.Lock()
		s.headers = append(s.headers, r.Header.Clone())
		s.mu.Unlock()
		steps[min(n, len(steps))-1](w, r)
	}))
	t.Cleanup(func() {
		s.CloseClientConnections()
		s.Close()
	})
	return s
}

// content answers with data, ranges too.
func content(data []byte) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(data))
	}
}

// whole answers with data and knows no ranges.
func whole(data []byte) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", fmt.Sprint(len(data)))
		w.Write(data) //nolint:errcheck // the client may go
	}
}

func status(code int) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "no", code) }
}

// truncated promises all of data and closes the connection after n bytes.
func truncated(data []byte, n int) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", fmt.Sprint(len(data)))
		w.Write(data[:n]) //nolint:errcheck // the client may go
		panic(http.ErrAbortHandler)
	}
}

// stalled sends n bytes of data and then nothing until the client goes.
func stalled(data []byte, n int) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Length", fmt.Sprint(len(data)))
		w.Write(data[:n]) //nolint:errcheck // the client may go
		w.(http.Flusher).Flush()
		<-r.Context().Done()
	}
}

// endless repeats data for ever and tells no length.
func endless(data []byte) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		for {
			if _, err := w.Write(data); err != nil {
				return
			}
		}
	}
}

// randomBytes are the same for the same seed.
func randomBytes(seed uint64, n int) []byte {
	data := make([]byte, n)
	r := rand.NewChaCha8([32]byte{byte(seed), byte(seed >> 8)})
	r.Read(data) //nolint:errcheck // never fails
	return data
}

func sha256Of(data []byte) Checksum {
	sum := sha256.Sum256(data)
	return Checksum{Algorithm: "sha256", Value: hex.EncodeToString(sum[:])}
}

func sha512Of(data []byte) Checksum {
	sum := sha512.Sum512(data)
	return Checksum{Algorithm: "sha512", Value: hex.EncodeToString(sum[:])}
}

func md5Of(data []byte) Checksum {
	sum := md5.Sum(data)
	return Checksum{Algorithm: "md5", Value: hex.EncodeToString(sum[:])}
}

// usedDisk returns a file that stands for a disk with an older system on it: every byte is 0xA5.
func usedDisk(t testing.TB, size int) string {
	t.Helper()
	name := filepath.Join(shm(t), "disk")
	if err := os.WriteFile(name, bytes.Repeat([]byte{0xa5}, size), 0o600); err != nil {
		t.Fatal(err)
	}
	return name
}

// shm returns a folder in memory: hundreds of small disks are not to wait for the one of this machine.
func shm(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("/dev/shm", "ironroot-image")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	return dir
}

func readAt(t testing.TB, name string, off int64, n int) []byte {
	t.Helper()
	f, err := os.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close() //nolint:errcheck // only read
	data := make([]byte, n)
	if _, err := f.ReadAt(data, off); err != nil && err != io.EOF {
		t.Fatal(err)
	}
	return data
}

// mustNotBoot fails unless the first and the last MiB of a disk are zero.
func mustNotBoot(t testing.TB, disk string) {
	t.Helper()
	f, err := os.Open(disk)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close() //nolint:errcheck // only read
	size, err := f.Seek(0, io.SeekEnd)
	if err != nil {
		t.Fatal(err)
	}
	for _, off := range []int64{0, max(0, size-endSize)} {
		if !isZero(readAt(t, disk, off, int(min(headSize, size-off)))) {
			t.Errorf("%s has content within the MiB at %d, want zeros", disk, off)
		}
	}
}

// mustBeUntouched fails unless every byte of a used disk is what it was.
func mustBeUntouched(t testing.TB, disk string) {
	t.Helper()
	if data := mustRead(t, disk); data[0] != 0xa5 || !bytes.Equal(data[1:], data[:len(data)-1]) {
		t.Errorf("%s was written to", disk)
	}
}

func testLog(t testing.TB) *slog.Logger {
	return slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelDebug}))
}
