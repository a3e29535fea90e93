//go:build linux

package boot

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"

	"ironroot/internal/goroutine"
	"ironroot/internal/test/testenv"
	"ironroot/internal/timelimit"
	"ironroot/storage/sysfs"
	"ironroot/uinit/boot/layout"
)

// Threads of the kernel and processes that have ended are not among those that run programs.
func TestRunsProgram(t *testing.T) {
	for _, tt := range []struct {
		name    string
		process sysfs.Process
		want    bool
	}{
		{"init", sysfs.Process{State: 'S', Flags: 4194560}, true},
		{"running program", sysfs.Process{State: 'R', Flags: 4194304}, true},
		{"kthreadd", sysfs.Process{State: 'S', Flags: 2129984}, false},
		{"kworker", sysfs.Process{State: 'I', Flags: 69238880}, false},
		{"zombie", sysfs.Process{State: 'Z', Flags: 4227084}, false},
		{"dead", sysfs.Process{State: 'X', Flags: 4227084}, false},
	} {
		if got := runsProgram(tt.process); got != tt.want {
			t.Errorf("%s: got %v, want %v", tt.name, got, tt.want)
		}
	}
}

// The processes of this machine include a child, and no thread of the kernel.
func TestOtherProcesses(t *testing.T) {
	child := exec.Command("sleep", "600")
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	before, err := otherProcesses("/proc")
	if err := child.Process.Kill(); err != nil {
		t.Error(err)
	}
	_ = child.Wait() // it was killed
	if err != nil || !slices.Contains(before, child.Process.Pid) || !slices.Contains(before, os.Getpid()) {
		t.Errorf("got processes %v, %v, want the child %d and this one", before, err, child.Process.Pid)
	}
	if slices.Contains(before, 1) {
		t.Error("process 1 is among the others")
	}
	after, err := otherProcesses("/proc")
	if err != nil || slices.Contains(after, child.Process.Pid) {
		t.Errorf("got processes %v, %v, want none that has ended", after, err)
	}
}

// The operator's files are removed, and no others.
func TestRemoveFiles(t *testing.T) {
	root := t.TempDir()
	for name, left := range map[string]bool{
		"etc/ironic-python-agent/ironic.crt": false, "etc/ironic-python-agent.d/a.conf": false,
		"mnt/config/openstack/latest/network_data.json": false, "openstack/latest/network_data.json": false,
		"root/.ssh/authorized_keys": false, "etc/ironroot/image": true, "root/file": true,
	} {
		path := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte("x"), 0o600); err != nil {
			t.Fatal(err)
		}
		for range 2 { // a second call is not an error
			if err := removeFiles(root); err != nil {
				t.Error(err)
			}
		}
		if _, err := os.Stat(path); left != (err == nil) {
			t.Errorf("%s: got %v, want left: %v", name, err, left)
		}
	}
}

// Secrets are masked in the command line of a unified kernel image. Other images have no such file.
func TestMaskSignedCmdline(t *testing.T) {
	root := t.TempDir()
	clean := func(text string) string { return strings.ReplaceAll(text, "$6$planted", "***") }
	if err := maskSignedCmdline(root, clean); err != nil {
		t.Errorf("no file: got %v", err)
	}
	name := filepath.Join(root, layout.SignedCmdline)
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(name, []byte("console=ttyS0 rootpwd=$6$planted --"), 0o644); err != nil {
		t.Fatal(err)
	}
	for range 2 { // a second call is not an error
		if err := maskSignedCmdline(root, clean); err != nil {
			t.Error(err)
		}
		text, err := os.ReadFile(name)
		if want := "console=ttyS0 rootpwd=*** --"; err != nil || string(text) != want {
			t.Errorf("got %q and %v, want %q", text, err, want)
		}
	}
}

// A removal of media that is slow succeeds. One that hangs fails, and no other is started until it has ended.
func TestRemoval(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := make(removal, 1)
		slow := func(ctx context.Context) error {
			for range 10 {
				time.Sleep(removalLimits.NoProgress / 2)
				timelimit.Progress(ctx)
			}
			return ctx.Err()
		}
		if err := r.run(t.Context(), slow); err != nil {
			t.Errorf("slow: got %v", err)
		}
		release := make(chan struct{})
		hang := func(context.Context) error {
			<-release
			return nil
		}
		if err := r.run(t.Context(), hang); !errors.Is(err, timelimit.ErrStuck) {
			t.Errorf("hangs: got %v, want %v", err, timelimit.ErrStuck)
		}
		started := false
		next := func(context.Context) error {
			started = true
			return nil
		}
		if err := r.run(t.Context(), next); started || err == nil ||
			!strings.Contains(err.Error(), "a former removal still runs") {
			t.Errorf("while it hangs: got %v, another was started: %v", err, started)
		}
		time.AfterFunc(removalLimits.NoProgress/2, func() { close(release) })
		if err := r.run(t.Context(), next); err != nil || !started {
			t.Errorf("when it ends: got %v, another was started: %v", err, started)
		}
	})
}

type countingAsker struct{ asked atomic.Int32 }

func (a *countingAsker) AskAgain() { a.asked.Add(1) }

// DHCP servers are asked every few seconds for ten minutes.
func TestAskAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := &countingAsker{}
		start := time.Now()
		askAgain(t.Context(), a)
		if n := a.asked.Load(); n < 100 || n > 130 || time.Since(start) != 10*time.Minute {
			t.Errorf("asked %d times in %v, want about 120 in ten minutes", n, time.Since(start))
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		askAgain(ctx, a) // ends
	})
}

// secondLife is the name of the program that process 1 executes in TestHandOverProcesses.
const secondLife = "test-second-life"

// Process 1 of a PID namespace ends all other processes, also those that ignore signals and have detached themselves,
// and executes itself from another thread than the first. It keeps its number, and nothing else.
func TestHandOverProcesses(t *testing.T) {
	testenv.Root(t)
	cmd := role("handover")
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWPID | unix.CLONE_NEWNS, Pdeathsig: syscall.SIGKILL}
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	const want = "first life: other processes true\n" +
		"second life: process 1, arguments [test-second-life], variables [], " +
		"files [0 1 2], others []\n"
	if got := string(out); got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

// handOverRole is the first life of that process 1.
func handOverRole() {
	fail := func(err error) {
		if err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
	}
	fail(unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""))
	fail(unix.Mount("proc", "/proc", "proc", 0, ""))
	_, err := unix.Open("/dev/null", unix.O_RDONLY, 0) // would be inherited
	fail(err)
	// The shell ends at once; what it has started belongs to process 1.
	shell := exec.Command("/bin/sh", "-c", `setsid sh -c 'trap "" HUP TERM INT; echo; sleep 1000 & wait'`)
	started, err := shell.StdoutPipe()
	fail(err)
	fail(shell.Start())
	_, err = started.Read(make([]byte, 1))
	fail(err)
	others, err := otherProcesses("/proc")
	fail(err)
	fmt.Println("first life: other processes", len(others) > 0) // the shell may have ended
	failed := make(chan error)
	goroutine.Go(func() error { // not on the main thread, which a test has locked
		if err := endProcesses(context.Background()); err != nil {
			return err
		}
		program, err := os.Executable()
		if err != nil {
			return err
		}
		return execute(program, secondLife)
	}, func(err error) { failed <- err })
	fail(<-failed)
}

// secondRole is the second life.
func secondRole() {
	others, err := otherProcesses("/proc")
	if err != nil {
		fmt.Println(err)
	}
	var files []int
	for fd := range 100 {
		// The Go runtime's own are closed at exec.
		if flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0); err == nil && flags&unix.FD_CLOEXEC == 0 {
			files = append(files, fd)
		}
	}
	fmt.Printf("second life: process %d, arguments %v, variables %v, files %v, others %v\n", os.Getpid(), os.Args,
		os.Environ(), files, others)
	os.Exit(0)
}
