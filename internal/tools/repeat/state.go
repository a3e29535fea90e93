//go:build linux

package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"ironroot/internal/newfile"
)

const (
	// maxRuns is the largest number of runs of a line, and the number of runs that a test must pass after a failure.
	maxRuns = 10
	// maxFailures is the number of failures after which a test is not run again.
	maxFailures = 3
)

// state contains the runs so far.
type state struct {
	path  string
	Items map[string]*record // by the name of the item
}

// record has the runs of an item.
type record struct {
	Wanted   int           // runs that must pass in a row
	Passed   int           // in a row, since the last failure
	Failures []failure     `json:",omitempty"`
	Skipped  bool          `json:",omitempty"` // the test was skipped at its last run
	Longest  time.Duration // of the runs that passed
	Commit   string        // of the last run, with "+" if files had changed since
}

// failure is a run that failed.
type failure struct {
	At    time.Time
	Tests []string // those that failed, without subtests; none if the process failed
	Log   string   // name of the file in logs
}

// load reads the state of a directory, which is empty if there is none.
func load(dir string) (*state, error) {
	s := &state{path: filepath.Join(dir, "state.json"), Items: map[string]*record{}}
	data, err := os.ReadFile(s.path)
	if errors.Is(err, fs.ErrNotExist) {
		return s, nil
	}
	if err != nil {
		return nil, err
	}
	if err := json.Unmarshal(data, s); err != nil {
		return nil, fmt.Errorf("%s: %w", s.path, err)
	}
	return s, nil
}

func (s *state) save() error {
	data, err := json.MarshalIndent(s, "", "  ")
	if err != nil {
		return err
	}
	return newfile.Write(s.path, append(data, '\n'))
}

// record returns the record of an item.
func (s *state) record(i item) *record {
	r := s.Items[i.name()]
	if r == nil {
		r = &record{}
		s.Items[i.name()] = r
	}
	if r.Wanted = i.runs; len(r.Failures) > 0 {
		r.Wanted = maxRuns
	}
	return r
}

// result reports whether the item needs no further run, and returns its result.
func (r *record) result() (done bool, text string) {
	switch {
	case len(r.Failures) >= maxFailures:
		return true, "failed"
	case r.Skipped:
		return true, "skipped"
	case r.Passed < r.Wanted:
		return false, "not done"
	case len(r.Failures) > 0:
		return true, "passed, failed before"
	}
	return true, "passed"
}

// report returns a table of the items in Markdown, sorted by name.
func (s *state) report() string {
	var b strings.Builder
	b.WriteString("| Test | Result | Passed in a row | Wanted | Failures | Longest run | Commit |\n" +
		"|---|---|---|---|---|---|---|\n")
	for _, name := range slices.Sorted(maps.Keys(s.Items)) {
		r := s.Items[name]
		var failures []string
		for _, f := range r.Failures {
			failures = append(failures, strings.Join(append(f.Tests, "`logs/"+f.Log+"`"), " "))
		}
		_, result := r.result()
		fmt.Fprintf(&b, "| `%s` | %s | %d | %d | %s | %v | %s |\n", name, result, r.Passed, r.Wanted,
			strings.Join(failures, ", "), r.Longest.Round(time.Second/10), r.Commit)
	}
	return b.String()
}
