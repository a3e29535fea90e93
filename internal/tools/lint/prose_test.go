package main

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// Bad sentences cause a message with their construction, good ones none.
func TestCheckSentences(t *testing.T) {
	for text, want := range map[string]string{
		"What is valid says what Classify allows.":                      "noun as the subject",
		"The disk is wiped. What remains is the table.":                 "noun as the subject",
		"A list:\nWhat a failed build has left is not used":             "noun as the subject",
		"isTrue reports whether the value of key is true.":              "",
		"What does Classify allow? See the table.":                      "",
		"The table says what Classify allows.":                          "",
		"WhatFor is an option.":                                         "",
		"The version is that of the other manager.":                     "the noun itself",
		"Names are those of the kernel.":                                "the noun itself",
		"The second size, like that of the first, is odd.":              "the noun itself",
		"That of the boot loader comes first.":                          "the noun itself",
		"Disks of which each is a member are kept.":                     "two sentences",
		"The version is the other manager's.":                           "",
		"Names follow the kernel.":                                      "",
		"It waits, so that of several disks the first is chosen.":       "",
		"Errors name the disk that offers it.":                          "",
		"deferred is what an image needs whose tables arrive later.":    "definition by a noun",
		"limits are what a server of tests has.":                        "definition by a noun",
		"root is where the files are.":                                  "definition by a noun",
		"deferred holds the state of an image whose tables come later.": "",
		"root is the directory of the files.":                           "",
		"It reports what the kernel shows.":                             "",
	} {
		got := strings.Join(checkSentences(text), "\n")
		if (got == "") != (want == "") || !strings.Contains(got, want) {
			t.Errorf("%q: got %q, want %q", text, got, want)
		}
	}
}

// Paragraphs and items of lists begin sentences, lines do not.
func TestParagraphs(t *testing.T) {
	const source = "// Package a is\n// short:\n//\n//   - an item\n//     of a list\n//   - What\n//\n" +
		"//go:generate x\npackage a\n"
	file, err := parser.ParseFile(token.NewFileSet(), "a.go", source, parser.ParseComments)
	if err != nil {
		t.Fatal(err)
	}
	const want = "Package a is short: \n\nan item of a list \nWhat "
	if diff := cmp.Diff(want, paragraphs(&ast.CommentGroup{List: file.Comments[0].List})); diff != "" {
		t.Errorf("text (-want +got):\n%s", diff)
	}
}

// Comments and documents are checked, and neither strings, blocks of code nor testdata.
func TestCheckProse(t *testing.T) {
	dir := t.TempDir()
	const code = "package a\n\n// a is\n// what b needs.\nvar a = `what is that of b`\n"
	const document = "# What it does\n\nA is\nwhat b needs.\n\n```\nthat of b\n```\n\n" +
		"| What | is `that of` it? |\n* Those of b.\n"
	for name, text := range map[string]string{
		"a.go": code, "testdata/a.go": code, "b/b_test.go": code, "c.md": document, "testdata/c.md": document,
	} {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	got, err := checkProse(dir)
	if err != nil {
		t.Fatal(err)
	}
	const definition = `write a definition by a noun, not by a clause: "is what"`
	want := []string{
		dir + "/a.go:3: " + definition,
		dir + "/b/b_test.go:3: " + definition,
		dir + "/c.md:3: " + definition,
		dir + `/c.md:11: write the noun itself, not a pronoun in its place: "Those of"`,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("findings (-want +got):\n%s", diff)
	}
}
