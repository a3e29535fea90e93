package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// The page on migration answers 24 complaints, each with a test that exists or a figure.
func TestMigrationNamesProofs(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(root, "docs", "migration.md"))
	if err != nil {
		t.Fatal(err)
	}
	const complaints = 24
	rows := 0
	for line := range strings.Lines(string(text)) {
		cells := strings.Split(strings.TrimSpace(line), " | ")
		if number, err := strconv.Atoi(strings.TrimPrefix(cells[0], "| ")); err != nil || number != rows+1 {
			continue
		}
		rows++
		proofs := regexp.MustCompile("`([a-z0-9/]+)\\.([A-Za-z0-9]+)`").FindAllStringSubmatch(cells[len(cells)-1], -1)
		if len(proofs) == 0 {
			t.Errorf("row %d names no test", rows)
		}
		for _, proof := range proofs {
			if !hasTest(t, proof[1], proof[2]) {
				t.Errorf("row %d: %s.%s is no test", rows, proof[1], proof[2])
			}
		}
	}
	if rows != complaints {
		t.Errorf("got %d complaints, want %d", rows, complaints)
	}
}

// hasTest reports whether a directory has a function of that name with a parameter of the type *testing.T.
func hasTest(t *testing.T, directory, name string) bool {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(root, directory, "*_test.go"))
	if err != nil {
		t.Fatal(err)
	}
	declaration := regexp.MustCompile(`(?m)^func (\(\w+ \*\w+\) )?` + name + `\(t \*testing\.T[,)]`)
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if declaration.Match(text) {
			return true
		}
	}
	return false
}
