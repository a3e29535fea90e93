package imaging

import (
	"bytes"
	"errors"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"ironroot/agent/config"
	"ironroot/agent/journal"
	"ironroot/internal/test/imagetest"
	"ironroot/storage/image/fetch"
)

// openServer serves files by HTTPS, and counts its connections.
func openServer(t *testing.T) (*httptest.Server, *imagetest.Connections) {
	t.Helper()
	end := make(chan struct{})
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if user, _, _ := r.BasicAuth(); user == "configured" {
			t.Errorf("%s was requested with the credentials of images", r.URL)
		}
		switch r.URL.Path {
		case "/file":
			_, _ = io.WriteString(w, "content")
		case "/silent":
			w.(http.Flusher).Flush()
			<-end // and not with the connection: it would end the body while the client closes that
		default:
			w.WriteHeader(http.StatusNotFound) // without a body, the connection can be used again
		}
	}))
	server.Config.ErrorLog = log.New(io.Discard, "", 0)
	connections := imagetest.CountConnections(server)
	server.StartTLS()
	t.Cleanup(func() {
		close(end)
		server.Close()
	})
	return server, connections
}

// A file is opened without the credentials of images, and leaves no connection. Passwords in its URL are redacted.
func TestOpen(t *testing.T) {
	server, connections := openServer(t)
	var console bytes.Buffer
	i := newImager(t, nil)
	i.o.Journal = journal.New(&console, nil, 1<<20)
	i.o.Config.Update(func(c *config.Config) {
		c.ImageServerAuthStrategy, c.ImageServerUser, c.ImageServerPassword = "http_basic", "configured", "x"
		c.ImageDownloadConnectionTimeout = time.Minute
	})
	if _, err := i.Open(t.Context(), server.URL+"/file", true); err == nil ||
		!strings.Contains(err.Error(), "certificate") {
		t.Errorf("got %v, want an error for the certificate", err)
	}
	connections.AwaitClosed(t, "wrong certificate")
	file, err := i.Open(t.Context(), strings.Replace(server.URL, "//", "//me:hidden-password@", 1)+"/file", false)
	if err != nil {
		t.Fatal(err)
	}
	if text, err := io.ReadAll(file); err != nil || string(text) != "content" {
		t.Errorf("got %q and %v, want the content", text, err)
	}
	if err := file.Close(); err != nil {
		t.Error(err)
	}
	connections.AwaitClosed(t, "file")
	if file, err := i.Open(t.Context(), server.URL+"/missing", false); err == nil ||
		!strings.Contains(err.Error(), "404") {
		t.Errorf("got %v and %v, want status 404", file, err)
	}
	connections.AwaitClosed(t, "missing file")
	i.o.Journal.Logger().Info("the server says hidden-password")
	if strings.Contains(console.String(), "hidden-password") {
		t.Errorf("got log %s, want no password", &console)
	}
}

// The time limit of image downloads applies, and wrong TLS settings are an error.
func TestOpenFails(t *testing.T) {
	server, _ := openServer(t)
	i := newImager(t, nil)
	i.o.Config.Update(func(c *config.Config) {
		c.ImageDownloadMaxDuration, c.ImageDownloadConnectionTimeout = 50*time.Millisecond, time.Minute
	})
	file, err := i.Open(t.Context(), server.URL+"/silent", false)
	if err == nil {
		_, err = io.ReadAll(file)
		err = errors.Join(err, file.Close())
	}
	if !errors.Is(err, fetch.ErrMaxDuration) {
		t.Errorf("got %v, want %v", err, fetch.ErrMaxDuration)
	}
	i.o.Config.Update(func(c *config.Config) { c.CAFile = "/nonexistent/ca.pem" })
	if _, err := i.Open(t.Context(), server.URL+"/file", false); err == nil ||
		!strings.Contains(err.Error(), "ca.pem") {
		t.Errorf("got %v, want an error for the authorities", err)
	}
}

// The credentials of images reach their server.
func TestImagesAreAuthorized(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if user, password, _ := r.BasicAuth(); user != "configured" || password != "secret" {
			w.WriteHeader(http.StatusUnauthorized)
		}
	}))
	defer server.Close()
	i := newImager(t, nil)
	i.o.Config.Update(func(c *config.Config) {
		c.ImageServerAuthStrategy, c.ImageServerUser, c.ImageServerPassword = "http_basic", "configured", "secret"
		c.ImageDownloadConnectionTimeout = time.Minute
	})
	options, err := i.fetchOptions(ImageInfo{})
	if err != nil {
		t.Fatal(err)
	}
	defer options.Client.CloseIdleConnections()
	file, err := fetch.Open(t.Context(), options, server.URL)
	if err != nil {
		t.Fatal(err)
	}
	if err := file.Close(); err != nil {
		t.Error(err)
	}
}
