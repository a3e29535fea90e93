package imageserver_test

import (
	"testing"

	"ironroot/internal/test/testenv"
	"ironroot/internal/test/testenv/nettest"
	"ironroot/lab/imageserver"
)

// The port is free when Close returns.
func TestReopen(t *testing.T) {
	if !nettest.Namespace(t) {
		return
	}
	nettest.Configure(t, "lo")
	testenv.Reopen(t, func() (func() error, error) {
		s, err := imageserver.New(imageserver.Options{Addr: "127.0.0.1:8080"})
		if err != nil {
			return nil, err
		}
		return s.Close, nil
	})
}
