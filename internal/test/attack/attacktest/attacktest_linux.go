// Package attacktest builds the program with the attacks of package attack, and checks its reports.
package attacktest

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"ironroot/internal/test/attack"
	"ironroot/internal/test/testenv"
)

// Build builds the program with the attacks as path. Until the test ends, attack.Secret is in the environment of this
// process, and a file of the machine matches the first of attack.SecretFiles. It requires root.
func Build(t *testing.T, path string) {
	t.Helper()
	testenv.Root(t)
	BuildProgram(t, path)
	t.Setenv("IRONROOT_PLANTED", attack.Secret)
	dir, pattern := filepath.Split(attack.SecretFiles[0])
	f, err := os.CreateTemp(dir, pattern)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.Remove(f.Name()); err != nil {
			t.Error(err)
		}
	})
	_, err = f.WriteString(attack.Secret)
	if err := errors.Join(err, f.Close()); err != nil {
		t.Fatal(err)
	}
}

// BuildProgram builds the program with the attacks as path, and plants nothing.
func BuildProgram(t *testing.T, path string) {
	t.Helper()
	testenv.Run(t, "env", "CGO_ENABLED=0", "go", "build", "-o", path, "ironroot/internal/test/attack/attackprobe")
}

// Check fails unless exactly the permitted attacks have succeeded. text is the report as JSON.
func Check(t *testing.T, text []byte, permitted map[string]string) {
	t.Helper()
	var report attack.Report
	if err := json.Unmarshal(text, &report); err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	if err := report.Check(permitted); err != nil {
		t.Error(err)
	}
}
