package testenv

import (
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"os"
	"reflect"
	"runtime"
	"strings"
	"testing"
)

// CheckListed checks that a list of functions contains all functions and methods with a signature that the Go files of
// a directory declare, without tests. signature has no names, as in "func(context.Context) error". list is the name of
// the list, for errors.
func CheckListed(t *testing.T, dir, signature, list string, listed ...any) {
	t.Helper()
	known := map[string]bool{}
	for _, f := range listed {
		name := strings.TrimSuffix(runtime.FuncForPC(reflect.ValueOf(f).Pointer()).Name(), "-fm")
		known[name[strings.LastIndexByte(name, '.')+1:]] = true
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, entry := range entries {
		if !strings.HasSuffix(entry.Name(), ".go") || strings.HasSuffix(entry.Name(), "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), dir+"/"+entry.Name(), nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		for _, declaration := range file.Decls {
			f, ok := declaration.(*ast.FuncDecl)
			if ok && signatureOf(f) == signature && !known[f.Name.Name] {
				t.Errorf("%s: %s does not list %s", entry.Name(), list, f.Name.Name)
			}
		}
	}
}

// signatureOf returns the type of a function without the names of its parameters and results.
func signatureOf(f *ast.FuncDecl) string {
	typesOf := func(fields *ast.FieldList) string {
		var list []string
		if fields != nil {
			for _, field := range fields.List {
				for range max(1, len(field.Names)) {
					list = append(list, types.ExprString(field.Type))
				}
			}
		}
		return strings.Join(list, ", ")
	}
	results := typesOf(f.Type.Results)
	if strings.Contains(results, ", ") {
		results = "(" + results + ")"
	}
	return strings.TrimSpace("func(" + typesOf(f.Type.Params) + ") " + results)
}
