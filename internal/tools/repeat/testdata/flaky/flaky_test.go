// Package flaky has tests for the test of repeat.
package flaky

import (
	"os"
	"testing"
)

func TestPasses(t *testing.T) {}

func TestSkipped(t *testing.T) { t.Skip("always") }

func TestFails(t *testing.T) { t.Error("always") }

// TestFailsOnce fails unless the file exists that the environment names, which it creates.
func TestFailsOnce(t *testing.T) {
	path := os.Getenv("IRONROOT_REPEAT_TEST")
	if _, err := os.Stat(path); err == nil {
		return
	}
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	t.Error("for the first time")
}
