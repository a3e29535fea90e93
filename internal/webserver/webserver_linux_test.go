package webserver

import (
	"net"
	"net/http"
	"testing"

	"ironroot/internal/test/testenv"
	"ironroot/internal/test/testenv/nettest"
)

// A port is free when Close returns.
func TestReopen(t *testing.T) {
	if !nettest.Namespace(t) {
		return
	}
	nettest.Configure(t, "lo")
	testenv.Reopen(t, func() (func() error, error) {
		l, err := net.Listen("tcp", "127.0.0.1:8080")
		if err != nil {
			return nil, err
		}
		return Serve(t.Context(), Listener(l), &http.Server{Handler: http.NotFoundHandler()}, nil).Close, nil
	})
}
