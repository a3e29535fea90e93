//go:build linux

package main

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// entry is a line of the list.
type entry struct {
	runs  int
	pkg   string   // path relative to the top directory, "./agent"
	each  bool     // every test of the package for itself
	tests []string // these tests, each for itself; none means the whole package in one process
	tags  string
}

// item is a test or a package, executed by one run.
type item struct {
	runs int
	pkg  string
	test string   // "" means all tests of the package but skip's
	skip []string // tests that are items themselves
	tags string
}

// name identifies an item in the state and the report.
func (i item) name() string {
	if i.test == "" {
		return i.pkg
	}
	return i.pkg + " " + i.test
}

// arguments returns the arguments of the test binary that select the tests.
func (i item) arguments() []string {
	if i.test != "" {
		return []string{"-test.run=^" + i.test + "$"}
	}
	if len(i.skip) == 0 {
		return nil
	}
	return []string{"-test.skip=^(" + strings.Join(i.skip, "|") + ")$"}
}

var (
	packageName = regexp.MustCompile(`^\.(/[a-z0-9]+)*$`)
	testName    = regexp.MustCompile(`^Test[A-Z]\w*$`)
)

// parse reads a list. Each line has the number of runs, a package and either nothing, "each" or names of tests. Build
// tags can be last, as "tags=long". Empty lines and those that begin with # are ignored.
func parse(text string) ([]entry, error) {
	var list []entry
	for number, line := range strings.Split(text, "\n") {
		fields := strings.Fields(line)
		if len(fields) == 0 || strings.HasPrefix(fields[0], "#") {
			continue
		}
		e, err := parseLine(fields)
		if err != nil {
			return nil, fmt.Errorf("line %d: %w", number+1, err)
		}
		list = append(list, e)
	}
	return list, nil
}

func parseLine(fields []string) (entry, error) {
	if len(fields) < 2 {
		return entry{}, fmt.Errorf("got %q, want a number and a package", fields)
	}
	runs, err := strconv.Atoi(fields[0])
	if err != nil || runs < 1 || runs > maxRuns {
		return entry{}, fmt.Errorf("got %q runs, want 1 to %d", fields[0], maxRuns)
	}
	e := entry{runs: runs, pkg: fields[1]}
	if !packageName.MatchString(e.pkg) {
		return entry{}, fmt.Errorf("got package %q, want a path like ./agent", e.pkg)
	}
	for i, field := range fields[2:] {
		tags, isTags := strings.CutPrefix(field, "tags=")
		switch {
		case isTags && i == len(fields)-3:
			e.tags = tags
		case field == "each":
			e.each = true
		case testName.MatchString(field):
			e.tests = append(e.tests, field)
		default:
			return entry{}, fmt.Errorf("got %q, want each or the name of a test", field)
		}
	}
	if e.each && len(e.tests) > 0 {
		return entry{}, errors.New("got each and names of tests, want one of them")
	}
	return e, nil
}

// expand returns the items of a package's entries with the same tags, in the order of the package's tests. A test that
// an entry names is not part of the others.
func expand(entries []entry, tests []string) ([]item, error) {
	var items []item
	var named []string
	for _, e := range entries {
		for _, test := range e.tests {
			if !slices.Contains(tests, test) {
				return nil, fmt.Errorf("%s has no test %s", e.pkg, test)
			}
			if slices.Contains(named, test) {
				return nil, fmt.Errorf("%s %s is listed twice", e.pkg, test)
			}
			named = append(named, test)
			items = append(items, item{runs: e.runs, pkg: e.pkg, test: test, tags: e.tags})
		}
	}
	whole := 0
	for _, e := range entries {
		if len(e.tests) > 0 {
			continue
		}
		if whole++; whole > 1 {
			return nil, fmt.Errorf("%s is listed twice", e.pkg)
		}
		if !e.each {
			items = append(items, item{runs: e.runs, pkg: e.pkg, skip: named, tags: e.tags})
			continue
		}
		for _, test := range tests {
			if !slices.Contains(named, test) {
				items = append(items, item{runs: e.runs, pkg: e.pkg, test: test, tags: e.tags})
			}
		}
	}
	slices.SortStableFunc(items, func(a, b item) int {
		return slices.Index(tests, a.test) - slices.Index(tests, b.test) // a package has no index: it is first
	})
	return items, nil
}
