package main

import (
	"bytes"
	"go/ast"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"ironroot/internal/testenv"
)

// longTarget is what a target of `make test-long` runs.
type longTarget struct {
	directory string
	run       *regexp.Regexp
	used      bool
}

// longTargets returns the commands of `make test-long`, without executing them.
func longTargets(t *testing.T) []longTarget {
	t.Helper()
	testenv.Programs(t, "make")
	command := exec.CommandContext(t.Context(), "make", "--no-print-directory", "--dry-run", "test-long")
	command.Dir = root
	command.Env = slices.DeleteFunc(os.Environ(), func(variable string) bool { // of a make that runs this test
		name, _, _ := strings.Cut(variable, "=")
		return name == "MAKEFLAGS" || name == "MFLAGS" || name == "MAKELEVEL"
	})
	out, err := command.CombinedOutput()
	if err != nil {
		t.Fatalf("make: %v\n%s", err, out)
	}
	var targets []longTarget
	for _, m := range regexp.MustCompile(`-tags long .*-run '([^']+)' \./(\S+)`).FindAllSubmatch(out, -1) {
		run, err := regexp.Compile(string(m[1]))
		if err != nil {
			t.Fatal(err)
		}
		targets = append(targets, longTarget{directory: string(m[2]), run: run})
	}
	if len(targets) == 0 {
		t.Fatalf("got no tests from make:\n%s", out)
	}
	return targets
}

// longTests returns the tests with the build tag "long", by directory.
func longTests(t *testing.T) map[string][]string {
	t.Helper()
	tests := map[string][]string{}
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && (d.Name() == ".git" || d.Name() == "testdata"):
			return fs.SkipDir
		case d.IsDir() || !strings.HasSuffix(path, "_test.go"):
			return nil
		}
		text, err := os.ReadFile(path)
		if err != nil || !bytes.Contains(text, []byte("//go:build")) {
			return err
		}
		file := parseTest(t, path)
		if !isLongFile(t, path, file) {
			return nil
		}
		directory, err := filepath.Rel(root, filepath.Dir(path))
		for _, declaration := range file.Decls {
			d, ok := declaration.(*ast.FuncDecl)
			if ok && d.Recv == nil && strings.HasPrefix(d.Name.Name, "Test") && usesTesting(d) {
				tests[filepath.ToSlash(directory)] = append(tests[filepath.ToSlash(directory)], d.Name.Name)
			}
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return tests
}

// Each test with the build tag "long" is run by a target of `make test-long`, and each target runs such a test.
func TestLongTargets(t *testing.T) {
	targets := longTargets(t)
	for directory, names := range longTests(t) {
		for _, name := range names {
			found := false
			for i := range targets {
				if targets[i].directory == directory && targets[i].run.MatchString(name) {
					targets[i].used, found = true, true
				}
			}
			if !found {
				t.Errorf("no target of make test-long runs %s of %s", name, directory)
			}
		}
	}
	for _, target := range targets {
		if !target.used {
			t.Errorf("make test-long runs %s in %s: no test with the tag long", target.run, target.directory)
		}
	}
}
