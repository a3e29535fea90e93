package main

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
)

func TestMeasure(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{
		"go.mod":              "module m\n\ngo 1.25\n",
		"uinit/main.go":       "package main\n\nimport _ \"m/a\"\n\nfunc main() {\n}\n",
		"uinit/main_test.go":  "package main\n\ntype fake struct{ f func() }\n",
		"a/a.go":              "package a\n\ntype t struct {\n\tf, g func()\n\th int\n}\n\ntype i interface{ f() }\n",
		"b/b.go":              "package b\n\nvar v struct{ f func() error }\n",
		"b/testdata/c/c.go":   "package c\n\ntype t struct{ f func() }\n",
		"build/generated.go":  "no Go",
		".cache/generated.go": "no Go",
	} {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	got, err := measure(dir)
	if err != nil {
		t.Fatal(err)
	}
	if got.packages != 2 || got.productLines != 14 || got.testLines != 3 || got.fields != 3 || got.interfaces != 1 ||
		got.structs != 2 || !slices.Equal(got.functions, []int{2}) || !slices.Equal(got.files, []int{6, 8}) {
		t.Errorf("got %+v", got)
	}
}
