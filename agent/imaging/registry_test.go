package imaging

import (
	"bytes"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"

	"ironroot/agent/config"
	"ironroot/agent/journal"
	"ironroot/internal/test/testenv"
)

// A reference to a registry is sufficient as image_info: token, manifest and digest come from the registry. The token
// is not logged, even if a server repeats it.
func TestPrepareFromRegistry(t *testing.T) {
	t.Parallel() // sgdisk sleeps
	testenv.Programs(t, "sgdisk")
	disk, i := loopDisk(t)
	path := osImage(t)
	const token = "a-token-of-the-registry"
	mux := http.NewServeMux()
	guarded := func(serve http.HandlerFunc) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			if r.Header.Get("Authorization") != "Bearer "+token {
				w.Header().Set("WWW-Authenticate", `Bearer realm="https://`+r.Host+`/token"`)
				http.Error(w, "who are you", http.StatusUnauthorized)
				return
			}
			serve(w, r)
		}
	}
	digest := "sha256:" + sumOf(t, path, 0, imageSize)
	mux.HandleFunc("/token", func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprintf(w, `{"token": %q}`, token) //nolint:errcheck // the client may go
	})
	mux.HandleFunc("/v2/os/image/manifests/1", guarded(func(w http.ResponseWriter, _ *http.Request) {
		//nolint:errcheck // the client may go
		fmt.Fprintf(w, `{"artifactType": "application/x-disk", "layers": [{"digest": %q}]}`, digest)
	}))
	blobs := 0
	mux.HandleFunc("/v2/os/image/blobs/"+digest, guarded(func(w http.ResponseWriter, r *http.Request) {
		blobs++
		http.ServeFile(w, r, path)
	}))
	registry := httptest.NewTLSServer(mux)
	t.Cleanup(registry.Close)
	var console bytes.Buffer
	i.o.Journal = journal.New(&console, &slog.LevelVar{}, 1<<20)
	i.o.Log = i.o.Journal.Logger()
	i.o.Config.Update(func(c *config.Config) { c.Insecure = true })
	info := ImageInfo{
		ID: "inst.raw", Source: Source{
			Registry: "oci" + strings.TrimPrefix(registry.URL, "https") + "/os/image:1", Format: "raw",
		},
	}
	for range 2 { // the second time it is there
		if _, err := i.Prepare(t.Context(), info, ""); err != nil {
			t.Fatal(err)
		}
	}
	if got, want := sumOf(t, disk, mib, 16*mib), sumOf(t, path, mib, 16*mib); got != want || blobs != 1 {
		t.Errorf("partition 1: got SHA-256 %s after %d downloads, want %s after one", got, blobs, want)
	}
	i.o.Log.Info("somebody says " + token)
	text := console.String()
	if strings.Contains(text, token) || !strings.Contains(text, "image found in the registry") {
		t.Errorf("got log %s, want the blob's URL and no token", text)
	}
	missing := info
	missing.Source.Registry += "0"
	if _, err := i.Prepare(t.Context(), missing, ""); typeOf(err) != "ImageDownloadFatalError" ||
		!strings.Contains(err.Error(), "404") {
		t.Errorf("no such manifest: got %s (%v), want an ImageDownloadFatalError with status 404", typeOf(err), err)
	}
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close() //nolint:errcheck // closed after the last write
	if _, err := f.WriteAt([]byte("other"), 2*mib); err != nil {
		t.Fatal(err)
	}
	i.forget()
	if _, err := i.Prepare(t.Context(), info, ""); typeOf(err) != "ImageChecksumError" {
		t.Errorf("another blob than the manifest says: got %v, want an ImageChecksumError", err)
	}
}
