package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
)

// constructions lists sentences that a reader has to read twice, and the replacement.
var constructions = []struct {
	reject *regexp.Regexp
	write  string
}{
	{
		regexp.MustCompile(`(?:^|\n|[.:!?] )What [^?\n]*?(?:[.:;](?:\s|$)|\n|$)`), // a question may begin so
		"a noun as the subject, not a clause with What",
	},
	{regexp.MustCompile(`(?i)\b(?:that|those) of\b`), "the noun itself, not a pronoun in its place"},
	{regexp.MustCompile(`(?i)\bof which each\b`), "two sentences"},
	{
		regexp.MustCompile(`\b(?:is|are) what\b|^\w+ (?:is|are) (?:where|when|how|who)\b`),
		"a definition by a noun, not by a clause",
	},
}

// conjunction matches text before "of" that is no pronoun.
var conjunction = regexp.MustCompile(`(?i)\b(?:so|says|means|note) $`)

// checkProse returns one line for each rejected construction in the comments of Go files and in the documents below
// root. testdata is not checked.
func checkProse(root string) ([]string, error) {
	var found []string
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		name := d.Name()
		switch {
		case err != nil:
			return err
		case d.IsDir() && path != root && (name == "testdata" || name == "build" || name[0] == '.'):
			return fs.SkipDir
		case d.IsDir():
			return nil
		}
		var list []string
		switch filepath.Ext(path) {
		case ".go":
			list, err = checkComments(path)
		case ".md":
			list, err = checkDocument(path)
		}
		found = append(found, list...)
		return err
	})
	return found, err
}

// checkDocument returns one line for each rejected construction in a document, outside of headings and code.
// Paragraphs, items of lists and rows of tables are checked separately.
func checkDocument(path string) ([]string, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var found []string
	var paragraph string
	number, first, inCode := 0, 0, false
	finish := func() {
		for _, message := range checkSentences(paragraph) {
			found = append(found, fmt.Sprintf("%s:%d: %s", path, first, message))
		}
		paragraph = ""
	}
	for line := range strings.Lines(string(text)) {
		number++
		line = strings.TrimSpace(line)
		isFence := strings.HasPrefix(line, "```")
		if isFence || line == "" || beginsBlock.MatchString(line) {
			finish()
		}
		if isFence {
			inCode = !inCode
		}
		if isFence || inCode || line == "" || line[0] == '#' {
			continue
		}
		if paragraph == "" {
			first = number
		}
		paragraph += codeSpan.ReplaceAllString(beginsBlock.ReplaceAllString(line, ""), "``") + " "
	}
	finish()
	return found, nil
}

// beginsBlock matches the beginning of a line that does not continue a paragraph, and codeSpan code within a line.
var (
	beginsBlock = regexp.MustCompile(`^(?:#+ |[*-] |[0-9]+\. |\|)`)
	codeSpan    = regexp.MustCompile("`[^`]*`")
)

// checkComments returns one line for each rejected construction in the comments of a Go file.
func checkComments(path string) ([]string, error) {
	files := token.NewFileSet()
	file, err := parser.ParseFile(files, path, nil, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
	var found []string
	for _, group := range file.Comments {
		for _, message := range checkSentences(paragraphs(group)) {
			found = append(found, fmt.Sprintf("%s:%d: %s", path, files.Position(group.Pos()).Line, message))
		}
	}
	return found, nil
}

// paragraphs returns the text of a comment with one line for each paragraph, without directives.
func paragraphs(group *ast.CommentGroup) string {
	var text strings.Builder
	for line := range strings.Lines(group.Text()) {
		line = strings.TrimSpace(line)
		switch {
		case line == "":
			text.WriteString("\n")
		case strings.HasPrefix(line, "- "):
			text.WriteString("\n" + line[2:] + " ")
		default:
			text.WriteString(line + " ")
		}
	}
	return text.String()
}

// checkSentences returns a message for each rejected construction in a text whose paragraphs are lines.
func checkSentences(text string) []string {
	var messages []string
	for _, c := range constructions {
		for _, at := range c.reject.FindAllStringIndex(text, -1) {
			if conjunction.MatchString(text[:at[0]]) {
				continue
			}
			match := strings.TrimSpace(text[at[0]:at[1]])
			messages = append(messages, fmt.Sprintf("write %s: %q", c.write, match))
		}
	}
	return messages
}
