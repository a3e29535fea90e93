//go:build linux && long

package conformance

import (
	"bytes"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"ironroot/internal/testenv"
)

// injected is a fault of the agent that the scenarios of a group must find.
type injected struct {
	group, file string // file is below the top directory
	old, faulty string // a text that occurs once, and what replaces it
}

func injectedFaults() []injected {
	return []injected{
		{"commands", "agent/fault/kinds.go", `"Agent is busy", "executing`, `"Agent works", "executing`},
		{"protocol", "agent/ironic/lookup.go", `"addresses"`, `"address"`},
		{"hints", "storage/block/list.go", "slices.Compare(a.number[:], b.number[:])",
			"slices.Compare(b.number[:], a.number[:])"},
	}
}

// TestInjectedFaults builds the ramdisk with one fault after another, and plays the group that must find it.
func TestInjectedFaults(t *testing.T) {
	for _, fault := range injectedFaults() {
		t.Run(fault.group, func(t *testing.T) {
			dir := copySources(t)
			path := filepath.Join(dir, fault.file)
			content, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			if n := bytes.Count(content, []byte(fault.old)); n != 1 {
				t.Fatalf("%s contains %q %d times, want once", fault.file, fault.old, n)
			}
			content = bytes.Replace(content, []byte(fault.old), []byte(fault.faulty), 1)
			if err := os.Remove(path); err != nil { // a link to the original
				t.Fatal(err)
			}
			if err := os.WriteFile(path, content, 0o600); err != nil {
				t.Fatal(err)
			}
			for _, g := range groups() {
				if g.name == fault.group && len(g.unlisted(t, buildRamdisk(t, dir))) == 0 {
					t.Errorf("%s: %q instead of %q: no scenario shows the fault", fault.file, fault.faulty, fault.old)
				}
			}
		})
	}
}

// copySources returns a directory with links to the files of this repository, without those that were built.
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
