package main

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// Exported names of the packages for other programs (docs/library.md) show no type of a package below internal, which
// these programs could not name.
func TestExportedTypes(t *testing.T) {
	for _, name := range packageDirectories(t) {
		if within([]string{"storage", "netboot", "uki", "iso", "release", "initramfs"}, name) < 0 {
			continue
		}
		files, err := filepath.Glob(filepath.Join(root, name, "*.go"))
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range files {
			if !strings.HasSuffix(file, "_test.go") {
				checkExported(t, file)
			}
		}
	}
}

// checkExported reports the types of internal packages in the exported declarations of a file.
func checkExported(t *testing.T, name string) {
	t.Helper()
	files := token.NewFileSet()
	file, err := parser.ParseFile(files, name, nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	internal := map[string]bool{}
	for _, spec := range file.Imports {
		imported, err := strconv.Unquote(spec.Path.Value)
		if err != nil {
			t.Fatal(err)
		}
		if !strings.HasPrefix(imported, "ironroot/internal/") {
			continue
		}
		local := path.Base(imported)
		if spec.Name != nil {
			local = spec.Name.Name
		}
		internal[local] = true
	}
	if len(internal) == 0 || !ast.FileExports(file) {
		return
	}
	ast.Inspect(file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.BlockStmt:
			return false
		case *ast.FuncDecl:
			receiver, _, isMethod := strings.Cut(functionName(n), ".")
			return !isMethod || ast.IsExported(receiver)
		case *ast.ValueSpec:
			return n.Type != nil // otherwise the expression of a value follows
		case *ast.SelectorExpr:
			if pkg, isName := n.X.(*ast.Ident); isName && internal[pkg.Name] {
				t.Errorf("%s: exported declaration shows %s.%s", files.Position(n.Pos()), pkg.Name, n.Sel.Name)
			}
		}
		return true
	})
}
