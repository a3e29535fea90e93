package power

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"

	"ironroot/internal/test/testenv"
)

const (
	insideEnv = "POWER_TEST_INSIDE" // name of the test
	dirEnv    = "POWER_TEST_DIR"    // directory that is removed outside, where nothing is mounted
)

// inside runs the test again as process 1 of new namespaces, and reports whether the caller is that process. In it,
// reboot(2) ends only this process, mounts of the machine can be neither unmounted nor remounted read-only, and /proc
// contains files of the test. wait receives the exit status of the process.
func inside(t *testing.T, wait func(syscall.WaitStatus, string)) bool {
	t.Helper()
	testenv.Root(t)
	if os.Getenv(insideEnv) == t.Name() {
		if os.Getpid() != 1 {
			t.Fatalf("process %d, want process 1 of new namespaces", os.Getpid())
		}
		coverProc(t)
		return true
	}
	root := []syscall.SysProcIDMap{{Size: 1}}
	// Each level of the test's name is anchored.
	name := "^" + strings.ReplaceAll(t.Name(), "/", "$/^") + "$"
	cmd := exec.Command(os.Args[0], "-test.run="+name, "-test.v", "-test.timeout=2m")
	cmd.Env = append(os.Environ(), insideEnv+"="+t.Name(), dirEnv+"="+t.TempDir())
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags:  unix.CLONE_NEWUSER | unix.CLONE_NEWPID | unix.CLONE_NEWNS,
		UidMappings: root, GidMappings: root, Pdeathsig: syscall.SIGKILL,
	}
	out, err := cmd.CombinedOutput()
	var exited *exec.ExitError
	if err != nil && !errors.As(err, &exited) {
		t.Fatal(err)
	}
	status, _ := cmd.ProcessState.Sys().(syscall.WaitStatus)
	wait(status, string(out))
	return false
}

// passed is the wait of a test that returns.
func passed(t *testing.T) func(syscall.WaitStatus, string) {
	return func(status syscall.WaitStatus, out string) {
		t.Helper()
		if status != 0 || !strings.Contains(out, "--- PASS: "+t.Name()) {
			t.Errorf("in the namespaces: got status %#x\n%s", status, out)
		}
	}
}

// coverProc replaces /proc by files of the test, except for the files of processes, so that tests cannot change the
// kernel.
func coverProc(t *testing.T) {
	t.Helper()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	kept := filepath.Join(os.Getenv(dirEnv), "proc")
	must(os.Mkdir(kept, 0o755))
	must(unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""))
	must(unix.Mount("/proc", kept, "", unix.MS_BIND|unix.MS_REC, ""))
	must(unix.Mount("tmpfs", "/proc", "tmpfs", 0, "mode=755"))
	must(os.Symlink(filepath.Join(kept, "self"), "/proc/self"))
	must(os.MkdirAll("/proc/sys/kernel", 0o755))
}

// In a PID namespace reboot(2) ends process 1 by SIGHUP for a restart, by SIGINT for power off (pid_namespaces(7)).
func TestMachineStops(t *testing.T) {
	for name, c := range map[string]struct {
		stop func(Machine, context.Context) error
		want syscall.Signal
	}{
		"restart":   {Machine.Reboot, unix.SIGHUP},
		"power off": {Machine.PowerOff, unix.SIGINT},
	} {
		t.Run(strings.ReplaceAll(name, " ", "_"), func(t *testing.T) {
			if inside(t, func(status syscall.WaitStatus, out string) {
				if !status.Signaled() || status.Signal() != c.want {
					t.Errorf("got status %#x, want signal %v\n%s", status, c.want, out)
				}
			}) {
				t.Errorf("still running: %v", c.stop(Machine{}, t.Context()))
			}
		})
	}
}

// If reboot(2) fails, the machine is stopped by sysrq, which the kernel executes asynchronously.
func TestSysrq(t *testing.T) {
	const trigger, allow = "/proc/sysrq-trigger", "/proc/sys/kernel/sysrq"
	for _, c := range []struct {
		name    string
		stop    func(Machine, context.Context) error
		prepare func() error
		limit   time.Duration // of the context
		key     string
		took    time.Duration
		cause   error
		text    string
	}{
		{name: "restart", stop: Machine.Reboot, key: "b", took: syncTimeout, text: "sysrq b had no effect"},
		{name: "power_off", stop: Machine.PowerOff, key: "o", took: syncTimeout, text: "sysrq o had no effect"},
		{
			name: "context_ends", stop: Machine.Reboot, limit: syncTimeout / 4, key: "b", took: syncTimeout / 4,
			cause: context.DeadlineExceeded,
		},
		{
			name: "not_allowed", stop: Machine.Reboot, prepare: func() error { return os.Mkdir(allow, 0o755) },
			cause: unix.EISDIR, text: "allow sysrq",
		},
		{
			name: "not_triggered", stop: Machine.Reboot, prepare: func() error { return os.Mkdir(trigger, 0o755) },
			cause: unix.EISDIR, text: "sysrq b",
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			if !inside(t, passed(t)) {
				return
			}
			if c.prepare != nil {
				if err := c.prepare(); err != nil {
					t.Fatal(err)
				}
			}
			synctest.Test(t, func(t *testing.T) {
				testenv.DropCapability(t, unix.CAP_SYS_BOOT)
				ctx, cancel := t.Context(), context.CancelFunc(func() {})
				if c.limit > 0 {
					ctx, cancel = context.WithTimeout(ctx, c.limit)
				}
				defer cancel()
				start := time.Now()
				err := c.stop(Machine{}, ctx)
				if took := time.Since(start); took != c.took {
					t.Errorf("got %v, want %v", took, c.took)
				}
				if !errors.Is(err, unix.EPERM) || c.cause != nil && !errors.Is(err, c.cause) ||
					!strings.Contains(err.Error(), c.text) {
					t.Errorf("got error %v, want %v, %v and %q in it", err, unix.EPERM, c.cause, c.text)
				}
			})
			if c.key == "" {
				return
			}
			for name, want := range map[string]string{allow: "1", trigger: c.key} {
				if got, err := os.ReadFile(name); err != nil || string(got) != want {
					t.Errorf("%s: got %q and %v, want %q", name, got, err, want)
				}
			}
		})
	}
}

// warnings collects the paths of warnings.
type warnings struct {
	slog.Handler
	paths []string
	lines int
}

func (w *warnings) Enabled(context.Context, slog.Level) bool { return true }

func (w *warnings) Handle(_ context.Context, r slog.Record) error {
	w.lines++
	r.Attrs(func(a slog.Attr) bool {
		if a.Key == "path" && r.Level >= slog.LevelWarn {
			w.paths = append(w.paths, a.Value.String())
		}
		return true
	})
	return nil
}

// Before the machine stops, file systems on devices are unmounted. Busy ones are remounted read-only.
func TestMachineUnmounts(t *testing.T) {
	if !inside(t, passed(t)) {
		return
	}
	dir := os.Getenv(dirEnv)
	at := func(name string) string { return filepath.Join(dir, name) }
	for _, m := range []struct{ source, target string }{
		{"/dev/outer", at("outer")},
		{"/dev/inner", at("outer/in ner")},
		{"/dev/used", at("used")},
		{"none", at("memory")},
	} {
		if err := os.Mkdir(m.target, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := unix.Mount(m.source, m.target, "tmpfs", 0, ""); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(m.target, "file"), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	used, err := os.Open(at("used/file"))
	if err != nil {
		t.Fatal(err)
	}
	defer used.Close()
	log := &warnings{}

	// A cancelled stop changes nothing.
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := (Machine{Log: slog.New(log)}).Reboot(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: got error %v", err)
	}
	for _, name := range []string{"outer/in ner", "outer", "used", "memory"} {
		if err := os.WriteFile(at(name+"/file"), nil, 0o600); err != nil {
			t.Errorf("cancelled: %v", err)
		}
		if _, err := os.Stat(at(name + "/file")); err != nil {
			t.Errorf("cancelled: %v", err)
		}
	}

	synctest.Test(t, func(t *testing.T) {
		testenv.DropCapability(t, unix.CAP_SYS_BOOT)
		var flushed []int // lines that were logged until then
		machine := Machine{Log: slog.New(log), Console: flushing(func() { flushed = append(flushed, log.lines) })}
		if err := machine.Reboot(t.Context()); err == nil {
			t.Error("got no error without the capability to restart")
		}
		// The last line reports that reboot(2) failed.
		if want := []int{log.lines - 1, log.lines}; !slices.Equal(flushed, want) {
			t.Errorf("flushed the log after %v lines, want after %v, directly before reboot(2) and before sysrq",
				flushed, want)
		}
	})
	if _, err := os.Stat(at("outer/file")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("file system on a device: got %v, want it unmounted", err)
	}
	if err := os.WriteFile(at("used/file"), nil, 0o600); !errors.Is(err, unix.EROFS) {
		t.Errorf("file system in use: got %v, want %v", err, unix.EROFS)
	}
	if err := os.WriteFile(at("memory/file"), nil, 0o600); err != nil {
		t.Errorf("file system on no device: %v", err)
	}
	if log.lines == 0 {
		t.Error("stopping the machine was not logged")
	}
	if slices.ContainsFunc(log.paths, func(path string) bool { return strings.HasPrefix(path, dir) }) {
		t.Errorf("got warnings about %q, want none about %s", log.paths, dir)
	}
}

// flushing implements [LogFlusher].
type flushing func()

func (f flushing) Flush() { f() }
