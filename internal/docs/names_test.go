package main

import (
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// named matches a file, or a function with the directory of its package: `storage/image.TestWriteRaw`.
var named = regexp.MustCompile("`((?:[a-z0-9]+/)*[a-z0-9]+)\\.([A-Za-z0-9]+)`")

// isTest matches the names of tests and fuzz targets.
var isTest = regexp.MustCompile(`^(Test|Fuzz)[A-Z]`)

// Files, functions and tests that the documents name as `directory/package.Name` exist, and so do the tests of packages
// of one directory, `agent.TestSoak`. Names with other characters, such as _, are not checked.
func TestNamesInDocuments(t *testing.T) {
	documents, err := generate(root)
	if err != nil {
		t.Fatal(err)
	}
	sources := map[string]string{} // text of the Go files by directory
	for document, text := range documents {
		for _, match := range named.FindAllStringSubmatch(string(text), -1) {
			directory, name := match[1], match[2]
			if directory == "main" {
				directory = "."
			}
			if path.Dir(directory) == "." && !isTest.MatchString(name) {
				continue // a file of the top directory, or a name of a package of one directory
			}
			first, _, _ := strings.Cut(directory, "/")
			if info, err := os.Stat(filepath.Join(root, first)); err != nil || !info.IsDir() || first == "build" {
				continue // not of this repository, or made by make
			}
			if _, err := os.Stat(filepath.Join(root, directory+"."+name)); err == nil {
				continue
			}
			source, known := sources[directory]
			if !known {
				source = sourceOf(t, directory)
				sources[directory] = source
			}
			if !regexp.MustCompile(`(?m)^func (\([^)]*\) )?` + name + `\(`).MatchString(source) {
				t.Errorf("%s names %s.%s, which is neither a function nor a file", document, directory, name)
			}
		}
	}
}

// sourceOf returns the text of the Go files in a directory of the repository.
func sourceOf(t *testing.T, directory string) string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(root, directory, "*.go"))
	if err != nil {
		t.Fatal(err)
	}
	var source []byte
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		source = append(append(source, text...), '\n')
	}
	return string(source)
}
