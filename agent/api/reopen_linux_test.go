package api

import (
	"testing"

	"ironroot/agent/token"
	"ironroot/internal/test/testenv"
	"ironroot/internal/test/testenv/nettest"
)

// The port is free when Shutdown returns.
func TestReopen(t *testing.T) {
	if !nettest.Namespace(t) {
		return
	}
	nettest.Configure(t, "lo")
	testenv.Reopen(t, func() (func() error, error) {
		l, err := Listen(t.Context(), "127.0.0.1", 9999)
		if err != nil {
			return nil, err
		}
		s := Serve(l, New(Options{Token: &token.Token{}}), nil)
		return func() error {
			shutdown(s)
			return s.Err()
		}, nil
	})
}
