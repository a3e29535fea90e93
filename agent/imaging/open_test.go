package imaging

import (
	"bytes"
	"errors"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"ironroot/agent/config"
	"ironroot/agent/journal"
	"ironroot/storage/image/fetch"
)

// openServer serves files by HTTPS, and sends each connection that was closed.
func openServer(t *testing.T) (server *httptest.Server, closed chan net.Conn) {
	t.Helper()
	closed = make(chan net.Conn, 16)
	end := make(chan struct{})
	server = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
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
	server.Config.ConnState = func(c net.Conn, state http.ConnState) {
		if state == http.StateClosed {
			closed <- c
		}
	}
	server.StartTLS()
	t.Cleanup(func() {
		close(end)
		server.Close()
	})
	return server, closed
}

// A file is opened without the credentials of images, and leaves no connection. Passwords in its URL are redacted.
func TestOpen(t *testing.T) {
	server, closed := openServer(t)
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
	<-closed
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
	waitClosed(t, closed, "file")
	if file, err := i.Open(t.Context(), server.URL+"/missing", false); err == nil ||
		!strings.Contains(err.Error(), "404") {
		t.Errorf("got %v and %v, want status 404", file, err)
	}
	waitClosed(t, closed, "missing file")
	i.o.Journal.Logger().Info("the server says hidden-password")
	if strings.Contains(console.String(), "hidden-password") {
		t.Errorf("got log %s, want no password", &console)
	}
}

func waitClosed(t *testing.T, closed chan net.Conn, what string) {
	t.Helper()
	select {
	case <-closed:
	case <-time.After(10 * time.Second):
		t.Errorf("%s: the connection was not closed", what)
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
