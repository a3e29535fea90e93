package main

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"go/ast"
	"go/build/constraint"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// parity returns the table of the rows of a section that tests prove. The argument is the letter of the section. The
// columns Contract and Deviation are written by hand. The column Proof is generated from the comments of tests. Every
// row that a test names must have a line, and every line a test.
func parity(root string, arguments []string, old string) (string, error) {
	if len(arguments) != 1 {
		return "", errors.New("want a section")
	}
	proofs, err := claims(root)
	if err != nil {
		return "", err
	}
	lines := map[string][]string{} // columns by row
	for line := range strings.Lines(old) {
		columns := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), "|")
		for i := range columns {
			columns[i] = strings.TrimSpace(columns[i])
		}
		if len(columns) == 4 && rowName.MatchString(columns[0]) {
			lines[columns[0]] = columns
		}
	}
	var text strings.Builder
	text.WriteString("| Row | Contract | Proof | Deviation |\n|---|---|---|---|\n")
	var missing []error
	for _, row := range sorted(maps.Keys(proofs), arguments[0]) {
		if columns := lines[row]; columns == nil {
			missing = append(missing, fmt.Errorf("row %s has no line: add | %s | contract | | – |", row, row))
		} else {
			fmt.Fprintf(&text, "| %s | %s | %s | %s |\n", row, columns[1], strings.Join(proofs[row], ", "), columns[3])
		}
	}
	for row := range lines {
		if proofs[row] == nil {
			missing = append(missing, fmt.Errorf("row %s: no test names it", row))
		}
	}
	return text.String(), errors.Join(missing...)
}

var (
	rowName = regexp.MustCompile(`^[A-Z]\d+$`)
	// comment matches a line that names rows. A row can have a note of the part that the test proves.
	comment = regexp.MustCompile(`^// Parity: ([A-Z]\d+(?: \([^()]+\))?(?:, [A-Z]\d+(?: \([^()]+\))?)*)$`)
	claimed = regexp.MustCompile(`([A-Z]\d+)( \([^()]+\))?`)
)

// sorted returns the rows of a section in the order of their numbers.
func sorted(rows func(func(string) bool), section string) []string {
	var list []string
	for row := range rows {
		if strings.HasPrefix(row, section) {
			list = append(list, row)
		}
	}
	number := func(row string) int {
		n, _ := strconv.Atoi(row[1:]) // rowName allows digits only
		return n
	}
	slices.SortFunc(list, func(a, b string) int { return cmp.Compare(number(a), number(b)) })
	return list
}

// claims returns the proofs of each row from the comments of tests below root.
func claims(root string) (map[string][]string, error) {
	proofs := map[string][]string{}
	err := filepath.WalkDir(root, func(file string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && (d.Name() == ".git" || d.Name() == "testdata"):
			return fs.SkipDir
		case d.IsDir() || !strings.HasSuffix(file, "_test.go"):
			return nil
		}
		text, err := os.ReadFile(file)
		if err != nil || !bytes.Contains(text, []byte("\n// Parity:")) {
			return err
		}
		name, err := filepath.Rel(root, file)
		if err != nil {
			return err
		}
		return addClaims(proofs, filepath.ToSlash(name), text)
	})
	return proofs, err
}

// addClaims adds the claims of a file. They are in the comments of functions with a parameter such as *testing.T.
func addClaims(proofs map[string][]string, name string, text []byte) error {
	files := token.NewFileSet()
	file, err := parser.ParseFile(files, name, text, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		return err
	}
	tests := map[*ast.CommentGroup]string{}
	for _, declaration := range file.Decls {
		if d, ok := declaration.(*ast.FuncDecl); ok && d.Doc != nil && usesTesting(d) {
			tests[d.Doc] = d.Name.Name
		}
	}
	long, err := isLong(file)
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	directory := path.Dir(name)
	if directory == "." {
		directory = "main"
	}
	for _, group := range file.Comments {
		for _, line := range group.List {
			if !strings.HasPrefix(line.Text, "// Parity:") {
				continue
			}
			test, known := tests[group]
			match := comment.FindStringSubmatch(line.Text)
			if !known || match == nil {
				return fmt.Errorf("%s: %q: want rows such as \"// Parity: A6, A7 (note)\" in the comment of a test",
					files.Position(line.Pos()), line.Text)
			}
			for _, claim := range claimed.FindAllStringSubmatch(match[1], -1) {
				proof, note := "`"+directory+"."+test+"`", claim[2]
				switch {
				case long && note == "":
					note = " (" + testLong + ")"
				case long:
					note = strings.TrimSuffix(note, ")") + "; " + testLong + ")"
				}
				proofs[claim[1]] = append(proofs[claim[1]], proof+note)
			}
		}
	}
	return nil
}

// testLong is the note of tests that CI does not run.
const testLong = "only by `make test-long`"

// isLong reports whether a file is built with the tag "long" only.
func isLong(file *ast.File) (bool, error) {
	for _, group := range file.Comments {
		for _, line := range group.List {
			if line.Pos() > file.Package || !constraint.IsGoBuild(line.Text) {
				continue
			}
			condition, err := constraint.Parse(line.Text)
			if err != nil {
				return false, err
			}
			return !condition.Eval(func(tag string) bool { return tag != "long" }), nil
		}
	}
	return false, nil
}

// usesTesting reports whether a parameter of a function is a pointer to a type of package testing.
func usesTesting(d *ast.FuncDecl) bool {
	for _, parameter := range d.Type.Params.List {
		if pointer, ok := parameter.Type.(*ast.StarExpr); ok {
			if selector, ok := pointer.X.(*ast.SelectorExpr); ok {
				if from, ok := selector.X.(*ast.Ident); ok && from.Name == "testing" {
					return true
				}
			}
		}
	}
	return false
}
