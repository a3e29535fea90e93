//go:build linux && long

package conformance

import (
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"ironroot/internal/test/testenv"
)

// TestInjectedFaults builds the ramdisk with one fault after another, and plays the scenario that must find it. Without
// a fault, these scenarios must show no difference: they are played without those before them.
func TestInjectedFaults(t *testing.T) {
	rd := buildRamdisk(t, testenv.Top(t))
	for _, g := range faultyGroups(t) {
		t.Run(g.name+" without a fault", func(t *testing.T) {
			for _, text := range g.compare(t, rd, newListed(g.name)) {
				t.Error(text)
			}
		})
	}
	for _, fault := range injectedFaults() {
		t.Run(fault.group+" "+fault.scenario, func(t *testing.T) {
			dir := copySources(t)
			if err := os.WriteFile(filepath.Join(dir, fault.file), []byte(fault.inject(t)), 0o600); err != nil {
				t.Fatal(err)
			}
			g := fault.scenarios(t)
			found := g.compare(t, buildRamdisk(t, dir), newListed(g.name))
			if len(found) == 0 {
				t.Errorf("%s: %q instead of %q: no difference", fault.file, fault.faulty, fault.old)
			}
			t.Log(strings.Join(found, "\n"))
		})
	}
}

// faultyGroups returns the groups of the faults, with the scenarios that must find them.
func faultyGroups(t *testing.T) []group {
	var all []group
	for _, fault := range injectedFaults() {
		g := fault.scenarios(t)
		i := slices.IndexFunc(all, func(other group) bool { return other.name == g.name })
		if i < 0 {
			all = append(all, g)
		} else {
			all[i].scenarios = append(all[i].scenarios, g.scenarios...)
		}
	}
	return all
}

// copySources returns a directory with a copy of the sources of this repository.
func copySources(t *testing.T) string {
	t.Helper()
	top, dir := testenv.Top(t), t.TempDir()
	err := filepath.WalkDir(top, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name, err := filepath.Rel(top, path)
		if err != nil {
			return err
		}
		if d.IsDir() {
			if name == ".git" || name == "build" {
				return fs.SkipDir
			}
			return os.MkdirAll(filepath.Join(dir, name), 0o755)
		}
		content, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		return os.WriteFile(filepath.Join(dir, name), content, 0o600)
	})
	if err != nil {
		t.Fatal(err)
	}
	return dir
}
