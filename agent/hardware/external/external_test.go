package external

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"ironroot/agent/hardware"
	"ironroot/agent/node"
	"ironroot/agent/status"
	"ironroot/internal/confine"
	"ironroot/internal/test/testenv"
)

// TestMain becomes the executable in confined processes.
func TestMain(m *testing.M) {
	Child()
	code := m.Run()
	if err := removeTestNodes(); err != nil {
		_, _ = fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

// testNode is the name in /dev of nodes that the processes of this test program make. No other run has the same name.
var testNode = func() string {
	program, err := os.Executable()
	if err != nil {
		panic(err)
	}
	return fmt.Sprintf("ironroot-test-%x-", sha256.Sum256([]byte(program)))
}()

// removeTestNodes removes these nodes.
func removeTestNodes() error {
	nodes, err := filepath.Glob("/dev/" + testNode + "*")
	for _, node := range nodes {
		err = errors.Join(err, os.Remove(node))
	}
	return err
}

// site is a description with a step that can be aborted, one that cannot, and their version.
const site = `{"protocol":1,"name":"site","class":"SiteManager","version":"1.0","steps":[` +
	`{"kind":"clean","step":"flash","priority":20,"interface":"deploy","reboot_requested":true,"abortable":true,` +
	`"argsinfo":{"image":{"description":"URL","required":true}},"timeout":600},` +
	`{"kind":"deploy","step":"burn","priority":0,"interface":"management","abortable":false,"timeout":0.2}]}`

// script returns an executable. Each part is a shell command: the answers to describe and run.
func script(t *testing.T, describe, run string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "manager")
	text := "#!/bin/sh\nread -r line\ncase $line in\n*'\"describe\"'*) " + describe + ";;\n" +
		`*'"evaluate"'*) echo '{"type":"result","result":{"level":3}}';;` + "\n*) " + run + ";;\nesac\n"
	writeExecutable(t, path, []byte(text))
	return path
}

// writeExecutable writes a file that can be executed at once. A process that another test starts meanwhile would
// inherit the open file, and the kernel executes no file that a process can write to (ETXTBSY).
func writeExecutable(t *testing.T, path string, text []byte) {
	t.Helper()
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	if err := os.WriteFile(path, text, 0o700); err != nil { //nolint:gosec // an executable
		t.Fatal(err)
	}
}

func answer(result string) string { return `echo '{"type":"result","result":` + result + `}'` }

// small are limits with few bytes, and times that no executable reaches on a busy machine.
var small = limits{
	describeTimeout: never, cancelTimeout: never, exitTimeout: never, outputTimeout: never,
	maxMessageBytes: 64 << 10, maxOutputBytes: 256 << 10, progressInterval: 0,
}

const (
	never = 10 * time.Minute
	short = 200 * time.Millisecond // the limit of an executable that exceeds it
)

// manager describes an executable without confinement.
func manager(t *testing.T, describe, run string) (*Manager, *bytes.Buffer, error) {
	t.Helper()
	var log bytes.Buffer
	path := script(t, describe, run)
	m := newManager(path, slog.New(slog.NewTextHandler(&log, nil)), plain(path))
	m.limits = small
	return m, &log, m.describe(t.Context())
}

// progress records the progress of a step, and calls first at its first message, and atLatest at the one given.
type progress struct {
	status.Trackers
	status.Tracker

	latest   string
	atLatest func()

	manager string
	shown   []string
	ended   int
	first   func()
}

func (p *progress) Track(_ *slog.Logger, _, manager string) status.Tracker {
	p.manager = manager
	return p
}

func (p *progress) SetPercent(message string, percent *float64) {
	if p.first != nil && len(p.shown) == 0 {
		p.first()
	}
	if p.atLatest != nil && message == p.latest {
		p.atLatest()
	}
	if percent != nil {
		message += fmt.Sprintf(" %v %%", *percent)
	}
	if len(p.shown) < 10 {
		p.shown = append(p.shown, message)
	}
}

func (p *progress) End() { p.ended++ }

// runOf runs a step of the script through the managers.
func runOf(t *testing.T, ctx context.Context, kind hardware.Kind, step, run string) (any, string, error) {
	t.Helper()
	return runTracked(t, ctx, kind, step, run, &progress{})
}

// runTracked is runOf with a tracker.
func runTracked(
	t *testing.T, ctx context.Context, kind hardware.Kind, step, run string, p *progress,
) (any, string, error) {
	t.Helper()
	return runChanged(t, ctx, kind, step, run, p, nil)
}

// runChanged is runTracked with a change of the manager, which may be nil.
func runChanged(
	t *testing.T, ctx context.Context, kind hardware.Kind, step, run string, p *progress, change func(*Manager),
) (any, string, error) {
	t.Helper()
	m, log, err := manager(t, answer(site), run)
	if err != nil {
		t.Fatal(err)
	}
	if change != nil {
		change(m)
	}
	m.board = p
	managers, err := hardware.Load(t.Context(), []hardware.Manager{hardware.Custom{Manager: m}},
		slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	n, err := node.FromJSON(json.RawMessage(`{"uuid":"u-1","driver_info":{"ipmi_password":"calvin"},` +
		`"driver_internal_info":{"agent_secret_token":"hunter2","agent_version":"1"}}`))
	if err != nil {
		t.Fatal(err)
	}
	got, err := managers.Execute(ctx, kind, step, hardware.Call{
		Node: n, Args: map[string]json.RawMessage{"image": json.RawMessage(`"http://x"`)},
	})
	text, _ := got.(json.RawMessage)
	return string(text), log.String(), err
}

func TestSteps(t *testing.T) {
	m, _, err := manager(t, answer(site), "")
	if err != nil {
		t.Fatal(err)
	}
	if m.Class() != "SiteManager" || m.Name() != "site" || m.Version() != "1.0" {
		t.Errorf("got %s, %s, %s", m.Class(), m.Name(), m.Version())
	}
	if got := m.Support(t.Context()); got != hardware.ServiceProvider {
		t.Errorf("got level %d, want 3", got)
	}
	got, err := json.Marshal(m.Steps(hardware.Clean, nil, nil))
	if err != nil {
		t.Fatal(err)
	}
	const want = `[{"step":"flash","priority":20,"interface":"deploy","reboot_requested":true,"abortable":true,` +
		`"argsinfo":{"image":{"description":"URL","required":true}}}]`
	if diff := cmp.Diff(want, string(got)); diff != "" {
		t.Errorf("steps differ (-want +got):\n%s", diff)
	}
	if got := m.Steps(hardware.Service, nil, nil); got != nil {
		t.Errorf("got service steps %v, want none", got)
	}
}

// The executable gets the step, its arguments and the node without secrets. Its progress is logged.
func TestRun(t *testing.T) {
	p := &progress{}
	got, log, err := runTracked(t, t.Context(), hardware.Clean, "flash", `echo "$line" >&2
		echo '{"type":"progress","message":"writing","percent":50}'
		echo '{"type":"progress","message":"reading"}'
		echo '{"type":"result","result":{"flashed":true}}'`, p)
	if want := `{"flashed":true}`; err != nil || got != want {
		t.Fatalf("got %v and %v, want %s", got, err, want)
	}
	want := []string{"writing 50 %", "reading"}
	if p.manager != "site" || !slices.Equal(p.shown, want) || p.ended != 1 {
		t.Errorf("got progress %q of %s, which ended %d times, want %q", p.shown, p.manager, p.ended, want)
	}
	for _, want := range []string{
		`msg="progress of hardware manager"`, "step=flash message=writing percent=50",
		`\"method\":\"run\",\"protocol\":1,\"kind\":\"clean\",\"step\":\"flash\",\"args\":{\"image\":\"http://x\"}`,
		`\"node\":{\"driver_internal_info\":{\"agent_version\":\"1\"},\"uuid\":\"u-1\"}`,
	} {
		if !strings.Contains(log, want) {
			t.Errorf("log lacks %s:\n%s", want, log)
		}
	}
}

// An executable that violates the protocol fails the step with an error that names the reason.
func TestRunFails(t *testing.T) {
	long := fmt.Sprintf("head -c %d /dev/zero | tr '\\0' x", 2*small.maxMessageBytes)
	for _, tt := range []struct {
		name, run, want string
		protocol        bool
		change          func(*Manager)
	}{
		{
			name: "error", run: `echo '{"type":"error","message":"no adapter"}'`,
			want: "hardware manager site: no adapter",
		},
		{
			name: "exit status", run: answer(`1`) + "; echo broken >&2; exit 3",
			want: "executable failed: exit status 3: broken",
		},
		{name: "crash", run: "kill -SEGV $$", want: "executable failed: signal: segmentation fault"},
		{name: "nothing", run: "exit 0", want: "protocol error: ended without a result", protocol: true},
		{name: "garbage", run: "echo hello; exec sleep 3600", want: `in line "hello"`, protocol: true},
		{
			name: "unknown message", run: `echo '{"type":"hello"}'; exec sleep 3600`,
			want: `unexpected message "{\"type\":\"hello\"}"`, protocol: true,
		},
		{name: "no message", run: `echo '{"type":"error"}'`, want: "unexpected message", protocol: true},
		{name: "two results", run: answer(`1`) + ";" + answer(`2`), want: "unexpected message", protocol: true},
		{
			name: "late progress", run: answer(`1`) + `; echo '{"type":"progress","message":"x"}'`,
			want: "unexpected message", protocol: true,
		},
		{
			name: "line not terminated", run: `printf '{"type":"result","result":1}'`,
			want: "last line not terminated", protocol: true,
		},
		{
			name: "long message", run: long + "; exec sleep 3600", want: "message longer than 65536 bytes",
			protocol: true,
		},
		{
			name: "flood", run: `while :; do echo '{"type":"progress","message":"x"}'; done`,
			want: "more than 262144 bytes", protocol: true,
		},
		{
			name: "does not end", run: answer(`1`) + "; exec sleep 3600", want: "still running 200ms after its result",
			protocol: true, change: func(m *Manager) { m.exitTimeout = short },
		},
		{
			name: "hangs", run: "exec sleep 3600", want: "not done within 200ms",
			change: func(m *Manager) { m.description.Steps[0].Timeout, m.cancelTimeout = short.Seconds(), short },
		},
		{
			name: "leaves a process that keeps its output open",
			run:  "echo hello; while [ -e " + t.TempDir() + " ]; do sleep 1; done & wait", // until the end of the test
			want: `in line "hello"`, protocol: true, change: func(m *Manager) { m.outputTimeout = short },
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			started := time.Now()
			got, _, err := runChanged(t, t.Context(), hardware.Clean, "flash", tt.run, &progress{}, tt.change)
			if err == nil || !strings.Contains(err.Error(), tt.want) || errors.Is(err, errProtocol) != tt.protocol {
				t.Errorf("got %v and %v, want an error with %q, protocol error %v", got, err, tt.want, tt.protocol)
			}
			if took := time.Since(started); took > never {
				t.Errorf("took %v, want the executable killed", took)
			}
		})
	}
}

func TestIncompatible(t *testing.T) {
	_, _, err := runOf(t, t.Context(), hardware.Clean, "flash",
		`echo '{"type":"error","message":"not mine","incompatible":true}'`)
	if err == nil || !strings.Contains(err.Error(), "No HardwareManager found to handle method") {
		t.Errorf("got %v, want the next manager asked", err)
	}
}

// A cancelled step gets the message cancel, and can end by itself.
func TestCancel(t *testing.T) {
	ctx, cancel := context.WithCancelCause(t.Context())
	given := errors.New("given up")
	_, log, err := runTracked(t, ctx, hardware.Clean, "flash",
		`echo '{"type":"progress"}'; read -r line; echo "got $line" >&2; exit 1`,
		&progress{first: func() { cancel(given) }})
	if !errors.Is(err, given) || !strings.Contains(log, `got {\"method\":\"cancel\",\"protocol\":1}`) {
		t.Errorf("got %v, want %v and the message cancel:\n%s", err, given, log)
	}
}

// A step is not started after its context has ended, not even one that is not abortable.
func TestCancelledBefore(t *testing.T) {
	started := filepath.Join(t.TempDir(), "started")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for step, kind := range map[string]hardware.Kind{"flash": hardware.Clean, "burn": hardware.Deploy} {
		if _, _, err := runOf(t, ctx, kind, step, "touch "+started+";"+answer(`1`)); !errors.Is(err, context.Canceled) {
			t.Errorf("%s: got %v, want %v", step, err, context.Canceled)
		}
		if _, err := os.Stat(started); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s: got %v, want no step started", step, err)
		}
	}
}

// A request other than a step is not cancelled but killed at its limit.
func TestDescribeIsKilled(t *testing.T) {
	m, _, err := manager(t, answer(site), "")
	if err != nil {
		t.Fatal(err)
	}
	path := script(t, "read -r line; echo cancelled >&2; exit 1", "")
	m.start = plain(path)
	m.describeTimeout = short
	if err := m.describe(t.Context()); err == nil || err.Error() != "describe: not done within 200ms" {
		t.Errorf("got %v, want an executable that is killed", err)
	}
}

// An executable that was slow once, because the machine was busy, is asked again. One that is slow again is not used,
// and the error and the log say what the operator can do.
func TestDescribeIsRepeated(t *testing.T) {
	testenv.ExpectPanics(t)
	const twice = "describe: not done within 200ms; this was the result of both of two attempts; " +
		"if the machine was busy, boot the ramdisk again: it asks its managers only at the start of the agent"
	for _, tt := range []struct {
		name, first, second, want string
		starts                    int
	}{
		{"slow once", "exec sleep 3600", answer(site), "", 2},
		{"slow", "exec sleep 3600", "exec sleep 3600", twice, 2},
		{"slow, then broken", "exec sleep 3600", "exit 3", "describe: executable failed: exit status 3", 2},
		{"broken", "exit 3", answer(site), "describe: executable failed: exit status 3", 1},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var log bytes.Buffer
			paths := []string{script(t, tt.first, ""), script(t, tt.second, "")}
			starts := 0
			load := func(path string) (*Manager, error) {
				m := newManager(path, slog.New(slog.NewTextHandler(&log, nil)), nil)
				m.limits = small
				if strings.Contains(tt.first, "sleep") {
					m.describeTimeout = short
				}
				m.start = starting(func() (*process, error) {
					starts++
					if !strings.Contains(tt.second, "sleep") {
						m.describeTimeout = never // of the next request
					}
					return plain(paths[starts-1]).start()
				})
				return m, m.describeForLoad(t.Context())
			}
			list := loadAll([]string{"/m/site"}, "", nil, load)
			if warned := strings.Contains(log.String(), "level=WARN"); starts != tt.starts || warned != (starts == 2) {
				t.Errorf("got %d starts, warned: %v, want %d:\n%s", starts, warned, tt.starts, log.String())
			}
			if tt.want == "" {
				if loaded := usable(list); len(loaded) != 1 || loaded[0].Name() != "site" {
					t.Errorf("got %v, want the manager", list)
				}
				checkFilter(t, "", custom(list)...)
				return
			}
			checkFilter(t, "hardware manager /m/site could select disks, but is not usable: "+tt.want+
				"; no disk is used", custom(list)...)
			if log := loadLog(t, custom(list)...); !strings.Contains(log, fmt.Sprintf("err=%q", tt.want)) {
				t.Errorf("log lacks %s:\n%s", tt.want, log)
			}
		})
	}
}

// An executable that could not be ended is not started again.
func TestNotRepeated(t *testing.T) {
	calls := 0
	err := repeated(slog.New(slog.DiscardHandler), func() error {
		calls++
		return fmt.Errorf("%w within 10s; %w", errNotDone, confine.ErrStillRunning)
	})
	if calls != 1 || !errors.Is(err, confine.ErrStillRunning) ||
		!strings.Contains(err.Error(), "the result of one attempt, whose process could not be ended; if") {
		t.Errorf("got %v after %d calls, want one", err, calls)
	}
}

// starting implements starter.
type starting func() (*process, error)

func (s starting) start() (*process, error) { return s() }

// unkillable is a process that ignores signals. It closes a channel when it has ended.
type unkillable struct {
	child
	ended chan struct{}
}

func (unkillable) Kill() error { return nil }

func (u unkillable) Wait() error {
	defer close(u.ended)
	return u.child.Wait()
}

// An executable that the kernel does not end is abandoned.
func TestAbandoned(t *testing.T) {
	m, _, err := manager(t, answer(site), "")
	if err != nil {
		t.Fatal(err)
	}
	path := script(t, `echo '{"type":"progress","message":"x"}'; exec sleep 60`, "")
	ended := make(chan struct{})
	m.start = starting(func() (*process, error) {
		p, err := plain(path).start()
		if err != nil {
			return nil, err
		}
		kill := p.Kill
		p.child = unkillable{p.child, ended}
		t.Cleanup(func() {
			if err := kill(); err != nil {
				t.Error(err)
			}
			<-ended
		})
		return p, nil
	})
	m.describeTimeout, m.exitTimeout = short, short
	const want = "describe: not done within 200ms; killed, but still running after 200ms"
	if err := m.describe(t.Context()); err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
}

// The first and the latest message are shown, those between them only at the interval.
func TestProgressInterval(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, started := &progress{}, time.Now()
		c := &conversation{
			limits: limits{progressInterval: time.Minute}, log: slog.New(slog.DiscardHandler), tracker: p,
		}
		for _, text := range []string{"1", "2", "3"} {
			c.handle(message{Type: "progress", Message: text})
		}
		<-c.reportDue
		c.report()
		if want := []string{"1", "3"}; !slices.Equal(p.shown, want) || time.Since(started) != time.Minute {
			t.Errorf("got progress %q after %v, want %q after %v", p.shown, time.Since(started), want, time.Minute)
		}
	})
}

// The latest message is shown while the executable sends no further ones.
func TestLatestProgress(t *testing.T) {
	path := script(t, answer(site), `
		for i in 1 2 3; do echo '{"type":"progress","message":"'$i'"}'; done
		read -r line; echo '{"type":"error","message":"cancelled"}'`)
	m := newManager(path, slog.New(slog.DiscardHandler), plain(path))
	if err := m.describe(t.Context()); err != nil {
		t.Fatal(err)
	}
	m.progressInterval = short
	ctx, cancel := context.WithCancel(t.Context())
	p := &progress{latest: "3", atLatest: cancel}
	m.board = p
	_, err := m.runStep(ctx, m.description.Steps[0], hardware.Call{})
	if !errors.Is(err, context.Canceled) || len(p.shown) == 0 || p.shown[0] != "1" {
		// 2 is shown too if this process stops for the interval.
		t.Errorf("got %v and progress %q, want %v and first 1", err, p.shown, context.Canceled)
	}
}

// Long texts of an executable are clipped in errors and in the log.
func TestLongTexts(t *testing.T) {
	const text = `"$(head -c 20000 /dev/zero | tr '\0' x)"`
	_, log, err := runOf(t, t.Context(), hardware.Clean, "flash",
		`echo '{"type":"progress","message":"'`+text+`'"}'; echo '{"type":"error","message":"'`+text+`'"}'`)
	if err == nil || len(err.Error()) > 5000 || len(log) > 2000 {
		t.Errorf("got an error of %d and a log of %d bytes", len(fmt.Sprint(err)), len(log))
	}
}

// A step that is not abortable is not killed: neither when it is cancelled, nor at its time limit, nor for garbage, a
// flood, or because it continues after its result.
func TestNotAbortable(t *testing.T) {
	done := filepath.Join(t.TempDir(), "done")
	const flood = `i=0; while [ $i -lt 20000 ]; do echo '{"type":"progress","message":"x"}'; i=$((i+1)); done`
	for _, tt := range []struct {
		name, run, want string
		exitTimeout     time.Duration
	}{
		{"cancelled", `echo '{"type":"progress"}'; sleep 1; touch ` + done + ";" + answer(`1`), "", never},
		{"garbage", "echo garbage; sleep 1; touch " + done + ";" + answer(`1`), `in line "garbage"`, short},
		{"flood", flood + "; touch " + done + ";" + answer(`1`), "more than 262144 bytes", short},
		{"goes on", answer(`1`) + "; sleep 1; touch " + done, "still running 200ms after its result", short},
	} {
		t.Run(tt.name, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			got, _, err := runChanged(t, ctx, hardware.Deploy, "burn", tt.run, &progress{first: cancel},
				func(m *Manager) { m.cancelTimeout, m.exitTimeout = short, tt.exitTimeout })
			if tt.want == "" && (err != nil || got != "1") ||
				tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)) {
				t.Errorf("got %v and %v, want error %q", got, err, tt.want)
			}
			if err := os.Remove(done); err != nil {
				t.Errorf("the step did not end by itself: %v", err)
			}
		})
	}
}

func TestInvalidDescriptions(t *testing.T) {
	replaced := func(old, text string) string {
		if !strings.Contains(site, old) {
			t.Fatalf("no %q", old)
		}
		return answer(strings.Replace(site, old, text, 1))
	}
	for describe, want := range map[string]string{
		replaced(`"protocol":1`, `"protocol":2`):                     "protocol 2: want one of [1]",
		replaced(`"name":"site"`, `"name":""`):                       `name "": want`,
		replaced(`"SiteManager"`, `"a b"`):                           `class "a b": want`,
		replaced(`"1.0"`, `1`):                                       "cannot unmarshal number",
		replaced(`"1.0"`, `""`):                                      `version "": want`,
		replaced(`"clean"`, `"dirty"`):                               `step 1, "flash": kind "dirty": want clean`,
		replaced(`"flash"`, `"Flash"`):                               `step 1, "Flash": name: want`,
		replaced(`20`, `-1`):                                         "priority -1: want 0 or more",
		replaced(`"deploy","reboot`, `"","reboot`):                   "interface missing",
		replaced(`,"abortable":false`, ``):                           `step 2, "burn": abortable missing`,
		replaced(`"timeout":600`, `"timeout":1e9`):                   "timeout 1e+09: want 0 to 604800 seconds",
		replaced(`"deploy","step":"burn"`, `"clean","step":"flash"`): `step 2, "flash": described twice`,
		"echo garbage":                                               "protocol error",
		"exit 1":                                                     "exit status 1",
	} {
		if _, _, err := manager(t, describe, ""); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %q", describe, err, want)
		}
	}
	for _, level := range []string{`{}`, `{"level":-1}`, `{"level":101}`, `{"level":"3"}`, `3`} {
		if got, err := parseEvaluation(json.RawMessage(level)); err == nil {
			t.Errorf("%s: got level %d and no error", level, got)
		}
	}
}

// An executable that cannot be run is a failure like any other.
func TestNotExecutable(t *testing.T) {
	path := filepath.Join(t.TempDir(), "absent")
	m := newManager(path, slog.New(slog.DiscardHandler), plain(path))
	if err := m.describe(t.Context()); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("got %v, want %v", err, os.ErrNotExist)
	}
	if got := m.Support(t.Context()); got != hardware.None {
		t.Errorf("got level %d, want 0", got)
	}
}
