package main

import (
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"strings"
)

// source returns declarations of a Go file as a code block. The arguments are the file and the names of functions,
// types, variables and constants, or of methods as TYPE.METHOD; without names, it returns the file. Tabs become four
// spaces.
func source(root string, arguments []string, _ string) (string, error) {
	if len(arguments) == 0 {
		return "", errors.New("want a file and names of declarations")
	}
	text, err := os.ReadFile(filepath.Join(root, arguments[0]))
	if err != nil {
		return "", err
	}
	files := token.NewFileSet()
	file, err := parser.ParseFile(files, arguments[0], text, parser.ParseComments)
	if err != nil {
		return "", err
	}
	var parts []string
	for _, name := range arguments[1:] {
		declaration := find(file, name)
		if declaration == nil {
			return "", fmt.Errorf("%s declares no %s", arguments[0], name)
		}
		from, to := declaration.Pos(), declaration.End()
		if comment := commentOf(declaration); comment != nil {
			from = comment.Pos()
		}
		start, end := files.Position(from).Offset, files.Position(to).Offset
		if line, _, _ := strings.Cut(string(text[end:]), "\n"); strings.HasPrefix(strings.TrimSpace(line), "//") {
			end += len(line)
		}
		parts = append(parts, string(text[start:end])+"\n")
	}
	if len(parts) == 0 {
		parts = []string{string(text)}
	}
	return "```go\n" + strings.ReplaceAll(strings.Join(parts, "\n"), "\t", "    ") + "```\n", nil
}

// find returns the top-level declaration of a name, or nil if there is none.
func find(file *ast.File, name string) ast.Decl {
	for _, declaration := range file.Decls {
		switch d := declaration.(type) {
		case *ast.FuncDecl:
			if functionName(d) == name {
				return d
			}
		case *ast.GenDecl:
			for _, spec := range d.Specs {
				if s, ok := spec.(*ast.TypeSpec); ok && s.Name.Name == name {
					return d
				}
				if s, ok := spec.(*ast.ValueSpec); ok && s.Names[0].Name == name {
					return d
				}
			}
		}
	}
	return nil
}

// functionName returns the name of a function, and TYPE.METHOD for a method.
func functionName(d *ast.FuncDecl) string {
	if d.Recv == nil {
		return d.Name.Name
	}
	receiver := d.Recv.List[0].Type
	if pointer, ok := receiver.(*ast.StarExpr); ok {
		receiver = pointer.X
	}
	if named, ok := receiver.(*ast.Ident); ok {
		return named.Name + "." + d.Name.Name
	}
	return ""
}

func commentOf(declaration ast.Decl) *ast.CommentGroup {
	switch d := declaration.(type) {
	case *ast.FuncDecl:
		return d.Doc
	case *ast.GenDecl:
		return d.Doc
	}
	return nil
}

// lines returns the lines of a file that match a regular expression as a code block. The arguments are the file and
// the expression.
func lines(root string, arguments []string, _ string) (string, error) {
	if len(arguments) != 2 {
		return "", errors.New("want a file and a regular expression")
	}
	text, err := os.ReadFile(filepath.Join(root, arguments[0]))
	if err != nil {
		return "", err
	}
	expression, err := regexp.Compile(arguments[1])
	if err != nil {
		return "", err
	}
	var found strings.Builder
	for line := range strings.Lines(string(text)) {
		if expression.MatchString(strings.TrimSuffix(line, "\n")) {
			found.WriteString(line)
		}
	}
	if found.Len() == 0 {
		return "", fmt.Errorf("%s has no line that matches %s", arguments[0], arguments[1])
	}
	return "```\n" + found.String() + "```\n", nil
}
