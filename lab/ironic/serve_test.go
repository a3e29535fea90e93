//go:build linux

package ironic

import (
	"log"
	"net/http"
	"testing"
	"time"
)

// serveHTTP starts an HTTP server on a host and port of Ironic's network. The server runs until the test ends, uses TLS
// if it has a TLS configuration, and logs to the test.
func (i *Ironic) serveHTTP(t *testing.T, host string, server *http.Server) {
	t.Helper()
	listener, err := i.ns.Listen(t.Context(), "tcp", host)
	step(t, "listen", err)
	server.ReadHeaderTimeout = time.Minute
	server.ErrorLog = log.New(t.Output(), "", 0)
	done := make(chan struct{})
	go func() {
		defer close(done)
		if server.TLSConfig != nil {
			_ = server.ServeTLS(listener, "", "")
		} else {
			_ = server.Serve(listener)
		}
	}()
	t.Cleanup(func() {
		_ = server.Close()
		<-done
	})
}
