package bill

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"ironroot/release/provenance"
	"ironroot/release/spdx"
)

func write(t *testing.T, path, text string) string {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// describe writes the documents of a file and returns its provenance.
func describe(t *testing.T, path string, build Build) string {
	t.Helper()
	sum, err := SumFile(path)
	if err != nil {
		t.Fatal(err)
	}
	d := spdx.New(filepath.Base(path), "1", sum, "ARCHIVE")
	if err := build.Write(path, d, provenance.Definition{}); err != nil {
		t.Fatal(err)
	}
	statement, err := os.ReadFile(path + provenance.Suffix)
	if err != nil {
		t.Fatal(err)
	}
	return string(statement)
}

// The commit is a dependency only if it was built.
func TestSource(t *testing.T) {
	path := write(t, filepath.Join(t.TempDir(), "file"), "text")
	for _, c := range []struct {
		build      Build
		want       string
		dependency bool
	}{
		{Build{Commit: "abc"}, "built from commit abc", true},
		{Build{Commit: "abc", Modified: true}, "built from commit abc with changes", false},
		{Build{}, "built from a source without a known commit", false},
	} {
		statement := describe(t, path, c.build)
		if got := strings.Contains(statement, `"gitCommit": "abc"`); got != c.dependency {
			t.Errorf("%+v: commit is a dependency: got %v, want %v", c.build, got, c.dependency)
		}
		if got := strings.Contains(statement, c.want); got == c.dependency {
			t.Errorf("%+v: got statement %s", c.build, statement)
		}
		document, err := os.ReadFile(path + spdx.Suffix)
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(string(document), `"`+c.want+`"`) {
			t.Errorf("%+v: the document does not say %q", c.build, c.want)
		}
	}
}

// The document next to a file is included only if it belongs to the file.
func TestInclude(t *testing.T) {
	path := write(t, filepath.Join(t.TempDir(), "file"), "text")
	include := func() error {
		_, err := Include(spdx.New("whole", "1", strings.Repeat("0", 64), "ARCHIVE"), path)
		return err
	}
	if err := include(); err != nil {
		t.Errorf("file without a document: %v", err)
	}
	describe(t, path, Build{})
	if err := include(); err != nil {
		t.Error(err)
	}
	write(t, path, "other text")
	if err := include(); err == nil || !strings.Contains(err.Error(), "file.spdx.json describes a file with SHA-256") {
		t.Errorf("document of another content: got error %v", err)
	}
	write(t, path+spdx.Suffix, "{}")
	if err := include(); err == nil || !strings.Contains(err.Error(), "file.spdx.json") {
		t.Errorf("damaged document: got error %v", err)
	}
	if err := errors.Join(os.Remove(path+spdx.Suffix), os.Mkdir(path+spdx.Suffix, 0o700)); err != nil {
		t.Fatal(err)
	}
	if err := include(); err == nil || !strings.Contains(err.Error(), "file.spdx.json: is a directory") {
		t.Errorf("document that cannot be read: got error %v", err)
	}
}

// The documents of a layout contain the documents of its files.
func TestWriteLayout(t *testing.T) {
	dir := t.TempDir()
	kernel, layout := write(t, filepath.Join(dir, "a.kernel"), "kernel"), filepath.Join(dir, "a.oci")
	describe(t, kernel, Build{})
	if err := (Build{Version: "1"}).WriteLayout(layout, strings.Repeat("0", 64), []string{kernel}); err != nil {
		t.Fatal(err)
	}
	sum, err := SumFile(kernel)
	if err != nil {
		t.Fatal(err)
	}
	for _, suffix := range []string{spdx.Suffix, provenance.Suffix} {
		text, err := os.ReadFile(layout + suffix)
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(string(text), "a.kernel") || !strings.Contains(string(text), sum) {
			t.Errorf("a.oci%s lacks a.kernel with SHA-256 %s:\n%s", suffix, sum, text)
		}
	}
	missing := filepath.Join(dir, "missing")
	if err := (Build{}).WriteLayout(layout, sum, []string{missing}); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("missing file: got %v, want %v", err, fs.ErrNotExist)
	}
	if err := (Build{}).WriteLayout(layout, sum, []string{dir}); err == nil {
		t.Error("a directory instead of a file: got no error")
	}
}

// The modules of a program are its own, the standard library, and those that are named.
func TestReadModules(t *testing.T) {
	name, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	program, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	replaced := []string{"example.com/m v1.0.0 => example.com/fork v1.2.3", "malformed"}
	modules, err := ReadModules(program, replaced, Directories{Root: "/go"})
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	for _, m := range modules {
		got[m.Path] = m.Version
	}
	if got["example.com/fork"] != "v1.2.3" || got["malformed"] != "" {
		t.Errorf("got modules %v, want example.com/fork v1.2.3", got)
	}
	if first := modules[0]; first.Path != standard || first.Version == "" || first.Dir != "/go" {
		t.Errorf("got %+v as the standard library, want its version and /go", first)
	}
	if _, found := got["ironroot"]; !found {
		t.Errorf("got modules %v, want ironroot, that of the program", got)
	}
	if _, err := ReadModules([]byte("no program"), nil, Directories{}); err == nil {
		t.Error("no program: got no error")
	}
}
