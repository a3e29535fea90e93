package conductor_test

import (
	"testing"

	"ironroot/internal/test/testenv"
	"ironroot/internal/test/testenv/nettest"
	"ironroot/lab/conductor"
)

// The port is free when Close returns.
func TestReopen(t *testing.T) {
	if !nettest.Namespace(t) {
		return
	}
	nettest.Configure(t, "lo")
	testenv.Reopen(t, func() (func() error, error) {
		c, err := conductor.New(conductor.Options{Addr: "127.0.0.1:6385"})
		if err != nil {
			return nil, err
		}
		return c.Close, nil
	})
}
