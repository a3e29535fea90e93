//go:build linux

package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
)

const (
	// timeoutFactor times the duration without a mutant is the limit for tests with a mutant.
	timeoutFactor = 5
	// maxTimeout is the limit above which it is an error if the tests without the mutant are slow too.
	maxTimeout = 10 * time.Minute
	// quickTests limits the total duration of the tests of a mutant that run before the others.
	quickTests = 2 * time.Second
	seed       = 20240229 // of the sample
)

// goPackage is a package as go list describes it.
type goPackage struct {
	ImportPath, Dir, Name     string
	GoFiles, Imports          []string
	TestGoFiles, XTestGoFiles []string
	Module                    struct{ Path string }
}

// helpsTests reports whether the package is part of tests: no program imports package testing.
func (p goPackage) helpsTests() bool { return slices.Contains(p.Imports, "testing") }

// tree returns the package's path below its module.
func (p goPackage) tree() string {
	return strings.TrimPrefix(strings.TrimPrefix(p.ImportPath, p.Module.Path), "/")
}

// options of a run.
type options struct {
	samples, parallel int           // mutants of each package, and at a time; 0 samples means all mutants
	timeout           time.Duration // minimum time after which the tests of a mutant count as hung
	maxTimeout        time.Duration // limits above it are not doubled
	skip              string        // regular expression of tests not to run

	// progress receives each mutant as soon as it is done, from several goroutines. It may be nil.
	progress func(m mutant, status string)
}

// packageRun measures one package.
type packageRun struct {
	goPackage
	options
	work    string // directory of temporary files
	binary  string
	mutants []mutant
	tests   []*testRun
	status  []string // by mutant; "" = not in the sample
}

// testRun is the run of a test without mutants.
type testRun struct {
	name     string
	duration time.Duration
	reached  map[int]bool
}

// Results of a mutant.
const (
	statusKilled    = "killed"
	statusTimeout   = "killed by timeout"
	statusSurvived  = "survived"
	statusUnreached = "not reached"
)

func listPackages(ctx context.Context, patterns []string) ([]goPackage, error) {
	const fields = "-json=ImportPath,Dir,Name,GoFiles,Imports,TestGoFiles,XTestGoFiles,Module"
	out, err := goTool(ctx, append([]string{"list", fields}, patterns...)...)
	if err != nil {
		return nil, err
	}
	var packages []goPackage
	for decoder := json.NewDecoder(bytes.NewReader(out)); decoder.More(); {
		var p goPackage
		if err := decoder.Decode(&p); err != nil {
			return nil, fmt.Errorf("go list: %w", err)
		}
		packages = append(packages, p)
	}
	return packages, nil
}

func goTool(ctx context.Context, arguments ...string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, "go", arguments...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("go %s: %w\n%s", arguments[0], err, stderr.String())
	}
	return out, nil
}

// build instruments the package and compiles its tests.
func (r *packageRun) build(ctx context.Context) error {
	in := &instrumenter{counts: map[string]int{}}
	overlay := struct{ Replace map[string]string }{map[string]string{}}
	for _, name := range r.GoFiles {
		source, err := in.instrument(filepath.Join(r.Dir, name), filepath.Join(r.tree(), name))
		if err != nil {
			return fmt.Errorf("instrument: %w", err)
		}
		copied := filepath.Join(r.work, name)
		if err := os.WriteFile(copied, source, 0o600); err != nil {
			return err
		}
		overlay.Replace[filepath.Join(r.Dir, name)] = copied
	}
	r.mutants = in.mutants
	added := filepath.Join(r.work, "switchboard.go")
	if err := os.WriteFile(added, []byte(switchboard(r.Name, len(r.mutants))), 0o600); err != nil {
		return err
	}
	overlay.Replace[filepath.Join(r.Dir, "zz_mutants.go")] = added
	text, err := json.Marshal(overlay)
	if err != nil {
		return err
	}
	file := filepath.Join(r.work, "overlay.json")
	if err := os.WriteFile(file, text, 0o600); err != nil {
		return err
	}
	r.binary = filepath.Join(r.work, "tests")
	_, err = goTool(ctx, "test", "-c", "-vet=off", "-overlay", file, "-o", r.binary, r.ImportPath)
	return err
}

// outcome is the result of one run of the test binary.
type outcome struct {
	passed, timedOut bool
	duration         time.Duration
	output           []byte
}

// run runs tests of the binary. limit is the time limit of all of them together. trace receives the numbers of the
// reached mutants, unless it is nil.
func (r *packageRun) run(
	ctx context.Context, tests []string, limit time.Duration, trace *os.File, environment ...string,
) (outcome, error) {
	quoted := make([]string, len(tests))
	for i, name := range tests {
		quoted[i] = regexp.QuoteMeta(name)
	}
	base, err := os.MkdirTemp(r.work, "sandbox-")
	if err != nil {
		return outcome{}, err
	}
	defer os.RemoveAll(base) //nolint:errcheck // an empty directory to mount on
	// With -test.timeout the tests end themselves and show where they hang. Otherwise they are killed a little later.
	limited, cancel := context.WithTimeout(ctx, limit+10*time.Second)
	defer cancel()
	cmd := sandboxed(limited, base, r.Dir, r.binary, "-test.run=^("+strings.Join(quoted, "|")+")$",
		"-test.skip="+r.skip, "-test.failfast", "-test.count=1", "-test.timeout="+limit.String())
	cmd.Env = append(os.Environ(), environment...)
	if trace != nil {
		cmd.Env = append(cmd.Env, traceVariable+"="+sandboxTrace)
		cmd.ExtraFiles = []*os.File{trace}
	}
	var output bytes.Buffer
	cmd.Stdout, cmd.Stderr = &output, &output
	start := time.Now()
	if err := cmd.Start(); err != nil {
		return outcome{}, fmt.Errorf("start tests (needs root): %w", err)
	}
	err = cmd.Wait()
	timedOut := limited.Err() != nil
	if ctx.Err() != nil {
		return outcome{}, ctx.Err()
	}
	o := outcome{passed: err == nil, duration: time.Since(start), output: output.Bytes()}
	o.timedOut = timedOut || bytes.Contains(o.output, []byte("panic: test timed out after"))
	return o, nil
}

// baseline runs every test alone, without mutants, and records the mutants that it reaches.
func (r *packageRun) baseline(ctx context.Context) error {
	list := exec.CommandContext(ctx, r.binary, "-test.list=.") //nolint:gosec // made by build
	list.Dir = r.Dir
	out, err := list.Output()
	if err != nil {
		return fmt.Errorf("list tests: %w", err)
	}
	for name := range strings.FieldsSeq(string(out)) {
		if !strings.HasPrefix(name, "Benchmark") {
			r.tests = append(r.tests, &testRun{name: name})
		}
	}
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(r.parallel)
	for i, test := range r.tests {
		group.Go(func() error { return r.trace(ctx, test, filepath.Join(r.work, fmt.Sprintf("reached-%d", i))) })
	}
	if err := group.Wait(); err != nil {
		return err
	}
	slices.SortStableFunc(r.tests, func(a, b *testRun) int { return cmp.Compare(a.duration, b.duration) })
	return nil
}

// trace runs one test without mutants.
func (r *packageRun) trace(ctx context.Context, test *testRun, file string) error {
	trace, err := os.Create(file)
	if err != nil {
		return err
	}
	defer trace.Close() //nolint:errcheck // read again below
	o, err := r.run(ctx, []string{test.name}, 10*time.Minute, trace)
	if err != nil {
		return err
	}
	if !o.passed {
		return fmt.Errorf("%s fails without mutants:\n%s", test.name, o.output)
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	test.duration, test.reached = o.duration, map[int]bool{}
	for line := range strings.Lines(string(text)) {
		n, err := strconv.Atoi(strings.TrimSpace(line))
		if err != nil {
			return fmt.Errorf("%s: %w", file, err)
		}
		test.reached[n] = true
	}
	return nil
}

// sample returns the numbers of the mutants to run, in order.
func (r *packageRun) sample() []int {
	numbers := make([]int, len(r.mutants))
	for i := range numbers {
		numbers[i] = i
	}
	if n := r.samples; n > 0 && n < len(numbers) {
		random := rand.New(rand.NewPCG(seed, uint64(len(numbers)))) //nolint:gosec // the same sample every time
		random.Shuffle(len(numbers), func(i, j int) { numbers[i], numbers[j] = numbers[j], numbers[i] })
		numbers = numbers[:n]
		slices.Sort(numbers)
	}
	return numbers
}

// try runs the mutants of a sample.
func (r *packageRun) try(ctx context.Context, numbers []int) error {
	r.status = make([]string, len(r.mutants))
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(r.parallel)
	for _, n := range numbers {
		group.Go(func() error {
			status, err := r.tryOne(ctx, n)
			r.status[n] = status
			if r.progress != nil && err == nil {
				r.progress(r.mutants[n], status)
			}
			return err
		})
	}
	return group.Wait()
}

// tryOne runs one mutant: first the quick ones of the tests that reach it, then the others.
func (r *packageRun) tryOne(ctx context.Context, n int) (string, error) {
	var batches [2][]string
	var durations [2]time.Duration
	for _, test := range r.tests { // ordered by duration
		if !test.reached[n] {
			continue
		}
		i := 0
		if len(batches[0]) > 0 && durations[0]+test.duration > quickTests {
			i = 1
		}
		batches[i] = append(batches[i], test.name)
		durations[i] += test.duration
	}
	if len(batches[0]) == 0 {
		return statusUnreached, nil
	}
	for i, tests := range batches {
		if len(tests) == 0 {
			continue
		}
		status, err := r.tryBatch(ctx, n, tests, max(r.timeout, timeoutFactor*durations[i]))
		if status != statusSurvived || err != nil {
			return status, err
		}
	}
	return statusSurvived, nil
}

// tryBatch runs tests with a mutant. When they reach the limit, they run once more without a mutant: if that takes
// more than half of the limit too, the machine is busy, and the mutant is tried again with twice the limit. Above
// maxTimeout it returns an error that wraps errSlow. It is an error, too, if they fail without a mutant.
func (r *packageRun) tryBatch(ctx context.Context, n int, tests []string, limit time.Duration) (string, error) {
	for ; ; limit *= 2 {
		o, err := r.run(ctx, tests, limit, nil, fmt.Sprintf("%s=%d", activeVariable, n))
		switch {
		case err != nil:
			return "", err
		case o.passed:
			return statusSurvived, nil
		case !o.timedOut:
			return statusKilled, nil
		}
		unchanged, err := r.run(ctx, tests, limit, nil)
		switch {
		case err != nil:
			return "", err
		case unchanged.passed && unchanged.duration <= limit/2:
			return statusTimeout, nil
		case !unchanged.passed && !unchanged.timedOut:
			return "", fmt.Errorf("%s fail without mutants:\n%s", strings.Join(tests, ", "), unchanged.output)
		case limit > r.maxTimeout:
			return "", fmt.Errorf("%s: %w: %s of %s",
				strings.Join(tests, ", "), errSlow, unchanged.duration.Round(time.Second), limit)
		}
	}
}

// runPackage measures one package.
func runPackage(ctx context.Context, p goPackage, o options) (*packageRun, error) {
	r := &packageRun{goPackage: p, options: o}
	var err error
	if r.work, err = os.MkdirTemp("", "mutants-"); err != nil {
		return nil, err
	}
	defer os.RemoveAll(r.work) //nolint:errcheck // a leftover does no harm
	if err = r.build(ctx); err != nil {
		return nil, err
	}
	if len(p.TestGoFiles)+len(p.XTestGoFiles) > 0 {
		if err = r.baseline(ctx); err != nil {
			return nil, err
		}
	}
	if err = r.try(ctx, r.sample()); err != nil {
		return nil, err
	}
	return r, nil
}

var (
	errTooFew = errors.New("too few mutants are killed")
	errSlow   = errors.New("without mutants the tests take more than half of the time limit too")
)
