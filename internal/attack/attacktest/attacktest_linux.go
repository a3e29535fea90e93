// Package attacktest has tests run the attacks of package attack.
package attacktest

import (
	"encoding/json"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"ironroot/internal/attack"
	"ironroot/internal/testenv"
)

// minAttacks is the number of attacks that a confinement must resist at least.
const minAttacks = 100

// Build builds the program with the attacks, and plants secrets in this process and in the machine.
func Build(t *testing.T, path string) {
	t.Helper()
	testenv.Root(t)
	testenv.Run(t, "env", "CGO_ENABLED=0", "go", "build", "-o", path, "ironroot/internal/attack/program")
	t.Setenv("IRONROOT_PLANTED", attack.Secret)
	dir, pattern := filepath.Split(attack.SecretFile)
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

// Check fails unless all attacks were refused but those that are permitted. text is a Report as JSON.
// permitted has the reason for each.
func Check(t *testing.T, text []byte, permitted map[string]string) {
	t.Helper()
	var report attack.Report
	if err := json.Unmarshal(text, &report); err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	if report.Tried < minAttacks {
		t.Errorf("got %d attacks, want %d", report.Tried, minAttacks)
	}
	left := maps.Clone(permitted)
	for _, name := range slices.Sorted(maps.Keys(report.Reached)) {
		what := report.Reached[name]
		if _, ok := permitted[name]; !ok {
			t.Errorf("attack %q has reached %q, want it refused", name, what)
		}
		delete(left, name)
	}
	for _, name := range slices.Sorted(maps.Keys(left)) {
		t.Errorf("attack %q was refused, want it among those that are not permitted", name)
	}
}
