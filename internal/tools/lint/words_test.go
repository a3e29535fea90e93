package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestCheckWords(t *testing.T) {
	dir := t.TempDir()
	// A bar splits words that this file must not contain.
	joined := strings.NewReplacer("|", "").Replace
	for name, text := range map[string]string{
		"a.go":            "package a\n\n// subFol|ders wait for |ever.\nvar subFol|ders int\n",
		"a.md":            "All is well forever.\n\nHe doubt|ed it.\n",
		"Makefile":        "# side |by side\n",
		"scripts/run":     "# tells |whether\n",
		"testdata/a.go":   "fol|der",
		"build/a.go":      "fol|der",
		".git/a.md":       "fol|der",
		"a.txt":           "fol|der",
		"fatal/golden.md": "The protective MBR, in which there were two entries.\n",
	} {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(joined(text)), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	got, err := checkWords(dir)
	if err != nil {
		t.Fatal(err)
	}
	want := []string{
		dir + `/Makefile:1: write "concurrently, in parallel", not "side |by side"`,
		dir + `/a.go:3: write "directory", not "Fol|der"`,
		dir + `/a.go:3: write "forever", not "for |ever"`,
		dir + `/a.go:4: write "directory", not "Fol|der"`,
		dir + `/a.md:3: write "dropped, ignored, rejected", not "doubt|ed"`,
		dir + `/scripts/run:1: write "reports whether", not "tells |whether"`,
	}
	for i := range want {
		want[i] = joined(want[i])
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("findings (-want +got):\n%s", diff)
	}
}
