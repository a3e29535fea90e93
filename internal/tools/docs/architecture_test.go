package main

import (
	"go/ast"
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
	"testing"
)

// directoryRow is a row of the table of directories in docs/architecture.md.
type directoryRow struct {
	directories []string
	imports     []string
	prose       bool // the cell of the imports also contains what is no name
}

// directoryRows returns the rows of the directories with packages.
func directoryRows(t *testing.T) []directoryRow {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, "docs/architecture.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, table, _ := strings.Cut(string(text), "\n| Directory | Contents | Imports of this module |\n|---|---|---|\n")
	table, _, _ = strings.Cut(table, "\n\n")
	var rows []directoryRow
	for line := range strings.Lines(table) {
		cells := strings.Split(strings.Trim(strings.TrimSpace(line), "| "), " | ")
		var row directoryRow
		for _, name := range regexp.MustCompile("`([^`]+)`").FindAllStringSubmatch(cells[0], -1) {
			row.directories = append(row.directories, strings.TrimSuffix(name[1], "/"))
		}
		names, prose, _ := strings.Cut(cells[len(cells)-1], "; ")
		if names != "–" {
			row.imports = strings.Split(names, ", ")
		}
		row.prose = prose != ""
		if row.directories[0] != "testdata" {
			rows = append(rows, row)
		}
	}
	return rows
}

// within returns the index of the directory that contains a package, and -1 if none does.
func within(directories []string, name string) int {
	return slices.IndexFunc(directories,
		func(directory string) bool { return name == directory || strings.HasPrefix(name, directory+"/") })
}

// docs/architecture.md names the packages of this module that each directory imports, and contains all directories.
func TestImports(t *testing.T) {
	rows := directoryRows(t)
	for _, name := range packageDirectories(t) {
		if !slices.ContainsFunc(rows, func(row directoryRow) bool { return within(row.directories, name) >= 0 }) {
			t.Errorf("docs/architecture.md does not contain %s", name)
		}
	}
	for _, row := range rows {
		if slices.Equal(row.imports, []string{"everything"}) {
			continue
		}
		used := map[string]bool{}
		for _, directory := range row.directories {
			for name, file := range moduleImports(t, directory, row.prose) {
				switch at := within(row.imports, name); {
				case at >= 0:
					used[row.imports[at]] = true
				case within(row.directories, name) < 0:
					t.Errorf("%s imports %s, want only %s", file, name, row.imports)
				}
			}
		}
		for _, name := range row.imports {
			if !used[name] {
				t.Errorf("%s imports nothing of %s, which docs/architecture.md lists", row.directories, name)
			}
		}
	}
}

// The ramdisk imports neither the lab nor what runs on an operator's machine, also not through other packages.
func TestRamdiskImports(t *testing.T) {
	rows := directoryRows(t)
	reached, queue := map[string]bool{}, []string{"uinit"}
	for len(queue) > 0 {
		name := queue[0]
		queue = queue[1:]
		for _, row := range rows {
			if within(row.directories, name) < 0 || reached[row.directories[0]] {
				continue
			}
			reached[row.directories[0]] = true
			queue = append(queue, row.imports...)
		}
	}
	for _, name := range []string{"lab", "initramfs", "iso", "uki", "release", "watch", "internal/test/testenv"} {
		if reached[name] {
			t.Errorf("by docs/architecture.md, the ramdisk imports %s", name)
		}
	}
	for _, name := range []string{"agent", "storage", "netboot", "internal/goroutine"} {
		if !reached[name] {
			t.Errorf("by docs/architecture.md, the ramdisk does not import %s", name)
		}
	}
}

// The types that docs/architecture.md names for package netboot exist.
func TestNetbootTypes(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(root, "docs/architecture.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, table, _ := strings.Cut(string(text), "\n| Type | Concept | Goroutine |\n")
	table, _, _ = strings.Cut(table, "\n\n")
	names := regexp.MustCompile("`([^`]+)`").FindAllStringSubmatch(table, -1)
	if len(names) == 0 {
		t.Error("docs/architecture.md has no table of types")
	}
	declared := declaredTypes(t, "netboot")
	for _, name := range names {
		if !declared[name[1]] {
			t.Errorf("docs/architecture.md names %s, which is no type of package netboot", name[1])
		}
	}
}

// declaredTypes returns the names of the types that the files of a directory declare. Tests are ignored.
func declaredTypes(t *testing.T, directory string) map[string]bool {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(root, directory, "*.go"))
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]bool{}
	for _, path := range paths {
		if strings.HasSuffix(path, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		for node := range ast.Preorder(file) {
			if spec, ok := node.(*ast.TypeSpec); ok {
				found[spec.Name.Name] = true
			}
		}
	}
	return found
}

// packageDirectories returns the directories below root with Go files that are no tests, without root itself.
func packageDirectories(t *testing.T) []string {
	t.Helper()
	found := map[string]bool{}
	for file := range goFiles(t, "") {
		if directory := path.Dir(file); directory != "." {
			found[directory] = true
		}
	}
	return slices.Sorted(maps.Keys(found))
}

// moduleImports returns the packages of this module outside of a directory that the directory's packages import, each
// with an importing file. Tests and packages for tests are ignored, and also programs on request.
func moduleImports(t *testing.T, directory string, withoutPrograms bool) map[string]string {
	t.Helper()
	found := map[string]string{}
	for name := range goFiles(t, directory) {
		file, err := parser.ParseFile(token.NewFileSet(), filepath.Join(root, name), nil, parser.ImportsOnly)
		if err != nil {
			t.Fatal(err)
		}
		if withoutPrograms && file.Name.Name == "main" {
			continue
		}
		for _, spec := range file.Imports {
			imported, err := strconv.Unquote(spec.Path.Value)
			if err != nil {
				t.Fatal(err)
			}
			imported, ok := strings.CutPrefix(imported, "ironroot/")
			if ok && within([]string{directory}, imported) < 0 {
				found[imported] = name
			}
		}
	}
	return found
}

// goFiles returns the Go files below a directory of the repository, relative to its root. Tests, packages for tests
// below the directory, and directories that the go command ignores are left out.
func goFiles(t *testing.T, directory string) map[string]bool {
	t.Helper()
	start, files := filepath.Join(root, directory), map[string]bool{}
	err := filepath.WalkDir(start, func(file string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && file != start && (d.Name() == "testdata" || strings.HasPrefix(d.Name(), ".") ||
			directory != "" && strings.HasSuffix(d.Name(), "test")):
			return fs.SkipDir
		case d.IsDir() || !strings.HasSuffix(file, ".go") || strings.HasSuffix(file, "_test.go"):
			return nil
		}
		name, err := filepath.Rel(root, file)
		files[filepath.ToSlash(name)] = true
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}
