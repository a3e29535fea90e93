package main

import (
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// named matches a file, or a test with the directory of its package: `storage/image.TestWriteRaw`.
var named = regexp.MustCompile("`((?:[a-z0-9]+/)*[a-z0-9]+)\\.([A-Za-z0-9]+)`")

// isTest matches the names of tests and fuzz targets.
var isTest = regexp.MustCompile(`^(Test|Fuzz)[A-Z]`)

// Files and tests that the documents name as `directory/package.Name` exist, and so do the tests of packages of one
// directory, `agent.TestSoak`. Names with other characters, such as _, are not checked.
func TestNamesInDocuments(t *testing.T) {
	documents, err := generate(root)
	if err != nil {
		t.Fatal(err)
	}
	checked := map[string]bool{} // by name in the document
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
			if checked[match[0]] {
				continue
			}
			checked[match[0]] = true
			if known, _ := findTest(t, directory, name); !known {
				t.Errorf("%s names %s.%s, which is neither a test nor a file", document, directory, name)
			}
		}
	}
}
