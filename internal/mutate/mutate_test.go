//go:build linux

package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"ironroot/internal/testenv"
)

// TestMain lets the test binary be process 1 of a sandbox.
func TestMain(m *testing.M) {
	if len(os.Args) > 5 && os.Args[1] == sandboxArgument {
		main()
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// TestInstrument lists the mutants of the sample and compares the text of some functions.
func TestInstrument(t *testing.T) {
	in := &instrumenter{counts: map[string]int{}}
	source, err := in.instrument("testdata/sample/sample.go", "sample.go")
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, m := range in.mutants {
		line := strings.TrimPrefix(m.name(), "sample.go | ")
		if m.logging {
			line += " (log)"
		}
		got = append(got, fmt.Sprintf("%d %s", m.line, line))
	}
	want := []string{
		"11 upper | remove | text = strings.ToUpper(text)",
		"21 counter.add | remove | defer c.done()",
		"34 counter.add | remove | c.log.Info(\"added\") (log)",
		"23 counter.add | negate | v < 0",
		"24 counter.add | remove | continue",
		"27 counter.add | negate | v > limit",
		"28 counter.add | nil | errors.New(\"too large\")",
		"30 counter.add | remove | c.n++",
		"31 counter.add | remove | c.n += v",
		"38 counter.done | remove | c.n--",
		"41 counter.untested | negate | c.n > 0",
		"44 counter.untested | negate | c.n == 0",
		"54 receive | remove | total += v",
		"51 receive | negate | !ok",
		"52 receive | remove | break",
		"60 send | negate | len(values) == 0",
		"61 send | remove | close(out)",
		"62 send | remove | return",
		"64 send | remove | go func() {",
		"66 send | remove | out <- v",
		"68 send | remove | close(out) #2",
		"74 exitStatus | negate | !ok",
	}
	slices.Sort(want)
	slices.Sort(got)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("mutants (-want +got):\n%s", diff)
	}
	for _, text := range []string{
		"\tif !mutantIs(", "{ defer c.done() }\n", "{ continue }\n", "{ out <- v }\n", "\t_ = values\n",
		"\t\tpanic(\"positive\")\n", "func (c *counter) done() { if !mutantIs(", ", v > limit):\n",
		", errors.New(\"too large\"))\n", "\t\tv, ok := <-in\n",
	} {
		if !bytes.Contains(source, []byte(text)) {
			t.Errorf("the source lacks %q:\n%s", text, source)
		}
	}
	original, err := os.ReadFile("testdata/sample/sample.go")
	if err != nil {
		t.Fatal(err)
	}
	if got, want := bytes.Count(source, []byte("\n")), bytes.Count(original, []byte("\n")); got != want {
		t.Errorf("got %d lines, want %d as before", got, want)
	}
}

// TestListedMutantsExist looks up every listed name in the sources. A run of all mutants reports a stale name too, but
// takes hours.
func TestListedMutantsExist(t *testing.T) {
	testenv.Programs(t, "go")
	lists := map[string]map[string]string{}
	packagesOf := map[string]bool{}
	for _, list := range []string{"equivalent.txt", "untestable.txt"} {
		known, err := readList(list)
		if err != nil {
			t.Fatal(err)
		}
		lists[list] = known
		for name := range known {
			file, _, _ := strings.Cut(name, " | ")
			packagesOf["ironroot/"+packageOf(file)] = true
		}
	}
	packages, err := listPackages(t.Context(), slices.Sorted(maps.Keys(packagesOf)))
	if err != nil {
		t.Fatal(err)
	}
	exists := map[string]bool{}
	for _, p := range packages {
		in := &instrumenter{counts: map[string]int{}}
		for _, name := range p.GoFiles {
			if _, err := in.instrument(filepath.Join(p.Dir, name), filepath.Join(p.tree(), name)); err != nil {
				t.Fatal(err)
			}
		}
		for _, m := range in.mutants {
			exists[m.name()] = !m.logging // log lines are not accounted for
		}
	}
	for list, known := range lists {
		for name := range known {
			if !exists[name] {
				t.Errorf("%s lists %q, which does not exist", list, name)
			}
		}
	}
}

// TestSample measures the sample: exactly the mutants that its tests notice are killed.
func TestSample(t *testing.T) {
	testenv.Root(t)
	testenv.Programs(t, "go")
	dir := t.TempDir()
	equivalentList, untestableList := filepath.Join(dir, "equivalent.txt"), filepath.Join(dir, "untestable.txt")
	const (
		file       = "internal/mutate/testdata/sample/sample.go"
		equivalent = file + " | upper | remove | text = strings.ToUpper(text)"
		untestable = file + " | counter.untested | negate | c.n > 0"
		killed     = file + " | counter.add | remove | c.n++"
		killedToo  = file + " | counter.add | remove | c.n += v"
	)
	write := func(list string, lines ...string) {
		t.Helper()
		if err := os.WriteFile(list, []byte("# comment\n\n"+strings.Join(lines, "\n")+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	measure := func(arguments ...string) (string, error) {
		var out bytes.Buffer
		arguments = slices.Concat([]string{
			"-j", "2", "-timeout", "1s", "-equivalent", equivalentList, "-untestable", untestableList,
		}, arguments, []string{"./testdata/sample"})
		err := run(t.Context(), arguments, &out)
		return out.String(), err
	}
	write(equivalentList, equivalent+" => nobody looks at the result")
	write(untestableList, untestable+" => panics")
	out, err := measure("-least", "60")
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for _, want := range []string{
		"21 mutants", "3 by timeout; 1 equivalent, 1 untestable, 3 not reached; log lines 0 of 1",
		"upper: remove: text = strings.ToUpper(text): equivalent (nobody looks at the result)\n",
		"counter.untested: negate: c.n > 0: untestable (panics)\n",
		"counter.untested: negate: c.n == 0: not reached\n",
		"send: remove: return: not reached\n",
	} {
		if !strings.Contains(out, want) {
			t.Errorf("the report lacks %q:\n%s", want, out)
		}
	}
	if strings.Contains(out, "c.n++") {
		t.Errorf("c.n++ survives, want it killed:\n%s", out)
	}

	write(equivalentList, killed+" => wrong")
	write(untestableList, killedToo+" => wrong", untestable+" => panics")
	out, err = measure("-least", "99", "-accounted", "internal/mutate/testdata/sample")
	for _, want := range []string{
		"want at least 99.0 %", "4 survivors are listed neither as equivalent nor as untestable:",
		"\n" + equivalent + "\n", "2 mutants are listed and do not survive:\n" + killedToo + "\n" + killed,
	} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got error %v, want %q in it", err, want)
		}
	}
	if err != nil && strings.Contains(err.Error(), untestable) {
		t.Errorf("got error %v, want none of the untestable mutant", err)
	}

	write(equivalentList, killed+" => wrong", equivalent+" => one")
	write(untestableList, untestable+" => panics", equivalent+" => other")
	const both = "1 mutants are listed both as equivalent and as untestable:\n" + equivalent
	if _, err := measure(); err == nil || err.Error() != both {
		t.Errorf("got error %v, want %q", err, both)
	}
	if t.Failed() {
		t.Log(out)
	}
}

// TestBusyMachine slows the tests down after their durations were measured. A mutant that they do not notice must not
// count as hung. It is an error if they stay slow, or fail without a mutant.
func TestBusyMachine(t *testing.T) {
	testenv.Root(t)
	testenv.Programs(t, "go")
	packages, err := listPackages(t.Context(), []string{"./testdata/slow"})
	if err != nil {
		t.Fatal(err)
	}
	r := &packageRun{
		goPackage: packages[0], options: options{parallel: 1, timeout: time.Second, maxTimeout: maxTimeout},
		work: t.TempDir(),
	}
	if err := r.build(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := r.baseline(t.Context()); err != nil {
		t.Fatal(err)
	}
	r.tests[0].duration = time.Millisecond
	t.Setenv("TEST_DURATION", "2s")
	if got, err := r.tryOne(t.Context(), 0); err != nil || got != statusSurvived {
		t.Errorf("got %q and %v, want %q", got, err, statusSurvived)
	}
	r.maxTimeout = time.Millisecond
	if got, err := r.tryOne(t.Context(), 0); !errors.Is(err, errSlow) || got != "" {
		t.Errorf("above the largest limit: got %q and %v, want %v", got, err, errSlow)
	}
	t.Setenv("TEST_FAILURE", "broken without a mutant")
	if got, err := r.tryOne(t.Context(), 0); err == nil ||
		!strings.Contains(err.Error(), "broken without a mutant") || got != "" {
		t.Errorf("tests that fail: got %q and %v, want an error with their output", got, err)
	}
}

// TestHelpers leaves out a package that helps tests.
func TestHelpers(t *testing.T) {
	var out bytes.Buffer
	err := run(t.Context(), []string{"-equivalent", os.DevNull, "-untestable", os.DevNull, "./testdata/helpers"}, &out)
	text := out.String()
	if err != nil || !strings.Contains(text, "testdata/helpers") || !strings.Contains(text, " 0 mutants ") {
		t.Errorf("got %v and %q, want the package named and no mutants", err, text)
	}
}

// TestFailing measures a package after one whose tests fail, and one whose failing test is skipped.
func TestFailing(t *testing.T) {
	testenv.Root(t)
	testenv.Programs(t, "go")
	var out bytes.Buffer
	measure := func(arguments ...string) error {
		out.Reset()
		arguments = append([]string{"-n", "1", "-least", "0", "-equivalent", os.DevNull, "-untestable", os.DevNull},
			arguments...)
		return run(t.Context(), arguments, &out)
	}
	err := measure("./testdata/failing", "./testdata/sample")
	const want = "1 packages could not be measured: internal/mutate/testdata/failing"
	if err == nil || err.Error() != want {
		t.Errorf("got error %v, want %q", err, want)
	}
	for _, want := range []string{
		"testdata/failing not measured: TestOne fails without mutants:", "got 1, want 2",
		"testdata/sample     1 mutants",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("the report lacks %q:\n%s", want, out.String())
		}
	}
	if err := measure("-skip", "^TestOne$", "./testdata/failing"); err != nil {
		t.Errorf("without the failing test: got %v, want no error\n%s", err, out.String())
	}
}

func TestReadList(t *testing.T) {
	for text, want := range map[string]string{
		"a | b | nil | c":              "no reason",
		"a | b | nil | c => ":          "no reason",
		"a | b => one\na | b => other": "listed twice",
	} {
		path := filepath.Join(t.TempDir(), "list")
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if got, err := readList(path); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: got %v, %v, want error %q", text, got, err, want)
		}
	}
}

// TestSampleOfMutants chooses the same mutants every time.
func TestSampleOfMutants(t *testing.T) {
	r := &packageRun{mutants: make([]mutant, 50)}
	r.samples = 10
	first := r.sample()
	if diff := cmp.Diff(first, r.sample()); diff != "" || len(first) != 10 {
		t.Errorf("got %v, then another sample:\n%s", first, diff)
	}
	r.samples = 0
	if got := r.sample(); len(got) != 50 || got[49] != 49 {
		t.Errorf("got %v, want all of 50", got)
	}
}

// TestSandbox checks which devices, interfaces, files and capabilities a program in the sandbox can access.
func TestSandbox(t *testing.T) {
	testenv.Root(t)
	testenv.Programs(t, "sh", "grep", "mount")
	file := filepath.Join("/var/tmp", "mutate-"+t.Name())
	cmd := sandboxed(t.Context(), t.TempDir(), "/usr", "/bin/sh", "-c",
		`for f in /dev/*; do if test -b $f; then echo $f; fi; done | grep -v ^/dev/loop
grep ^CapBnd /proc/self/status
for i in /sys/class/net/*; do test -e $i/device && echo net ${i##*/}; done; echo net lo
pwd
touch "$1"; mount -o remount,ro / || echo "/ was not remounted"
echo "pid $$"; exit 3`, "sh", file)
	out, err := cmd.CombinedOutput()
	if err == nil || cmd.ProcessState.ExitCode() != 3 {
		t.Fatalf("got %v, want the program's status 3:\n%s", err, out)
	}
	if _, err := os.Stat(file); err == nil {
		t.Errorf("%s was made outside of the sandbox", file)
	}
	if err := unix.Access("/var/tmp", unix.W_OK); err != nil {
		t.Errorf("the file system outside of the sandbox: %v", err)
	}
	if bytes.Contains(out, []byte("/dev/")) {
		t.Errorf("disks are in reach:\n%s", out)
	}
	var capabilities uint64
	for line := range strings.Lines(string(out)) {
		if text, ok := strings.CutPrefix(line, "CapBnd:"); ok {
			if _, err := fmt.Sscanf(strings.TrimSpace(text), "%x", &capabilities); err != nil {
				t.Fatal(err)
			}
		}
	}
	for _, number := range []uint{16, 17, 22, 25} { // to load modules, raw I/O, to stop the machine, to set its clock
		if capabilities&(1<<number) != 0 {
			t.Errorf("capability %d is there, want it dropped", number)
		}
	}
	if !bytes.Contains(out, []byte("net lo\n/usr\npid ")) || bytes.Contains(out, []byte("pid 1\n")) {
		t.Errorf("got\n%s\nwant no network interface but lo, the directory /usr, / mounted read-only, and "+
			"another process 1", out)
	}
}

// TestSandboxShowsModule runs a program in a module on a file system in memory that is not in /tmp. It is mounted in a
// namespace of this thread.
func TestSandboxShowsModule(t *testing.T) {
	testenv.Root(t)
	testenv.Programs(t, "cat")
	runtime.LockOSThread() // never unlocked: the thread ends with the test
	if err := unix.Unshare(unix.CLONE_NEWNS); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		t.Fatal(err)
	}
	place, err := os.MkdirTemp("/var/tmp", "mutate-module")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.Remove(place) })
	if err := unix.Mount("tmpfs", place, "tmpfs", 0, ""); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Unmount(place, 0) })
	module := filepath.Join(place, "module")
	if err := os.MkdirAll(filepath.Join(module, "package"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(module, "go.mod"), []byte("module m"), 0o644); err != nil {
		t.Fatal(err)
	}
	out, err := sandboxed(t.Context(), t.TempDir(), filepath.Join(module, "package"), "/bin/cat", "../go.mod").
		CombinedOutput()
	if err != nil || string(out) != "module m" {
		t.Errorf("got %v and %q, want the content of go.mod", err, out)
	}
}

// TestSandboxDetachesLoops leaves a loop device behind in a sandbox, and another one outside of it.
func TestSandboxDetachesLoops(t *testing.T) {
	testenv.Root(t)
	testenv.Programs(t, "sh", "losetup", "truncate", "mkfs.ext4", "mount")
	other := testenv.Loop(t, testenv.SparseFile(t, 1<<20), 512)
	leftover := fmt.Sprintf("mutate-leftover-%d", os.Getpid()) // another process can run this test
	const mount = `d=${TMPDIR:-/tmp} && truncate -s 8M $d/image && mkfs.ext4 -q $d/image && mkdir $d/top &&
mount -o loop $d/image $d/top && TMPDIR=$d/top && `
	for name, c := range map[string]struct{ directory, before string }{
		"/tmp": {}, "elsewhere": {directory: "/var/tmp"}, "on another loop device": {before: mount},
		"in /tmp, TMPDIR elsewhere": {directory: "/var/tmp", before: "TMPDIR=/tmp && "},
	} {
		cmd := sandboxed(t.Context(), t.TempDir(), "/usr", "/bin/sh", "-c",
			c.before+`f=${TMPDIR:-/tmp}/`+leftover+` && truncate -s 1M $f && losetup --find --show $f`)
		cmd.Env = append(os.Environ(), "TMPDIR="+c.directory)
		out, err := cmd.Output()
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		// Another test can use the number by now.
		left := filepath.Base(strings.TrimSpace(string(out)))
		if file, err := os.ReadFile("/sys/class/block/" + left + "/loop/backing_file"); err == nil &&
			bytes.Contains(file, []byte(leftover)) {
			t.Errorf("%s: %s is still attached to %s", name, left, file)
		}
	}
	if _, err := os.Stat("/sys/class/block/" + filepath.Base(other) + "/loop/backing_file"); err != nil {
		t.Errorf("the loop device outside of the sandbox: %v", err)
	}
}

// TestSandboxStopped ends a sandbox before its program. Process 1 kills the program and detaches its loop device.
func TestSandboxStopped(t *testing.T) {
	testenv.Root(t)
	testenv.Programs(t, "sh", "losetup", "truncate", "sleep")
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	name := fmt.Sprintf("mutate-stopped-%d", os.Getpid()) // another process can run this test
	cmd := sandboxed(ctx, t.TempDir(), "/usr", "/bin/sh", "-c",
		`f=/tmp/`+name+` && truncate -s 1M $f && losetup --find --show $f && exec sleep infinity`)
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(stdout).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	cancel()
	if err := cmd.Wait(); err == nil || cmd.ProcessState.ExitCode() != 1 {
		t.Errorf("got %v and status %d, want 1", err, cmd.ProcessState.ExitCode())
	}
	// Another test can use the number by now.
	file, err := os.ReadFile("/sys/class/block/" + filepath.Base(strings.TrimSpace(line)) + "/loop/backing_file")
	if err == nil && bytes.Contains(file, []byte(name)) {
		t.Errorf("%s is still attached to %s", strings.TrimSpace(line), file)
	}
}

// TestSandboxAwaitsHelpers runs a program that fails. The process that it started ends by itself after the program.
func TestSandboxAwaitsHelpers(t *testing.T) {
	testenv.Root(t)
	testenv.Programs(t, "sh")
	cmd := sandboxed(t.Context(), t.TempDir(), "/usr", "/bin/sh", "-c",
		`(while test -e /proc/$$; do :; done; echo helped) & exit 3`)
	out, _ := cmd.CombinedOutput()
	if string(out) != "helped\n" || cmd.ProcessState.ExitCode() != 3 {
		t.Errorf("got status %d and output %q, want 3 and that of the helper", cmd.ProcessState.ExitCode(), out)
	}
}

// TestSandboxIsAlone starts a sandbox without one of its namespaces. It must not touch the mounts, which are those of
// a namespace of this thread so that a failure harms nothing else.
func TestSandboxIsAlone(t *testing.T) {
	testenv.Root(t)
	runtime.LockOSThread() // never unlocked: the thread ends with the test
	if err := unix.Unshare(unix.CLONE_NEWNS); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		t.Fatal(err)
	}
	before, err := os.ReadFile("/proc/thread-self/mounts")
	if err != nil {
		t.Fatal(err)
	}
	for name, missing := range map[string]uintptr{"PID": unix.CLONE_NEWPID, "mount": unix.CLONE_NEWNS} {
		cmd := sandboxed(t.Context(), t.TempDir(), "/usr", "/bin/true")
		cmd.SysProcAttr.Cloneflags &^= missing
		out, err := cmd.CombinedOutput()
		if err == nil || !bytes.Contains(out, []byte(errShared.Error())) {
			t.Errorf("without a %s namespace: got %v, want an error with %q:\n%s", name, err, errShared, out)
		}
		after, err := os.ReadFile("/proc/thread-self/mounts")
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(string(before), string(after)); diff != "" {
			t.Errorf("without a %s namespace: mounts changed:\n%s", name, diff)
		}
	}
}
