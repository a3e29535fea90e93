// Command lint reports where the ramdisk starts goroutines that do not contain panics: a panic in one ends PID 1. It
// also reports imports of os/exec and C. Its arguments are the directories to check. Tests and testdata are not
// checked.
//
// It rejects go statements, errgroup, and the types and functions of the standard library that start goroutines.
// Package ironroot/internal/goroutine has a replacement for each.
//
// It also reports words that the glossary rejects, in the Go files, documents and scripts below the current directory,
// and constructions that are hard to read, in documents and in the comments of Go files.
package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strconv"
	"strings"
)

// forbidden are the names that start a goroutine, by import path, and what to use instead.
var forbidden = map[string]map[string]string{
	"sync":    {"WaitGroup": "goroutine.Group"},
	"time":    {"AfterFunc": "goroutine.AfterTime"},
	"context": {"AfterFunc": "goroutine.AfterContext"},
	"golang.org/x/sync/errgroup": {
		"Group": "goroutine.Group", "WithContext": "goroutine.WithContext",
	},
}

// forbiddenImports are packages that the ramdisk does not import, and the reasons.
var forbiddenImports = map[string]string{
	"os/exec": "the ramdisk starts no programs",
	"C":       "the ramdisk has no C",
}

func main() {
	var found []string
	for _, root := range os.Args[1:] {
		list, err := checkTree(root)
		if err != nil {
			fmt.Fprintln(os.Stderr, "lint:", err)
			os.Exit(1)
		}
		found = append(found, list...)
	}
	words, err := checkWords(".")
	if err != nil {
		fmt.Fprintln(os.Stderr, "lint:", err)
		os.Exit(1)
	}
	found = append(found, words...)
	prose, err := checkProse(".")
	if err != nil {
		fmt.Fprintln(os.Stderr, "lint:", err)
		os.Exit(1)
	}
	found = append(found, prose...)
	for _, line := range found {
		fmt.Fprintln(os.Stderr, line)
	}
	if len(found) > 0 {
		os.Exit(1)
	}
}

// checkTree checks the Go files below root.
func checkTree(root string) ([]string, error) {
	var found []string
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && d.Name() == "testdata" && path != root:
			return fs.SkipDir
		case d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go"):
			return nil
		}
		list, err := checkFile(path)
		found = append(found, list...)
		return err
	})
	return found, err
}

// checkFile returns one line for each finding, which begins with file and line.
func checkFile(name string) ([]string, error) {
	files := token.NewFileSet()
	file, err := parser.ParseFile(files, name, nil, parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
	var found []string
	report := func(at token.Pos, format string, args ...any) {
		position := files.Position(at)
		found = append(found, fmt.Sprintf("%s:%d: %s", position.Filename, position.Line, fmt.Sprintf(format, args...)))
	}
	imports := map[string]string{} // import path by name in this file
	for _, spec := range file.Imports {
		target, err := strconv.Unquote(spec.Path.Value)
		if err != nil {
			return nil, err
		}
		if reason := forbiddenImports[target]; reason != "" {
			report(spec.Pos(), "import of %s: %s", target, reason)
		}
		if forbidden[target] == nil {
			continue
		}
		local := path.Base(target)
		if spec.Name != nil {
			local = spec.Name.Name
		}
		if local == "." {
			report(spec.Pos(), "dot import of %s hides what starts goroutines", target)
		}
		imports[local] = target
	}
	ast.Inspect(file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.GoStmt:
			report(n.Pos(), "bare go statement: a panic would end PID 1; use goroutine.Go")
		case *ast.SelectorExpr:
			x, ok := n.X.(*ast.Ident)
			if !ok {
				return true
			}
			if instead := forbidden[imports[x.Name]][n.Sel.Name]; instead != "" {
				report(n.Pos(), "%s.%s: a panic would end PID 1; use %s", x.Name, n.Sel.Name, instead)
			}
		}
		return true
	})
	return found, nil
}
