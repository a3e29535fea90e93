//go:build linux

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"ironroot/internal/newfile"
)

// runner runs tests and records the results.
type runner struct {
	state   *state
	dir     string
	out     io.Writer
	timeout time.Duration
	wanted  *regexp.Regexp // matches the names of the items to run
	fresh   bool
	idle    bool // run no busy loops
	commit  string
}

// all runs the items of all packages, in the order of the list.
func (r *runner) all(ctx context.Context, entries []entry) error {
	type group struct{ pkg, tags string }
	groups := map[group][]entry{}
	var order []group
	for _, e := range entries {
		g := group{e.pkg, e.tags}
		if groups[g] == nil {
			order = append(order, g)
		}
		groups[g] = append(groups[g], e)
	}
	tests := map[string]map[string][]string{} // by tags and package
	var failed []string
	for _, g := range order {
		if tests[g.tags] == nil {
			var err error
			if tests[g.tags], err = list(ctx, g.tags, "./..."); err != nil {
				return err
			}
		}
		if tests[g.tags][g.pkg] == nil { // it is not among ./...
			own, err := list(ctx, g.tags, g.pkg)
			if err != nil {
				return err
			}
			tests[g.tags][g.pkg] = own[g.pkg]
		}
		names, err := r.runPackage(ctx, groups[g], tests[g.tags][g.pkg])
		if err != nil {
			return err
		}
		failed = append(failed, names...)
	}
	if len(failed) > 0 {
		return fmt.Errorf("%d do not pass every time, see %s:\n%s", len(failed), filepath.Join(r.dir, "report.md"),
			strings.Join(failed, "\n"))
	}
	return nil
}

// runPackage runs the items of a package with the tests, and returns the names of those that do not pass.
func (r *runner) runPackage(ctx context.Context, entries []entry, tests []string) (failed []string, err error) {
	items, err := expand(entries, tests)
	if err != nil {
		return nil, err
	}
	program := ""
	for _, i := range items {
		if !r.wanted.MatchString(i.name()) {
			continue
		}
		if r.fresh {
			delete(r.state.Items, i.name())
		}
		record := r.state.record(i)
		for done, _ := record.result(); !done; done, _ = record.result() {
			if program == "" {
				if program, err = r.build(ctx, i); err != nil {
					return nil, err
				}
			}
			if err := r.once(ctx, i, record, program); err != nil {
				return nil, err
			}
			record = r.state.record(i) // more runs are wanted after a failure
		}
		if len(record.Failures) >= maxFailures {
			failed = append(failed, i.name())
		}
	}
	return failed, r.write()
}

// build builds the program with the tests of an item's package, and returns its path.
func (r *runner) build(ctx context.Context, i item) (program string, err error) {
	program, err = filepath.Abs(filepath.Join(r.dir, "tests"))
	if err != nil {
		return "", err
	}
	cmd := exec.CommandContext(ctx, "go", "test", "-c", "-tags", i.tags, "-o", program, i.pkg)
	if text, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build the tests of %s: %w: %s", i.pkg, err, text)
	}
	return program, nil
}

// currentCommit returns the name of the current commit, with "+" if files have changed since. It is "" without git.
func currentCommit(ctx context.Context) string {
	out, err := exec.CommandContext(ctx, "git", "describe", "--always", "--abbrev=12", "--dirty=+").Output()
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(out))
}

// testFunction matches the beginning of a test in a formatted file.
var testFunction = regexp.MustCompile(`(?m)^func (Test[A-Z]\w*)\(\w+ \*testing\.T\)`)

// list returns the names of the tests of packages, by their paths relative to the top directory.
func list(ctx context.Context, tags, packages string) (map[string][]string, error) {
	const files = `{{range .TestGoFiles}}{{$.ImportPath}} {{$.Dir}}/{{.}}
{{end}}{{range .XTestGoFiles}}{{$.ImportPath}} {{$.Dir}}/{{.}}
{{end}}`
	text, err := exec.CommandContext(ctx, "go", "list", "-tags", tags, "-f", files, packages).Output()
	if err != nil {
		return nil, fmt.Errorf("list the tests of %s: %w", packages, err)
	}
	names := map[string][]string{}
	for line := range strings.Lines(string(text)) {
		path, file, found := strings.Cut(strings.TrimSpace(line), " ")
		if !found {
			continue
		}
		source, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		pkg := "." + strings.TrimPrefix(path, "ironroot")
		for _, match := range testFunction.FindAllSubmatch(source, -1) {
			names[pkg] = append(names[pkg], string(match[1]))
		}
	}
	return names, nil
}

// once runs an item and records the result.
func (r *runner) once(ctx context.Context, i item, to *record, program string) error {
	var log bytes.Buffer
	cmd := exec.CommandContext(ctx, program,
		append(i.arguments(), "-test.v", "-test.timeout="+r.timeout.String())...)
	cmd.Dir, cmd.Stdout, cmd.Stderr = i.pkg, &log, &log
	cmd.Env = append(os.Environ(), "CI=1") // what is missing fails
	// Programs that tests have started end, too.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return unix.Kill(-cmd.Process.Pid, unix.SIGKILL) }
	cmd.WaitDelay = time.Minute
	stop := func() {}
	if !r.idle {
		stop = keepBusy()
	}
	started := time.Now()
	err := cmd.Run()
	took := time.Since(started)
	stop()
	if ctx.Err() != nil {
		return ctx.Err()
	}
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		return fmt.Errorf("%s: %w", i.name(), err)
	}
	text := "passed"
	to.Commit = r.commit
	switch {
	case err != nil:
		name := strings.Trim(notLetters.ReplaceAllString(i.name(), "-"), "-") + started.Format("-0102-150405") + ".log"
		if err := os.WriteFile(filepath.Join(r.dir, "logs", name), log.Bytes(), 0o644); err != nil {
			return err
		}
		to.Passed = 0
		to.Failures = append(to.Failures,
			failure{At: started.Truncate(time.Second), Tests: failures(log.Bytes()), Log: name})
		text = "FAILED, see logs/" + name
	case i.test != "" && !bytes.Contains(log.Bytes(), []byte("--- PASS: "+i.test+" ")):
		to.Skipped, text = true, "skipped"
	default:
		to.Passed++
		to.Longest = max(to.Longest, took)
	}
	_, err = fmt.Fprintf(r.out, "%s %s: %s after %v, %d of %d\n", time.Now().Format(time.TimeOnly), i.name(), text,
		took.Round(time.Second/10), to.Passed, to.Wanted)
	return errors.Join(err, r.write())
}

var (
	notLetters = regexp.MustCompile(`[^A-Za-z0-9]+`)
	failedTest = regexp.MustCompile(`(?m)^--- FAIL: (\S+)`)
)

// failures returns the tests that failed by a log.
func failures(log []byte) (names []string) {
	for _, match := range failedTest.FindAllSubmatch(log, -1) {
		if name := string(match[1]); !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return names
}

// write writes the state and the report.
func (r *runner) write() error {
	return errors.Join(r.state.save(),
		newfile.Write(filepath.Join(r.dir, "report.md"), []byte(r.state.report())))
}

// keepBusy runs a busy loop for each processor until stop is called.
func keepBusy() (stop func()) {
	var done atomic.Bool
	processors := runtime.NumCPU()
	before := runtime.GOMAXPROCS(processors + 2) // this process needs a share for its own work
	for range processors {
		go func() {
			for !done.Load() { // keeps a processor busy
			}
		}()
	}
	return func() {
		done.Store(true)
		runtime.GOMAXPROCS(before)
	}
}
