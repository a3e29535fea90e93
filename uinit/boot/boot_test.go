//go:build linux

package boot

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"ironroot/agent/journal"
	"ironroot/uinit/boot/layout"
)

// RamdiskDir is the directory of the ramdisks that tests in package boot_test have built, "" if there are none.
var RamdiskDir string

// TestMain lets the test program act as process 1 and as the programs it starts; see TestReap.
func TestMain(m *testing.M) {
	switch os.Getenv("BOOT_TEST_ROLE") {
	case "init":
		reapRole()
	case "parent": // leaves an orphan behind
		orphan := role("orphan")
		if err := orphan.Start(); err != nil {
			os.Exit(1)
		}
		_, _ = os.Stdout.WriteString(strconv.Itoa(orphan.Process.Pid))
		os.Exit(42)
	case "orphan":
		os.Exit(7)
	case "handover":
		handOverRole()
	}
	if os.Args[0] == secondLife {
		secondRole()
	}
	code := m.Run()
	_ = os.RemoveAll(RamdiskDir)
	os.Exit(code)
}

func role(name string) *exec.Cmd {
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), "BOOT_TEST_ROLE="+name)
	return cmd
}

// reapRole runs on the main thread of a process that takes in orphans as process 1 does.
func reapRole() {
	fail := func(text string, err error) {
		_, _ = os.Stderr.WriteString(text + ": " + err.Error() + "\n")
		os.Exit(1)
	}
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		fail("subreaper", err)
	}
	log := slog.New(slog.DiscardHandler)
	type result struct {
		out []byte
		err error
	}
	done := make(chan result)
	go func() {
		parent := role("parent")
		out, err := parent.Output()
		done <- result{out, err}
	}()
	var r result
	for waiting := true; waiting; { // reap as hard as can be while the child ends
		select {
		case r = <-done:
			waiting = false
		default:
			reapAll(log)
		}
	}
	var exit *exec.ExitError
	if !errors.As(r.err, &exit) || exit.ExitCode() != 42 {
		fail("own child's status was taken away", r.err)
	}
	for range 6000 {
		reapAll(log)
		if _, err := os.Stat(filepath.Join("/proc", string(r.out))); err != nil {
			os.Exit(0)
		}
		time.Sleep(10 * time.Millisecond)
	}
	fail("orphan "+string(r.out)+" is still there", os.ErrExist)
}

func TestReap(t *testing.T) {
	for range 5 {
		if out, err := role("init").CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}
}

func TestConsoleNames(t *testing.T) {
	for cmdline, want := range map[string][]string{
		"console=tty0 console=ttyS0,115200n8 quiet": {"tty0", "ttyS0"},
		"console=tty console=ttyS1 console=ttyS1":   {"tty0", "ttyS1"},
		"quiet":                               {"console"},
		"console=null console= xconsole=t":    {"console"},
		"console=../etc/passwd":               {"console"},
		"earlycon=uart,io,0x3f8 console=hvc0": {"hvc0"},
	} {
		if diff := cmp.Diff(want, consoleNames(cmdline, "")); diff != "" {
			t.Errorf("%q: %s", cmdline, diff)
		}
	}
	if diff := cmp.Diff([]string{"tty0", "ttyS0"}, consoleNames("quiet", "tty0 ttyS0\n")); diff != "" {
		t.Errorf("as the kernel chose: %s", diff)
	}
}

// fifo makes a named pipe in place of a terminal and returns its reading end.
func fifo(t *testing.T, dir, name string) *os.File {
	t.Helper()
	path := filepath.Join(dir, name)
	if err := unix.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.Close() })
	return f
}

func TestConsoleReachesAll(t *testing.T) {
	dir := t.TempDir()
	first, second := fifo(t, dir, "a"), fifo(t, dir, "b")
	c := OpenConsole(dir, []string{"a", "late", "b"})
	write := func(text string, to ...*os.File) {
		t.Helper()
		if _, err := io.WriteString(c, text); err != nil {
			t.Fatal(err)
		}
		for _, f := range to {
			got := make([]byte, len(text))
			if _, err := io.ReadFull(f, got); err != nil || string(got) != text {
				t.Errorf("%s: got %q, %v, want %q", f.Name(), got, err, text)
			}
		}
	}
	write("one\n", first, second)
	third := fifo(t, dir, "late")
	c.Retry()
	write("two\n", first, second, third)
}

// The end of a shell hangs up its terminal; lines come through again afterwards.
func TestConsoleOutlivesHangup(t *testing.T) {
	dir := t.TempDir()
	terminal := fifo(t, dir, "a")
	c := OpenConsole(dir, []string{"a"})
	if err := c.sinks[0].file.Close(); err != nil { // as good as a hang-up: every write fails from now on
		t.Fatal(err)
	}
	for _, want := range []string{"one\n", "two\n"} {
		if _, err := io.WriteString(c, want); err != nil {
			t.Fatal(err)
		}
		c.Flush(time.Minute)
		got := make([]byte, len(want))
		if err := terminal.SetReadDeadline(time.Now().Add(time.Minute)); err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadFull(terminal, got); err != nil || string(got) != want {
			t.Errorf("got %q, %v, want %q", got, err, want)
		}
	}
}

// The value of a panic may contain a secret: it is masked as in the log.
func TestShowPanicMasksSecrets(t *testing.T) {
	dir := t.TempDir()
	terminal := fifo(t, dir, "a")
	b := &boot{console: OpenConsole(dir, []string{"a"})}
	b.journal = journal.New(b.console, nil, journalSize)
	b.journal.Redact("s3cret-t0ken")
	b.showPanic("goroutine", errors.New("get http://ironic/?agent_token=s3cret-t0ken"),
		[]byte("main.f(s3cret-t0ken)\nend of stack\n"))
	if err := terminal.SetReadDeadline(time.Now().Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	var text strings.Builder
	for lines := bufio.NewScanner(terminal); lines.Scan() && lines.Text() != "end of stack"; {
		text.WriteString(lines.Text() + "\n")
	}
	got := text.String()
	if strings.Contains(got, "s3cret") ||
		!strings.Contains(got, "panic in goroutine: get http://ironic/?agent_token=***\n") ||
		!strings.Contains(got, "main.f(***)\n") {
		t.Errorf("got %q, want the panic and its stack with the token masked", got)
	}
}

func TestConsoleDoesNotWait(t *testing.T) {
	dir := t.TempDir()
	stuck, alive := fifo(t, dir, "stuck"), fifo(t, dir, "alive")
	c := OpenConsole(dir, []string{"stuck", "alive"})
	line := strings.Repeat("x", 1023) + "\n"
	got := make([]byte, len(line))
	for range 2 * consoleQueue / len(line) { // more than a pipe and the queue hold
		if _, err := io.WriteString(c, line); err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadFull(alive, got); err != nil {
			t.Fatal(err)
		}
	}
	c.Flush(time.Millisecond) // gives up on the one that accepts nothing
	if _, err := io.ReadFull(stuck, make([]byte, consoleQueue)); err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(c, "again\n"); err != nil {
		t.Fatal(err)
	}
	var rest []byte
	buffer := make([]byte, 64<<10)
	for !bytes.Contains(rest, []byte("again\n")) {
		n, err := stuck.Read(buffer)
		if err != nil {
			t.Fatal(err)
		}
		rest = append(rest, buffer[:n]...)
	}
	if !bytes.Contains(rest, []byte("bytes did not fit through this console")) {
		t.Error("lost lines are not told")
	}
}

func TestPanicTime(t *testing.T) {
	for value, want := range map[string]struct {
		delay   time.Duration
		restart bool
	}{
		"":     {30 * time.Second, true},
		"5":    {5 * time.Second, true},
		"0":    {0, false},
		"-1":   {0, true},
		"soon": {30 * time.Second, true},
	} {
		if delay, restart := panicTime(value); delay != want.delay || restart != want.restart {
			t.Errorf("%q: got %v, %v, want %v, %v", value, delay, restart, want.delay, want.restart)
		}
	}
}

// The text compares the same quantities: memory that was free at the start, or memory of the kernel.
func TestTruncatedTellsBothSizes(t *testing.T) {
	about := layout.ParseAbout(layout.About{Name: "x", Unpacked: 40 << 20, Kernel: "6.1"}.String())
	for _, tt := range []struct {
		capacity, memory int64
		want             []string
	}{
		{38 << 20, 200 << 20, []string{
			"at least 80 MiB of memory that is free when the kernel starts; 76 MiB were free",
			"38 MiB, and the files have 40",
			"Add at least 4 MiB", "rootfstype=ramfs",
		}},
		{50 << 20, 100 << 20, []string{"Out of memory", "at least 144 MiB", "has 100 MiB"}},
		{0, 100 << 20, []string{"Out of memory", "at least 144 MiB", "has 100 MiB"}},
		{250 << 20, 500 << 20, []string{"damaged", "at least 144 MiB", "has 500 MiB"}},
	} {
		got := incompleteText(about, tt.capacity, tt.memory)
		for _, want := range tt.want {
			if !strings.Contains(got, want) {
				t.Errorf("capacity %d, memory %d: got %q, want %q in it", tt.capacity, tt.memory, got, want)
			}
		}
	}
	if got := incompleteText(layout.About{}, 0, 100<<20); !strings.Contains(got, "more memory") {
		t.Errorf("got %q", got)
	}
}
