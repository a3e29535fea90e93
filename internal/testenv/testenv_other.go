//go:build !linux

package testenv

import "testing"

// DropCapability ends the test: only Linux has capabilities.
func DropCapability(t testing.TB, _ uint) {
	t.Helper()
	Linux(t, "capabilities")
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
