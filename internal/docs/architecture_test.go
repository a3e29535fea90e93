package main

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// docs/architecture.md names the packages of this module that each directory of the product imports.
func TestImports(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(root, "docs/architecture.md"))
	if err != nil {
		t.Fatal(err)
	}
	rows := regexp.MustCompile("(?m)^\\| `(\\w+)/` \\|.*\\| ([^|]+) \\|$").FindAllStringSubmatch(string(text), -1)
	checked := 0
	for _, row := range rows {
		directory, want := row[1], strings.Split(row[2], ", ")
		if !slices.Contains([]string{"uinit", "agent", "netboot", "storage", "initramfs", "iso"}, directory) {
			continue
		}
		checked++
		used := map[string]bool{}
		for path, file := range moduleImports(t, directory) {
			at := slices.IndexFunc(want,
				func(name string) bool { return path == name || strings.HasPrefix(path, name+"/") })
			if at < 0 {
				t.Errorf("%s imports %s, want only %s", file, path, row[2])
				continue
			}
			used[want[at]] = true
		}
		for _, name := range want {
			if !used[name] {
				t.Errorf("%s/ imports nothing of %s, which docs/architecture.md lists", directory, name)
			}
		}
	}
	if checked != 6 {
		t.Errorf("got %d directories in docs/architecture.md, want 6", checked)
	}
}

// The types that docs/architecture.md names for package netboot exist.
func TestNetbootTypes(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(root, "docs/architecture.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, table, _ := strings.Cut(string(text), "\n| Type | Concept | Goroutine |\n")
	table, _, _ = strings.Cut(table, "\n\n")
	names := regexp.MustCompile("`([^`]+)`").FindAllStringSubmatch(table, -1)
	if len(names) == 0 {
		t.Error("docs/architecture.md has no table of types")
	}
	declared := declaredTypes(t, "netboot")
	for _, name := range names {
		if !declared[name[1]] {
			t.Errorf("docs/architecture.md names %s, which is no type of package netboot", name[1])
		}
	}
}

// declaredTypes returns the names of the types that the files of a directory declare. Tests are ignored.
func declaredTypes(t *testing.T, directory string) map[string]bool {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(root, directory, "*.go"))
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]bool{}
	for _, path := range paths {
		if strings.HasSuffix(path, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		for node := range ast.Preorder(file) {
			if spec, ok := node.(*ast.TypeSpec); ok {
				found[spec.Name.Name] = true
			}
		}
	}
	return found
}

// moduleImports returns the packages of this module outside of a directory that the directory's packages import, each
// with an importing file. Tests and packages for tests are ignored.
func moduleImports(t *testing.T, directory string) map[string]string {
	t.Helper()
	found := map[string]string{}
	err := filepath.WalkDir(filepath.Join(root, directory), func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && (d.Name() == "testdata" || strings.HasSuffix(d.Name(), "test")):
			return fs.SkipDir
		case d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go"):
			return nil
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ImportsOnly)
		if err != nil {
			return err
		}
		for _, spec := range file.Imports {
			name, err := strconv.Unquote(spec.Path.Value)
			if err != nil {
				return err
			}
			if name, ok := strings.CutPrefix(name, "ironroot/"); ok && !strings.HasPrefix(name, directory+"/") {
				found[name] = path
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}
