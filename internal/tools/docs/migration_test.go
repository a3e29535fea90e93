package main

import (
	"bytes"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// The page on migration answers 24 complaints, each with a test that exists or a figure. Tests that CI does not run are
// marked as in docs/parity.md.
func TestMigrationNamesProofs(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(root, "docs", "migration.md"))
	if err != nil {
		t.Fatal(err)
	}
	const complaints = 24
	proof := regexp.MustCompile("`([a-z0-9/]+)\\.([A-Za-z0-9]+)`(?: \\(([^()]+)\\))?")
	rows := 0
	for line := range strings.Lines(string(text)) {
		cells := strings.Split(strings.TrimSpace(line), " | ")
		if number, err := strconv.Atoi(strings.TrimPrefix(cells[0], "| ")); err != nil || number != rows+1 {
			continue
		}
		rows++
		proofs := proof.FindAllStringSubmatch(cells[len(cells)-1], -1)
		if len(proofs) == 0 {
			t.Errorf("row %d names no test", rows)
		}
		for _, p := range proofs {
			known, long := findTest(t, p[1], p[2])
			if !known {
				t.Errorf("row %d: %s.%s is no test", rows, p[1], p[2])
			}
			if marked := strings.HasSuffix(p[3], testLong); marked != long {
				t.Errorf("row %d: %s.%s: marked as %q is %v, want %v", rows, p[1], p[2], testLong, marked, long)
			}
		}
	}
	if rows != complaints {
		t.Errorf("got %d complaints, want %d", rows, complaints)
	}
}

// findTest reports whether a directory has a function of that name with a parameter of the type *testing.T, and whether
// its file is built with the tag "long" only.
func findTest(t *testing.T, directory, name string) (known, long bool) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(root, directory, "*_test.go"))
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range files {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Contains(text, []byte(" "+name+"(")) {
			continue
		}
		file := parseTest(t, path)
		for _, declaration := range file.Decls {
			if d, ok := declaration.(*ast.FuncDecl); ok && d.Name.Name == name && usesTesting(d) {
				return true, isLongFile(t, path, file)
			}
		}
	}
	return false, false
}

func parseTest(t *testing.T, path string) *ast.File {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	return file
}

func isLongFile(t *testing.T, path string, file *ast.File) bool {
	t.Helper()
	long, err := isLong(file)
	if err != nil {
		t.Fatalf("%s: %v", path, err)
	}
	return long
}
