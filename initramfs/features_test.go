package initramfs

import (
	"bytes"
	"encoding/json"
	"fmt"
	"go/ast"
	"go/format"
	"go/parser"
	"go/token"
	"io"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"ironroot/internal/test/testenv"
)

// featureBudget limits what the packages of features together add to the initramfs, in compressed bytes: 1.5 MiB.
const featureBudget = 3 << 20 / 2

// features are logins by SSH and on the consoles, the servers of ironroot netboot, and the builder of unified kernel
// images. Of these packages, the ramdisk contains only those below uinit. The size of another one counts as soon as the
// ramdisk imports it.
var features = []string{
	"ironroot/uinit/account", "ironroot/uinit/login", "ironroot/uinit/sshd", "ironroot/uinit/sudo",
	"ironroot/uinit/worker", "ironroot/netboot/pxe", "ironroot/netboot/server", "ironroot/uki",
}

// onlyFeatures are packages that only features import. A program without features that contains one would hide a part
// of their size.
var onlyFeatures = []string{"golang.org/x/crypto/ssh", "github.com/pkg/sftp", "github.com/pin/tftp/v3", "debug/pe"}

// TestFeatureSize builds /init twice, with the features and with fakes: packages with the same exported names, in
// which all functions panic and which therefore need no libraries. The difference includes the libraries.
func TestFeatureSize(t *testing.T) {
	testenv.Programs(t, "go")
	b := &builder{Options: Options{Dir: testenv.Top(t), Progress: io.Discard, CacheDir: t.TempDir()}}
	if err := b.setDefaults(); err != nil {
		t.Fatal(err)
	}
	overlay := fakePackages(t, b, features)
	deps, err := b.goTool(t.Context(), "list", "-deps", overlay, productInit)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range onlyFeatures {
		if slices.Contains(strings.Fields(string(deps)), name) {
			t.Errorf("/init without features imports %s", name)
		}
	}
	size := func(flags ...string) (raw, stored int) {
		program, err := b.goBuild(t.Context(), productInit, "off", flags...)
		if err != nil {
			t.Fatal(err)
		}
		return len(program), len(pack(program))
	}
	raw, stored := size()
	rawWithout, storedWithout := size(overlay)
	t.Logf("/init has %d bytes, compressed %d; without features %d, compressed %d", raw, stored, rawWithout,
		storedWithout)
	cost := stored - storedWithout
	t.Logf("features cost %d bytes of the initramfs (%.2f MiB)", cost, float64(cost)/(1<<20))
	if cost > featureBudget {
		t.Errorf("%s cost %d bytes of the initramfs (%d with them, %d without), want at most %d",
			strings.Join(features, ", "), cost, stored, storedWithout, featureBudget)
	}
	if cost < featureBudget/100 {
		t.Errorf("features cost %d bytes (%d with them, %d without): the fakes do not replace them", cost, stored,
			storedWithout)
	}
}

// fakePackages writes fakes of packages, and returns the flag of the go command that replaces the packages by them.
func fakePackages(t *testing.T, b *builder, packages []string) string {
	t.Helper()
	out, err := b.goTool(t.Context(), append([]string{
		"list", "-f", `{{$dir := .Dir}}{{range .GoFiles}}{{$dir}}/{{.}}{{"\n"}}{{end}}`,
	}, packages...)...)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	replace := map[string]string{}
	for i, name := range strings.Fields(string(out)) {
		text, err := fakeFile(name)
		if err != nil {
			t.Fatalf("fake of %s: %v", name, err)
		}
		replace[name] = filepath.Join(dir, fmt.Sprintf("%d.go", i))
		if err := os.WriteFile(replace[name], text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	text, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		t.Fatal(err)
	}
	overlay := filepath.Join(dir, "overlay.json")
	if err := os.WriteFile(overlay, text, 0o600); err != nil {
		t.Fatal(err)
	}
	return "-overlay=" + overlay
}

// fakeFile returns a Go file with the exported functions and variables of a file and with its types and constants. The
// functions panic, and the structures have no unexported fields.
func fakeFile(name string) ([]byte, error) {
	files := token.NewFileSet()
	file, err := parser.ParseFile(files, name, nil, parser.SkipObjectResolution) // without comments
	if err != nil {
		return nil, err
	}
	file.Decls = slices.DeleteFunc(file.Decls, func(d ast.Decl) bool {
		switch d := d.(type) {
		case *ast.FuncDecl:
			d.Body.List = []ast.Stmt{&ast.ExprStmt{X: &ast.CallExpr{
				Fun: ast.NewIdent("panic"), Args: []ast.Expr{&ast.BasicLit{Kind: token.STRING, Value: `"fake"`}},
			}}}
			return !d.Name.IsExported() || d.Recv != nil && !ast.IsExported(receiver(d.Recv.List[0].Type))
		case *ast.GenDecl:
			if d.Tok == token.VAR {
				d.Specs = slices.DeleteFunc(d.Specs, func(s ast.Spec) bool {
					return !slices.ContainsFunc(s.(*ast.ValueSpec).Names, (*ast.Ident).IsExported)
				})
			}
			return len(d.Specs) == 0
		}
		return false
	})
	used := map[string]bool{}
	ast.Inspect(file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.StructType:
			n.Fields.List = slices.DeleteFunc(n.Fields.List, func(f *ast.Field) bool {
				return len(f.Names) > 0 && !slices.ContainsFunc(f.Names, (*ast.Ident).IsExported)
			})
		case *ast.SelectorExpr:
			if x, ok := n.X.(*ast.Ident); ok {
				used[x.Name] = true
			}
		}
		return true
	})
	return formatted(files, file, used)
}

// receiver returns the name of a method's type.
func receiver(of ast.Expr) string {
	switch of := of.(type) {
	case *ast.StarExpr:
		return receiver(of.X)
	case *ast.IndexExpr:
		return receiver(of.X)
	case *ast.Ident:
		return of.Name
	}
	return ""
}

// majorVersion matches the last element of an import path that is not the name of the package.
var majorVersion = regexp.MustCompile(`/v[0-9]+$`)

// formatted returns the text of a file with the imports that are used.
func formatted(files *token.FileSet, file *ast.File, used map[string]bool) ([]byte, error) {
	for i, d := range file.Decls {
		imports, ok := d.(*ast.GenDecl)
		if !ok || imports.Tok != token.IMPORT {
			continue
		}
		kept := &ast.GenDecl{Tok: token.IMPORT, Lparen: 1, Rparen: 1}
		for _, s := range imports.Specs {
			s := s.(*ast.ImportSpec)
			from, err := strconv.Unquote(s.Path.Value)
			if err != nil {
				return nil, err
			}
			name := path.Base(majorVersion.ReplaceAllString(from, ""))
			if s.Name != nil {
				name = s.Name.Name
			}
			if used[name] {
				kept.Specs = append(kept.Specs, &ast.ImportSpec{Name: s.Name, Path: s.Path})
			}
		}
		file.Decls[i] = kept
	}
	var text bytes.Buffer
	err := format.Node(&text, files, file)
	return text.Bytes(), err
}
