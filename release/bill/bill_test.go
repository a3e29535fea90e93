package bill

import (
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

// The commit is a dependency only if it is what was built.
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

// The document next to a file is included only if it is that of the file.
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
}
