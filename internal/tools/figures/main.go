// Command figures prints how large the code is, and how many of its seams are functions in structs. No figure has a
// limit: they are for comparisons of two commits.
//
//	go run ./internal/tools/figures [DIR]   DIR is the top of a clone, here when not given
package main

import (
	"bytes"
	"context"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"text/tabwriter"
)

// figures are the figures of one commit.
type figures struct {
	packages     int   // of this module in the ramdisk
	productLines int   // of these packages, without tests
	testLines    int   // of all tests of the module
	fields       int   // of a function type in structs, without tests
	interfaces   int   // interface types, without tests
	structs      int   // struct types, without tests
	functions    []int // lines of the functions of the ramdisk, sorted
	files        []int // lines of the files of the ramdisk, sorted
}

func main() {
	dir := "."
	if len(os.Args) > 1 {
		dir = os.Args[1]
	}
	f, err := measure(dir)
	if err != nil {
		fmt.Fprintln(os.Stderr, "figures:", err)
		os.Exit(1)
	}
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	for _, row := range []struct {
		text  string
		value int
	}{
		{"packages of the ramdisk", f.packages},
		{"their lines", f.productLines},
		{"lines of tests", f.testLines},
		{"function-typed fields of structs", f.fields},
		{"interfaces", f.interfaces},
		{"structs", f.structs},
		{"lines of a function of the ramdisk, 99th percentile", percentile(f.functions, 99)},
		{"lines of its longest file", percentile(f.files, 100)},
	} {
		_, _ = fmt.Fprintf(w, "%s\t%d\n", row.text, row.value)
	}
	_ = w.Flush()
}

// percentile returns the value that p percent of the sorted values do not exceed.
func percentile(values []int, p int) int {
	if len(values) == 0 {
		return 0
	}
	return values[(len(values)-1)*p/100]
}

// measure reads the Go files below the directory of a module.
func measure(dir string) (figures, error) {
	var f figures
	list := exec.CommandContext(context.Background(), "go", "list", "-deps", "-f",
		"{{with .Module}}{{if .Main}}{{$.Dir}}{{end}}{{end}}", "./uinit")
	list.Dir, list.Stderr = dir, os.Stderr
	out, err := list.Output()
	if err != nil {
		return f, fmt.Errorf("packages of the ramdisk: %w", err)
	}
	ramdisk := strings.Fields(string(out))
	f.packages = len(ramdisk)
	top, err := filepath.Abs(dir)
	if err != nil {
		return f, err
	}
	err = filepath.WalkDir(top, func(path string, d fs.DirEntry, err error) error {
		switch name := d.Name(); {
		case err != nil:
			return err
		case d.IsDir() && (name == "testdata" || strings.HasPrefix(name, ".") || name == "build"):
			return fs.SkipDir
		case d.IsDir() || !strings.HasSuffix(name, ".go"):
			return nil
		}
		return f.add(path, slices.Contains(ramdisk, filepath.Dir(path)))
	})
	slices.Sort(f.functions)
	slices.Sort(f.files)
	return f, err
}

// add adds the figures of a file.
func (f *figures) add(path string, isRamdisk bool) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	lines := bytes.Count(text, []byte("\n"))
	if strings.HasSuffix(path, "_test.go") {
		f.testLines += lines
		return nil
	}
	files := token.NewFileSet()
	file, err := parser.ParseFile(files, path, text, parser.SkipObjectResolution)
	if err != nil {
		return err
	}
	if isRamdisk {
		f.productLines += lines
		f.files = append(f.files, lines)
	}
	for node := range ast.Preorder(file) {
		switch n := node.(type) {
		case *ast.FuncDecl:
			if isRamdisk {
				f.functions = append(f.functions, files.Position(n.End()).Line-files.Position(n.Pos()).Line+1)
			}
		case *ast.InterfaceType:
			f.interfaces++
		case *ast.StructType:
			f.structs++
			for _, field := range n.Fields.List {
				if _, isFunc := field.Type.(*ast.FuncType); isFunc {
					f.fields += max(1, len(field.Names))
				}
			}
		}
	}
	return nil
}
