package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// The comments in these texts are not claims of this file.
const claimant = `package sample

import "testing"

// TestOne is a test.
//
// Parity: Z2, Z10 (the second half, mostly)
func TestOne(t *testing.T) {}

// Parity: Z2
func (r *rig) helper(t *testing.T) {}
`

func TestParity(t *testing.T) {
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "pkg"), 0o755); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "pkg", "a_test.go")
	write := func(text string) {
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	write(claimant)
	const head = "| Row | Contract | Proof | Deviation |\n|---|---|---|---|\n"
	got, err := parity(dir, []string{"Z"}, head+"| Z10 | ten | | – |\n| Z2 | two | old | none |\n")
	want := head + "| Z2 | two | `pkg.TestOne`, `pkg.helper` | none |\n" +
		"| Z10 | ten | `pkg.TestOne` (the second half, mostly) | – |\n"
	if err != nil || got != want {
		t.Errorf("got %q and %v, want %q", got, err, want)
	}
	write("//go:build linux && long\n\n" + claimant)
	got, err = parity(dir, []string{"Z"}, want)
	const only = "only by `make test-long`)"
	want = strings.ReplaceAll(strings.ReplaceAll(want, "pkg.TestOne`, `pkg.helper`",
		"pkg.TestOne` ("+only+", `pkg.helper` ("+only), "mostly)", "mostly; "+only)
	if err != nil || got != want {
		t.Errorf("with the tag long: got %q and %v, want %q", got, err, want)
	}
	for lines, want := range map[string]string{
		"| Z2 | two | | – |\n": "row Z10 has no line",
		"| Z2 | two | | – |\n| Z10 | ten | | – |\n| Z3 | three | | – |\n": "row Z3: no test names it",
	} {
		if _, err := parity(dir, []string{"Z"}, lines); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: got error %v, want %q", lines, err, want)
		}
	}
	if _, err := parity(dir, nil, ""); err == nil {
		t.Error("without a section: got no error")
	}
	for name, text := range map[string]string{
		"not of a test":    "package p\n\n// Parity: Z2\nfunc helper() {}\n",
		"not of a comment": "package p\n\n// Parity: Z2\n\nfunc helper() {}\n",
		"without a comma":  strings.Replace(claimant, "Z2, Z10", "Z2 Z10", 1),
		"not of a tag":     "//go:build linux &&\n\n" + claimant,
		"not of Go":        "package\n\n// Parity: Z2\n",
	} {
		write(text)
		if _, err := parity(dir, []string{"Z"}, ""); err == nil || !strings.Contains(err.Error(), "pkg/a_test.go:") {
			t.Errorf("%s: got error %v, want one with the file", name, err)
		}
	}
}

// Every section with a claim has a table in docs/parity.md.
func TestParitySections(t *testing.T) {
	proofs, err := claims(root)
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(root, "docs", "parity.md"))
	if err != nil {
		t.Fatal(err)
	}
	for row := range proofs {
		if !strings.Contains(string(text), blockStart+"parity "+row[:1]+" -->") {
			t.Errorf("docs/parity.md has no table of section %s, of row %s", row[:1], row)
		}
	}
}
