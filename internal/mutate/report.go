//go:build linux

package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"
)

// readList reads a list of mutants that survive: a line is the name of a mutant, " => " and the reason. Empty lines
// and those that start with "#" are comments.
func readList(path string) (map[string]string, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close() //nolint:errcheck // only read
	known := map[string]string{}
	lines := bufio.NewScanner(f)
	for number := 1; lines.Scan(); number++ {
		line := strings.TrimSpace(lines.Text())
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		name, reason, found := strings.Cut(line, " => ")
		if !found || strings.TrimSpace(reason) == "" {
			return nil, fmt.Errorf("%s:%d: no reason, want NAME => REASON", path, number)
		}
		if known[name] != "" {
			return nil, fmt.Errorf("%s:%d: %s is listed twice", path, number, name)
		}
		known[name] = reason
	}
	return known, lines.Err()
}

// inBoth returns the names that two lists have in common, sorted.
func inBoth(a, b map[string]string) []string {
	var names []string
	for name := range a {
		if b[name] != "" {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// tally counts mutants.
type tally struct {
	tried, killed, timeouts           int
	equivalent, untestable, unreached int
	logging, loggingKilled            int
}

func (t *tally) add(other tally) {
	t.tried += other.tried
	t.killed += other.killed
	t.timeouts += other.timeouts
	t.equivalent += other.equivalent
	t.untestable += other.untestable
	t.unreached += other.unreached
	t.logging += other.logging
	t.loggingKilled += other.loggingKilled
}

// percent returns the share of killed mutants. Equivalent and untestable ones count as survivors.
func (t *tally) percent() float64 {
	if t.tried == 0 {
		return 100
	}
	return 100 * float64(t.killed) / float64(t.tried)
}

func (t *tally) String() string {
	return fmt.Sprintf("%5d mutants %5d killed %5.1f %%  %d by timeout; %d equivalent, %d untestable, %d not reached; "+
		"log lines %d of %d", t.tried, t.killed, t.percent(), t.timeouts, t.equivalent, t.untestable, t.unreached,
		t.loggingKilled, t.logging)
}

// report prints results and checks them against the required share of killed mutants.
type report struct {
	out        io.Writer
	equivalent map[string]string // reasons by name: mutants that behave like the program
	untestable map[string]string // reasons by name: mutants that differ only after a failure that no test can cause
	accounted  []string          // packages below the module
	complete   bool              // every mutant was run

	total      tally
	unlisted   []string // survivors that must be listed
	superseded []string // listed mutants that do not survive or do not exist
	failed     []string // packages that could not be measured
}

// add reports one package.
func (p *report) add(r *packageRun, took time.Duration) {
	var t tally
	var survivors []string
	seen := map[string]bool{}
	for n, m := range r.mutants {
		status := r.status[n]
		killed := status == statusKilled || status == statusTimeout
		switch {
		case status == "":
			continue
		case m.logging:
			t.logging++
			if killed {
				t.loggingKilled++
			}
			continue
		}
		t.tried++
		equivalent, untestable := p.equivalent[m.name()], p.untestable[m.name()]
		switch {
		case killed:
			t.killed++
			if status == statusTimeout {
				t.timeouts++
			}
			continue
		case equivalent != "":
			t.equivalent++
			seen[m.name()] = true
			status = "equivalent (" + equivalent + ")"
		case untestable != "":
			t.untestable++
			seen[m.name()] = true
			status = "untestable (" + untestable + ")"
		case status == statusUnreached:
			t.unreached++
		}
		survivors = append(survivors, fmt.Sprintf("%s:%d: %s: %s: %s: %s",
			m.file, m.line, m.function, m.kind, m.text, status))
		if !seen[m.name()] && slices.Contains(p.accounted, r.tree()) {
			p.unlisted = append(p.unlisted, m.name())
		}
	}
	for _, list := range []map[string]string{p.equivalent, p.untestable} {
		for name := range list {
			if file, _, _ := strings.Cut(name, " | "); p.complete && !seen[name] && packageOf(file) == r.tree() {
				p.superseded = append(p.superseded, name)
			}
		}
	}
	p.total.add(t)
	p.printf("%-30s %s  %s\n", r.tree(), t.String(), took.Round(time.Second))
	for _, line := range survivors {
		p.printf("    %s\n", line)
	}
}

// skip reports a package that is not measured because it is part of tests.
func (p *report) skip(skipped goPackage) {
	p.printf("%-30s not measured: it imports package testing\n", skipped.tree())
}

// fail reports a package that could not be measured.
func (p *report) fail(failed goPackage, err error) {
	p.printf("%-30s not measured: %v\n", failed.tree(), err)
	p.failed = append(p.failed, failed.tree())
}

// packageOf returns the directory of a file, with slashes.
func packageOf(file string) string { return file[:max(strings.LastIndex(file, "/"), 0)] }

func (p *report) printf(format string, arguments ...any) {
	_, _ = fmt.Fprintf(p.out, format, arguments...) // a report that is not written is missed by the reader
}

// end reports all packages together. It returns an error if a package could not be measured, if too few mutants were
// killed, if a survivor of an accounted package is in neither list, or if a listed mutant does not survive.
func (p *report) end(least float64) error {
	p.printf("%-30s %s\n", "all", p.total.String())
	var errs []error
	if len(p.failed) > 0 {
		errs = append(errs,
			fmt.Errorf("%d packages could not be measured: %s", len(p.failed), strings.Join(p.failed, ", ")))
	}
	if percent := p.total.percent(); percent < least {
		errs = append(errs, fmt.Errorf("%w: got %.1f %%, want at least %.1f %%", errTooFew, percent, least))
	}
	if len(p.unlisted) > 0 {
		names := strings.Join(p.unlisted, "\n")
		errs = append(errs, fmt.Errorf("%d survivors are listed neither as equivalent nor as untestable:\n%s",
			len(p.unlisted), names))
	}
	if len(p.superseded) > 0 {
		slices.Sort(p.superseded)
		names := strings.Join(p.superseded, "\n")
		errs = append(errs, fmt.Errorf("%d mutants are listed and do not survive:\n%s", len(p.superseded), names))
	}
	return errors.Join(errs...)
}
