//go:build linux

package main

import (
	"bytes"
	"context"
	"errors"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"ironroot/internal/test/testenv"
)

func mustParse(t *testing.T, text string) []entry {
	t.Helper()
	list, err := parse(text)
	if err != nil {
		t.Fatal(err)
	}
	return list
}

// A test that a line names is not run by the others of its package.
func TestExpand(t *testing.T) {
	tests := []string{"TestA", "TestB", "TestC"}
	for text, want := range map[string][]item{
		"10 ./a":      {{runs: 10, pkg: "./a"}},
		"3 ./a TestB": {{runs: 3, pkg: "./a", test: "TestB"}},
		"# comment\n\n10 ./a\n3 ./a TestC TestA": {
			{runs: 10, pkg: "./a", skip: []string{"TestC", "TestA"}},
			{runs: 3, pkg: "./a", test: "TestA"},
			{runs: 3, pkg: "./a", test: "TestC"},
		},
		"3 ./a each\n10 ./a TestB": {
			{runs: 3, pkg: "./a", test: "TestA"},
			{runs: 10, pkg: "./a", test: "TestB"},
			{runs: 3, pkg: "./a", test: "TestC"},
		},
		"3 ./a TestB tags=long": {{runs: 3, pkg: "./a", test: "TestB", tags: "long"}},
	} {
		got, err := expand(mustParse(t, text), tests)
		if diff := cmp.Diff(want, got, cmp.AllowUnexported(item{})); diff != "" || err != nil {
			t.Errorf("%q: %v (-want +got):\n%s", text, err, diff)
		}
	}
	for text, want := range map[string]string{
		"10":                        `got ["10"], want a number and a package`,
		"x ./a":                     `got "x" runs, want 1 to 10`,
		"11 ./a":                    `got "11" runs`,
		"3 agent":                   `got package "agent", want a path`,
		"3 ./a Benchmark":           `line 1: got "Benchmark", want each or the name of a test`,
		"3 ./a tags=long TestA":     `got "tags=long"`,
		"3 ./a each TestA":          "got each and names of tests",
		"3 ./a TestD":               "./a has no test TestD",
		"3 ./a TestA\n10 ./a TestA": "./a TestA is listed twice",
		"3 ./a each\n10 ./a":        "./a is listed twice",
	} {
		list, err := parse(text)
		if err == nil {
			_, err = expand(list, tests)
		}
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: got error %v, want %q", text, err, want)
		}
	}
}

// A test that fails once must pass ten times afterwards, one that fails three times is not run again, and a second call
// continues where the first one ended.
func TestRuns(t *testing.T) {
	testenv.Programs(t, "go")
	dir := t.TempDir()
	t.Chdir(testenv.Top(t))
	t.Setenv("IRONROOT_REPEAT_TEST", filepath.Join(dir, "failed"))
	list := filepath.Join(dir, "list")
	if err := os.WriteFile(list, []byte("2 ./internal/tools/repeat/testdata/flaky each\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	arguments := []string{"-list", list, "-dir", dir, "-timeout", "5m"}
	repeat := func(more ...string) (string, error) {
		var out bytes.Buffer
		err := run(t.Context(), append(arguments, more...), &out)
		return out.String(), err
	}
	const pkg = "./internal/tools/repeat/testdata/flaky"
	if out, err := repeat("-run", "TestPasses$"); err != nil || strings.Count(out, "TestPasses: passed") != 2 {
		t.Errorf("got %v and output\n%s\nwant two runs that pass", err, out)
	}
	out, err := repeat("-idle")
	want := "1 do not pass every time, see " + dir + "/report.md:\n" + pkg + " TestFails"
	if err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("got error %v, want one that names the test that fails", err)
	}
	for text, count := range map[string]int{
		"TestPasses: ": 0, "TestSkipped: skipped": 1, "TestFails: FAILED": 3, "TestFailsOnce: FAILED": 1,
		"TestFailsOnce: passed": 10,
	} {
		if got := strings.Count(out, text); got != count {
			t.Errorf("got %d lines with %q, want %d:\n%s", got, text, count, out)
		}
	}
	report, err := os.ReadFile(filepath.Join(dir, "report.md"))
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"| Test | Result | Passed in a row |", "| `" + pkg + " TestPasses` | passed | 2 | 2 |  | ",
		"| `" + pkg + " TestSkipped` | skipped | 0 | 2 |  | ",
		"| `" + pkg + " TestFails` | failed | 0 | 10 | TestFails `logs/",
		"| `" + pkg + " TestFailsOnce` | passed, failed before | 10 | 10 | TestFailsOnce `logs/",
	} {
		if !strings.Contains(string(report), want) {
			t.Errorf("the report lacks %q:\n%s", want, report)
		}
	}
	logs, err := filepath.Glob(filepath.Join(dir, "logs", "*TestFailsOnce*"))
	if err != nil || len(logs) != 1 {
		t.Fatalf("got logs %q, %v, want one", logs, err)
	}
	if text, err := os.ReadFile(logs[0]); err != nil || !strings.Contains(string(text), "for the first time") {
		t.Errorf("got log %q and %v, want the output of the test", text, err)
	}
	if out, err := repeat(); err == nil || out != "" {
		t.Errorf("again: got %v and output %q, want the same error and no run", err, out)
	}
	if out, err := repeat("-fresh", "-run", "TestPasses$"); err != nil || strings.Count(out, "passed") != 2 {
		t.Errorf("afresh: got %v and output\n%s\nwant two runs", err, out)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	err = run(ctx, append(arguments, "-fresh", "-run", "TestPasses$"), &bytes.Buffer{})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: got %v, want %v", err, context.Canceled)
	}
}

// unsteady are the packages whose users open ports, read the clock, start programs or boot machines.
var unsteady = []string{
	"net", "net/http", "net/http/httptest", "os/exec", "time", "ironroot/internal/test/testenv/nettest",
	"ironroot/lab/qemu",
}

// imports reports whether the tests of a directory import an unsteady package.
func imports(t *testing.T, dir string) bool {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*_test.go"))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range files {
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.ImportsOnly)
		if err != nil {
			t.Fatal(err)
		}
		for _, spec := range file.Imports {
			path, err := strconv.Unquote(spec.Path.Value)
			if err != nil {
				t.Fatal(err)
			}
			if slices.Contains(unsteady, path) {
				return true
			}
		}
	}
	return false
}

// The list names only tests that exist, and contains every package whose tests need it and every test with the build
// tag long.
func TestListIsComplete(t *testing.T) {
	testenv.Programs(t, "go")
	text, err := os.ReadFile("tests.txt")
	if err != nil {
		t.Fatal(err)
	}
	entries := mustParse(t, string(text))
	t.Chdir(testenv.Top(t))
	tests := map[string]map[string][]string{}
	listed := map[string]map[string][]item{"": {}, "long": {}}
	for tags := range listed {
		if tests[tags], err = list(t.Context(), tags, "./..."); err != nil {
			t.Fatal(err)
		}
		byPackage := map[string][]entry{}
		for _, e := range entries {
			if e.tags == tags {
				byPackage[e.pkg] = append(byPackage[e.pkg], e)
			}
		}
		for pkg, own := range byPackage {
			if listed[tags][pkg], err = expand(own, tests[tags][pkg]); err != nil {
				t.Error(err)
			}
			if len(tests[tags][pkg]) == 0 {
				t.Errorf("%s is listed, but has no tests", pkg)
			}
		}
	}
	for pkg, all := range tests["long"] {
		own := tests[""][pkg]
		if len(own) > 0 && len(listed[""][pkg]) == 0 && imports(t, pkg) {
			t.Errorf("%s is not listed: its tests import one of %q", pkg, unsteady)
		}
		for _, test := range all {
			if !slices.Contains(own, test) &&
				!slices.ContainsFunc(listed["long"][pkg], func(i item) bool { return i.test == test }) {
				t.Errorf("%s %s tags=long is not listed", pkg, test)
			}
		}
	}
}
