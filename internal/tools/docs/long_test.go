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

	"ironroot/internal/test/testenv"
)

// longTarget holds the tests of a target of `make test-long`.
type longTarget struct {
	directory string
	run       *regexp.Regexp
	used      bool
}

// longTargets returns the commands of `make test-long`, without executing them.
func longTargets(t *testing.T) []longTarget {
	t.Helper()
	out := dryRun(t, "test-long")
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

// dryRun returns the commands of a target of the Makefile, without executing them.
func dryRun(t *testing.T, target string) []byte {
	t.Helper()
	testenv.Programs(t, "make")
	command := exec.CommandContext(t.Context(), "make", "--no-print-directory", "--dry-run", target)
	command.Dir = root
	command.Env = slices.DeleteFunc(os.Environ(), func(variable string) bool { // of a make that runs this test
		name, _, _ := strings.Cut(variable, "=")
		return name == "MAKEFLAGS" || name == "MFLAGS" || name == "MAKELEVEL"
	})
	out, err := command.CombinedOutput()
	if err != nil {
		t.Fatalf("make: %v\n%s", err, out)
	}
	return out
}

// longTests returns the tests with the build tag "long", by directory.
func longTests(t *testing.T) map[string][]string {
	t.Helper()
	return testsOf(t, func(path string, text []byte, file *ast.File) bool {
		return bytes.Contains(text, []byte("//go:build")) && isLongFile(t, path, file)
	})
}

// testsOf returns the tests of the files that wanted accepts, by directory.
func testsOf(t *testing.T, wanted func(path string, text []byte, file *ast.File) bool) map[string][]string {
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
		if err != nil {
			return err
		}
		file := parseTest(t, path)
		if !wanted(path, text, file) {
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

// Targets that run tests by name, and those that skip them by name, agree: otherwise a test is run by none, unnoticed.
func TestCoreTargets(t *testing.T) {
	names := func(target, flag string) []string {
		match := regexp.MustCompile(flag + ` '\^\(([^']+)\)\$'`).FindSubmatch(dryRun(t, target))
		if match == nil {
			t.Fatalf("make %s has no flag %s with names of tests", target, flag)
		}
		return strings.Split(string(match[1]), "|")
	}
	core := names("test-core", "-run")
	if skipped := names("test-machines", "-skip"); !slices.Equal(core, skipped) {
		t.Errorf("make test-core runs %v, make test-machines skips %v, want the same", core, skipped)
	}
	known := map[string]int{}
	all := testsOf(t, func(path string, _ []byte, file *ast.File) bool { return !isLongFile(t, path, file) })
	for directory, tests := range all {
		if top, _, _ := strings.Cut(directory, "/"); top != "lab" && top != "uinit" && top != "iso" { // not in MACHINES
			continue
		}
		for _, name := range tests {
			known[name]++
		}
	}
	for _, name := range core {
		if known[name] != 1 {
			t.Errorf("make test-core runs %s: got %d tests of this name, want 1", name, known[name])
		}
	}
	slow := names("test-slow", "-run")
	if skipped := names("test-unit", "-skip"); !slices.Equal(slow, skipped) {
		t.Errorf("make test-slow runs %v, make test-unit skips %v, want the same", slow, skipped)
	}
	command := string(dryRun(t, "test-slow"))
	packages := strings.Fields(regexp.MustCompile(`-run '\S+' (.*)`).FindStringSubmatch(command)[1])
	found := map[string]bool{}
	for directory, tests := range all {
		for _, name := range tests {
			if !slices.Contains(slow, name) {
				continue
			}
			listed := slices.ContainsFunc(packages, func(p string) bool { return filepath.Clean(p) == directory })
			if found[directory] = true; !listed {
				t.Errorf("no target of make ci runs %s of %s: want its package in SLOW", name, directory)
			}
		}
	}
	if len(found) != len(packages) {
		t.Errorf("make test-slow tests %v, of which %v have a test named %v", packages, found, slow)
	}
}
