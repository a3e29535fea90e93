package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const sample = `package sample

// size is a size.
const size = 1

type thing struct{} // of no use

// Do does it.
func (t *thing) Do() int {
	return size
}

func (other[T]) Do() {}
`

func TestSource(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{"a.go": sample, "bad.go": "package"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := source(dir, []string{"a.go", "thing.Do", "size", "thing"}, "")
	want := "```go\n// Do does it.\nfunc (t *thing) Do() int {\n    return size\n}\n\n// size is a size.\n" +
		"const size = 1\n\n" +
		"type thing struct{} // of no use\n```\n"
	if err != nil || got != want {
		t.Errorf("got %q and %v, want %q", got, err, want)
	}
	got, err = source(dir, []string{"a.go"}, "")
	if want := "```go\n" + strings.ReplaceAll(sample, "\t", "    ") + "```\n"; err != nil || got != want {
		t.Errorf("got %q and %v, want %q", got, err, want)
	}
	for arguments, want := range map[string]string{
		"": "want a file", "a.go Do": "a.go declares no Do", "b.go x": "b.go", "bad.go x": "bad.go",
	} {
		if _, err := source(dir, strings.Fields(arguments), ""); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got error %v, want %q", arguments, err, want)
		}
	}
}

func TestLines(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "a.txt"), []byte("one\ntwo 2\nthree\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if got, err := lines(dir, []string{"a.txt", `^t.*[e2]$`}, ""); err != nil || got != "```\ntwo 2\nthree\n```\n" {
		t.Errorf("got %q and %v", got, err)
	}
	for arguments, want := range map[string]string{
		"a.txt": "want a file", "a.txt four": "no line", "b.txt x": "b.txt", "a.txt (": "missing closing",
	} {
		if _, err := lines(dir, strings.Fields(arguments), ""); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got error %v, want %q", arguments, err, want)
		}
	}
}
