package main

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// root is the directory of the repository.
const root = "../../.."

// The generated parts of all documents are up to date.
func TestDocumentsAreUpToDate(t *testing.T) {
	documents, err := generate(root)
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range documents {
		got, err := os.ReadFile(filepath.Join(root, name))
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(string(want), string(got)); diff != "" {
			t.Errorf("%s is not what `make docs` writes (-generated +file):\n%s", name, diff)
		}
	}
}

// Links between documents name existing files and headings.
func TestLinks(t *testing.T) {
	documents, err := generate(root)
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range documents {
		for _, match := range regexp.MustCompile(`\]\(([^)\s]+)\)`).FindAllStringSubmatch(string(text), -1) {
			target, fragment, _ := strings.Cut(match[1], "#")
			if strings.Contains(target, "://") {
				continue
			}
			path := filepath.Join(filepath.Dir(name), target)
			if target == "" {
				path = name
			}
			if _, err := os.Stat(filepath.Join(root, path)); err != nil {
				t.Errorf("%s: link to %s: %v", name, match[1], err)
			} else if fragment != "" && !slices.Contains(headings(documents[path]), fragment) {
				t.Errorf("%s: link to %s: no such heading", name, match[1])
			}
		}
	}
}

// A README names every recording in the directory testdata.
func TestRecordingsHaveOrigins(t *testing.T) {
	dir := filepath.Join(root, "testdata")
	var text string
	for _, name := range []string{"README.md", "machines/README.md"} {
		data, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		text += string(data)
	}
	err := filepath.WalkDir(dir, func(file string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || d.Name() == "README.md" {
			return err
		}
		name, err := filepath.Rel(dir, file)
		if !strings.Contains(text, "`"+name+"`") &&
			!strings.Contains(text, "`"+strings.TrimSuffix(d.Name(), ".tree")+"`") {
			t.Errorf("testdata/%s: no README names it", name)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// headings returns the URL fragments of the headings of a document.
func headings(text []byte) []string {
	var fragments []string
	for _, match := range regexp.MustCompile(`(?m)^#+ (.*)$`).FindAllSubmatch(text, -1) {
		fragment := strings.ReplaceAll(strings.ToLower(string(match[1])), " ", "-")
		fragments = append(fragments, regexp.MustCompile(`[^\w-]`).ReplaceAllString(fragment, ""))
	}
	return fragments
}

func TestRunWritesWhatDiffers(t *testing.T) {
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "docs"), 0o755); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{
		"README.md": "read me\n", "CONTRIBUTING.md": "a\n  <!-- generated: collectors -->\nold\n  <!-- end -->\nb\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := run(dir); err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(filepath.Join(dir, "CONTRIBUTING.md"))
	if err != nil {
		t.Fatal(err)
	}
	text := string(got)
	if !strings.HasPrefix(text, "a\n  <!-- generated: collectors -->\n  | Collector |") ||
		strings.Contains(text, "old") || !strings.HasSuffix(text, "\n  <!-- end -->\nb\n") {
		t.Errorf("got %q", text)
	}
	if _, err := os.Stat(filepath.Join(dir, "docs/configuration.md")); err != nil {
		t.Errorf("reference of options: %v", err)
	}
}

func TestFillErrors(t *testing.T) {
	for text, want := range map[string]string{
		"<!-- generated: nothing -->\n<!-- end -->\n": `block "nothing" is unknown`,
		"<!-- generated:  -->\n<!-- end -->\n":        "is unknown",
		"<!-- generated: collectors -->\n":            `block "collectors" has no end`,
		"<!-- generated: collectors":                  "does not end in its line",
	} {
		if _, err := fill(root, text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: got error %v, want %q in it", text, err, want)
		}
	}
}
