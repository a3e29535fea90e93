package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestCheckTree(t *testing.T) {
	const file = "testdata/bare/bare.go"
	got, err := checkTree("testdata/bare")
	if err != nil {
		t.Fatal(err)
	}
	want := []string{
		file + ":13: bare go statement: a panic would end PID 1; use goroutine.Go",
		file + ":14: sync.WaitGroup: a panic would end PID 1; use goroutine.Group",
		file + ":16: errgroup.Group: a panic would end PID 1; use goroutine.Group",
		file + ":18: clock.AfterFunc: a panic would end PID 1; use goroutine.AfterTime",
		file + ":19: bare go statement: a panic would end PID 1; use goroutine.Go",
		file + ":21: context.AfterFunc: a panic would end PID 1; use goroutine.AfterContext",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("findings (-want +got):\n%s", diff)
	}
}

func TestForbiddenImports(t *testing.T) {
	const file = "testdata/imports/imports.go"
	got, err := checkTree("testdata/imports")
	if err != nil {
		t.Fatal(err)
	}
	want := []string{
		file + ":4: import of C: the ramdisk has no C",
		file + ":8: import of os/exec: the ramdisk starts no programs",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("findings (-want +got):\n%s", diff)
	}
}

func TestTestsAreNotChecked(t *testing.T) {
	dir := t.TempDir()
	code := []byte("package p\n\nfunc f() { go f() }\n")
	for _, name := range []string{"a_test.go", "testdata/b.go", "c.txt"} {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, code, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if got, err := checkTree(dir); err != nil || got != nil {
		t.Errorf("got %q, %v, want nothing", got, err)
	}
}
