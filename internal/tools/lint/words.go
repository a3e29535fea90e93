package main

import (
	"bytes"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// glossary lists rejected words and their replacements. It contains only words that have no other meaning here.
var glossary = []struct{ reject, write string }{
	{`folder`, "directory"},
	{`\bfor ever\b`, "forever"},
	{`\bwithout end\b`, "forever, endless"},
	{`\bside by side\b`, "concurrently, in parallel"},
	{`\b(tells|says) whether\b`, "reports whether"},
	{`protector`, "protective MBR"},
	{`\bloses patience\b`, "gives up after N attempts"},
	{`\bdoubted\b`, "dropped, ignored, rejected"},
	{`hush`, "redact, mask"},
	{`\bin which there (is|are)\b`, "which contains"},
	{`\bstand-ins?\b`, "fake"},
}

// anyRejected matches every rejected word of the glossary.
var anyRejected = regexp.MustCompile(`(?i)` + strings.Join(rejected(), "|"))

func rejected() []string {
	var patterns []string
	for _, word := range glossary {
		patterns = append(patterns, word.reject)
	}
	return patterns
}

// checkWords returns one line for each rejected word in the Go files, documents and scripts below root. testdata and
// the glossary itself are not checked.
func checkWords(root string) ([]string, error) {
	var found []string
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		name := d.Name()
		switch {
		case err != nil:
			return err
		case d.IsDir() && path != root && (name == "testdata" || name == "build" || name[0] == '.'):
			return fs.SkipDir
		case d.IsDir() || !isText(path) || strings.HasSuffix(filepath.ToSlash(path), "internal/tools/lint/words.go"):
			return nil
		}
		list, err := checkFileWords(path)
		found = append(found, list...)
		return err
	})
	return found, err
}

// isText reports whether the words of a file are checked.
func isText(path string) bool {
	return slices.Contains([]string{".go", ".md"}, filepath.Ext(path)) || filepath.Base(path) == "Makefile" ||
		filepath.Base(filepath.Dir(path)) == "scripts"
}

func checkFileWords(path string) ([]string, error) {
	text, err := os.ReadFile(path)
	if err != nil || !anyRejected.Match(text) {
		return nil, err
	}
	var found []string
	number := 0
	for line := range bytes.Lines(text) {
		number++
		for _, word := range glossary {
			if match := regexp.MustCompile(`(?i)` + word.reject).Find(line); match != nil {
				found = append(found, fmt.Sprintf("%s:%d: write %q, not %q", path, number, word.write, match))
			}
		}
	}
	return found, nil
}
