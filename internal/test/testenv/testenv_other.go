//go:build !linux

package testenv

import (
	"net"
	"testing"
)

// DropCapability ends the test: only Linux has capabilities.
func DropCapability(t testing.TB, _ uint) {
	t.Helper()
	Linux(t, "capabilities")
}

// Port returns a TCP port on which nothing listens now. Only Linux can reserve one.
func Port(t testing.TB) int {
	t.Helper()
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port
}

// Loop ends the test: only Linux has loop devices.
func Loop(t testing.TB, _ string, _ int) string {
	t.Helper()
	Linux(t, "loop devices")
	return ""
}

// Mount ends the test: it needs file systems of Linux.
func Mount(t testing.TB, _, _, _, _ string) {
	t.Helper()
	Linux(t, "mount")
}

// Detach does nothing: nothing was mounted.
func Detach(testing.TB, string) {}
