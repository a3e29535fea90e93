//go:build linux

package worker

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"ironroot/internal/test/testenv"
)

// eventTimeout limits the wait for an event.
const eventTimeout = 2 * time.Minute

// The workers of the tests, by name.
const (
	echoName   = "test-echo"   // logs its input and its descriptor 3, and waits
	daemonName = "test-daemon" // starts a daemon, logs its number, and waits
	crashName  = "test-crash"  // the same, but exits
	endName    = "test-end"    // ends without an error
	failName   = "test-fail"   // ends with the environment of a worker as its error
)

func TestMain(m *testing.M) {
	Child()
	switch os.Args[0] {
	case echoName:
		input, err := io.ReadAll(os.Stdin)
		file, fileErr := io.ReadAll(os.NewFile(3, "file"))
		Logger().With("a", 1).Warn("echo", "input", string(input), "file", string(file),
			"err", errors.Join(err, fileErr), "environment", len(os.Environ()))
		_ = unix.Pause()
	case daemonName, crashName:
		// The daemon is in a session of its own, its parents end at once, and it ignores signals.
		out, err := exec.Command("/bin/sh", "-c",
			`(setsid sh -c 'trap "" HUP TERM INT; sh -c "sleep 1000" >/dev/null 2>&1 & echo $$; `+
				`exec >/dev/null 2>&1; wait' &)`).Output()
		Logger().Info("daemon", "number", strings.TrimSpace(string(out)), "err", err)
		if os.Args[0] == crashName {
			os.Exit(3)
		}
		_ = unix.Pause()
	case endName:
		Exit(nil)
	case failName:
		Exit(fmt.Errorf("environment %q", environment()))
	}
	os.Exit(m.Run())
}

// startKeep runs a worker. It returns its log lines, and a function that ends it.
func startKeep(t *testing.T, s Spec) (lines <-chan string, stop func() error) {
	t.Helper()
	return startIn(t, s, membersFlags())
}

// startIn is like startKeep, with flags of clone(2) for supervisors.
func startIn(t *testing.T, s Spec, flags uintptr) (lines <-chan string, stop func() error) {
	t.Helper()
	testenv.Root(t)
	in, out := io.Pipe()
	s.Log = slog.New(slog.NewTextHandler(out, &slog.HandlerOptions{
		ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
			if a.Key == slog.TimeKey {
				return slog.Attr{}
			}
			return a
		},
	}))
	all := make(chan string, 100)
	go func() {
		for scanner := bufio.NewScanner(in); scanner.Scan(); {
			all <- scanner.Text()
		}
	}()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- keep(ctx, s, eventTimeout, flags) }()
	stop = func() error {
		cancel()
		err := <-ended
		ended <- err
		return err
	}
	t.Cleanup(func() { _ = stop() })
	return all, stop
}

func next(t *testing.T, lines <-chan string) string {
	t.Helper()
	select {
	case line := <-lines:
		return line
	case <-time.After(eventTimeout):
		t.Fatal("no log line")
	}
	return ""
}

// number returns the attribute of the daemon's number.
func number(t *testing.T, line string) int {
	t.Helper()
	_, text, _ := strings.Cut(line, "number=")
	text, _, _ = strings.Cut(text, " ")
	pid, err := strconv.Atoi(text)
	if err != nil {
		t.Fatalf("got line %q: %v", line, err)
	}
	return pid
}

func exists(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	return err == nil && !bytes.Contains(stat, []byte(") Z"))
}

// A worker gets its input and files, and no environment. Its log lines reach the log with all attributes.
func TestKeep(t *testing.T) {
	in, out, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	if _, err := out.WriteString("content"); err != nil {
		t.Fatal(err)
	}
	if err := out.Close(); err != nil {
		t.Fatal(err)
	}
	lines, stop := startKeep(t, Spec{Name: echoName, Input: []byte(strings.Repeat("x", 70_000)), Files: []*os.File{in}})
	if got := next(t, lines); !strings.Contains(got, `msg="log line of a worker dropped" err="too long or empty"`) {
		t.Errorf("got %.200q, want a line that is too long", got)
	}
	if err := stop(); err != nil {
		t.Error(err)
	}

	lines, stop = startKeep(t, Spec{Name: echoName, Input: []byte("secret"), Files: []*os.File{in}})
	want := `level=WARN msg=echo a=1 input=secret file="" err=<nil> environment=0`
	if got := next(t, lines); got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	if err := stop(); err != nil {
		t.Error(err)
	}
}

// When the worker is stopped, no process that it has started is left.
func TestStopEndsAll(t *testing.T) {
	testenv.Programs(t, "setsid")
	lines, stop := startKeep(t, Spec{Name: daemonName})
	pid := number(t, next(t, lines))
	if !exists(pid) {
		t.Fatal("the daemon does not run")
	}
	if err := stop(); err != nil {
		t.Error(err)
	}
	if exists(pid) {
		t.Errorf("process %d is left", pid)
	}
}

// When the worker ends, its processes are killed before it is started again.
func TestRestart(t *testing.T) {
	testenv.Programs(t, "setsid")
	lines, stop := startKeep(t, Spec{Name: crashName})
	first := number(t, next(t, lines))
	if got, want := next(t, lines), `level=ERROR msg="worker ended, restarting" worker=test-crash pause=1s `+
		`err="test-crash: exit status 3"`; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	if exists(first) {
		t.Errorf("process %d is left", first)
	}
	second := number(t, next(t, lines))
	if got := next(t, lines); !strings.Contains(got, "pause=2s") {
		t.Errorf("got %s, want a pause of 2 seconds", got)
	}
	if err := stop(); err != nil {
		t.Error(err)
	}
	if first == second || exists(second) {
		t.Errorf("process %d is left", second)
	}
}

// A worker that ends without an error is started again, too. Nothing of it stays open.
func TestWorkerEnds(t *testing.T) {
	lines, stop := startKeep(t, Spec{Name: endName, Input: []byte("input")})
	if got := next(t, lines); !strings.Contains(got, `err="test-end: exit status 0"`) {
		t.Errorf("got %s, want its status", got)
	}
	if err := stop(); err != nil {
		t.Error(err)
	}
	open, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	for _, fd := range open {
		if target, _ := os.Readlink("/proc/self/fd/" + fd.Name()); strings.HasPrefix(target, "/memfd:input") {
			t.Errorf("descriptor %s of %s is open", fd.Name(), target)
		}
	}
}

// The error of a worker is on its standard error. Its workers have the FIPS 140-3 mode, and nothing else of its
// environment.
func TestExit(t *testing.T) {
	for mode, want := range map[string]string{"off": `[]`, "on": `["GODEBUG=fips140=on"]`} {
		cmd := exec.CommandContext(t.Context(), os.Args[0])
		cmd.Args = []string{failName}
		cmd.Env = append(os.Environ(), "GODEBUG=fips140="+mode, "OTHER=x")
		out, err := cmd.CombinedOutput()
		if want = failName + ": environment " + want + "\n"; string(out) != want {
			t.Errorf("FIPS 140-3 %s: got %q, want %q", mode, out, want)
		}
		if got := cmd.ProcessState.ExitCode(); got != exitFailed {
			t.Errorf("got status %d, %v, want %d", got, err, exitFailed)
		}
	}
}

// A supervisor that is killed takes the worker with it, and both are started again.
func TestSupervisorKilled(t *testing.T) {
	lines, _ := startKeep(t, Spec{Name: echoName, Input: []byte("x"), Files: []*os.File{os.Stdin}})
	next(t, lines)
	supervisors, err := childrenOf(os.Getpid())
	if err != nil || len(supervisors) != 1 {
		t.Fatalf("got children %v, %v, want one", supervisors, err)
	}
	workers, err := childrenOf(supervisors[0])
	if err != nil || len(workers) != 1 {
		t.Fatalf("got workers %v, %v, want one", workers, err)
	}
	pidfd, err := unix.PidfdOpen(workers[0], 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(pidfd) //nolint:errcheck // the process has ended
	if err := unix.Kill(supervisors[0], unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	poll := []unix.PollFd{{Fd: int32(pidfd), Events: unix.POLLIN}}
	if n, err := unix.Poll(poll, int(eventTimeout.Milliseconds())); n != 1 {
		t.Errorf("the worker has not ended: %v", err)
	}
	if got := next(t, lines); !strings.Contains(got, `err="test-echo: signal: killed"`) {
		t.Errorf("got %s, want the signal", got)
	}
	next(t, lines)
}

// When the supervisor is killed, no process of the worker is left: before the worker is started again, and when it is
// stopped.
func TestSupervisorKilledEndsAll(t *testing.T) {
	testenv.Programs(t, "setsid")
	lines, stop := startKeep(t, Spec{Name: daemonName})
	supervisor := func() int {
		t.Helper()
		list, err := childrenOf(os.Getpid())
		if err != nil || len(list) != 1 {
			t.Fatalf("got children %v, %v, want one", list, err)
		}
		return list[0]
	}
	first := number(t, next(t, lines))
	if !exists(first) {
		t.Fatal("the daemon does not run")
	}
	if err := unix.Kill(supervisor(), unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if got := next(t, lines); !strings.Contains(got, `err="test-daemon: signal: killed"`) {
		t.Errorf("got %s, want the signal", got)
	}
	if exists(first) {
		t.Errorf("process %d is left", first)
	}
	second := number(t, next(t, lines))
	stuck := supervisor()
	if err := unix.Kill(stuck, unix.SIGSTOP); err != nil { // so that it cannot end the worker
		t.Fatal(err)
	}
	stopped := make(chan error, 1)
	go func() { stopped <- stop() }()
	if err := unix.Kill(stuck, unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if err := <-stopped; err != nil || exists(second) {
		t.Errorf("got %v, process %d is left: %v", err, second, exists(second))
	}
}

// A worker whose processes cannot be recognized runs, and its log says so once.
func TestMembersUnknown(t *testing.T) {
	lines, stop := startIn(t, Spec{Name: echoName, Input: []byte("x"), Files: []*os.File{os.Stdin}}, 0)
	got := []string{next(t, lines), next(t, lines)}
	slices.Sort(got)
	if !strings.Contains(got[0], `level=WARN msg="processes of a worker cannot be recognized: `) ||
		!strings.Contains(got[0], `worker=test-echo err="no IPC namespace of its own"`) ||
		!strings.Contains(got[1], "msg=echo") {
		t.Errorf("got %q, want a warning about the namespace, and the worker's line", got)
	}
	if err := stop(); err != nil {
		t.Error(err)
	}
	select {
	case line := <-lines:
		t.Errorf("got %s, want no other line", line)
	default:
	}
}

// A child has ended if it is a zombie. It can still be waited for.
func TestHasEnded(t *testing.T) {
	child := exec.Command("sleep", "1000")
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	pid := child.Process.Pid
	if hasEnded(pid) {
		t.Error("a running process has ended")
	}
	if err := child.Process.Kill(); err != nil {
		t.Error(err)
	}
	if err := unix.Waitid(unix.P_PID, pid, nil, unix.WEXITED|unix.WNOWAIT, nil); err != nil {
		t.Error(err)
	}
	if !hasEnded(pid) {
		t.Error("a process that was killed has not ended")
	}
	if err := child.Wait(); err == nil || err.Error() != "signal: killed" {
		t.Errorf("got %v, want the signal", err)
	}
}

// Lines of a worker are bounded, and what is not a line is dropped.
func FuzzParseLine(f *testing.F) {
	f.Add([]byte(`{"level":4,"message":"m","attributes":[["a","b"]]}`))
	f.Add([]byte(`{"level":"INFO","message":1}`))
	f.Add([]byte("{"))
	f.Fuzz(func(t *testing.T, text []byte) {
		l, err := parseLine(text)
		if err == nil && len(l.Attributes) > maxAttributes {
			t.Errorf("got %d attributes", len(l.Attributes))
		}
	})
}

// The handler's lines are parsed to what was logged.
func TestLines(t *testing.T) {
	var encoded, got, want bytes.Buffer
	plain := func(w io.Writer) *slog.Logger {
		return slog.New(slog.NewTextHandler(w, &slog.HandlerOptions{
			Level: slog.LevelDebug,
			ReplaceAttr: func(groups []string, a slog.Attr) slog.Attr {
				if len(groups) == 0 && a.Key == slog.TimeKey {
					return slog.Attr{}
				}
				return a
			},
		}))
	}
	for _, log := range []*slog.Logger{plain(&want), slog.New(&handler{mu: new(sync.Mutex), out: &encoded})} {
		log = log.With("address", "192.0.2.1")
		log.Debug("first", "count", 3, "time", time.Second)
		log.Error("second\nline", "err", errors.New(`a "quote"`))
	}
	if err := copyLines(plain(&got), bufio.NewReaderSize(&encoded, maxLine)); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want.String(), got.String()); diff != "" {
		t.Errorf("log differs (-want +got):\n%s", diff)
	}
}
