//go:build linux

package login

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"ironroot/internal/password"
	"ironroot/internal/test/testenv"
	"ironroot/storage/sysfs"
	"ironroot/uinit/account"
	"ironroot/uinit/worker"
)

// eventTimeout limits the wait for an event.
const eventTimeout = 2 * time.Minute

func TestMain(m *testing.M) {
	worker.Child()
	Child()
	os.Exit(m.Run())
}

// console is the other side of a terminal.
type console struct {
	t      *testing.T
	master *os.File
	in     *bufio.Reader
	path   string
}

func newConsole(t *testing.T) *console {
	t.Helper()
	fd, err := unix.Open("/dev/ptmx", unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		t.Fatal(err)
	}
	number, err := unix.IoctlGetUint32(fd, unix.TIOCGPTN)
	if err := errors.Join(err, unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0)); err != nil {
		t.Fatal(err)
	}
	c := &console{t: t, master: os.NewFile(uintptr(fd), "master"), path: fmt.Sprintf("/dev/pts/%d", number)}
	t.Cleanup(func() { _ = c.master.Close() })
	// While one process has the terminal open, the master can be read.
	slave, err := os.OpenFile(c.path, os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = slave.Close() })
	c.in = bufio.NewReader(c.master)
	return c
}

// await reads until a text appears and returns everything up to it. While nobody has the terminal open, it waits.
func (c *console) await(text string) string {
	c.t.Helper()
	var all []byte
	end := time.Now().Add(eventTimeout)
	if err := c.master.SetReadDeadline(end); err != nil {
		c.t.Fatal(err)
	}
	for !bytes.HasSuffix(all, []byte(text)) {
		b, err := c.in.ReadByte()
		if errors.Is(err, unix.EIO) && time.Now().Before(end) {
			time.Sleep(10 * time.Millisecond) // the kernel has no event for it
			continue
		}
		if err != nil {
			c.t.Fatalf("%q does not appear: %v: %q", text, err, all)
		}
		all = append(all, b)
	}
	return string(all)
}

func (c *console) send(text string) {
	c.t.Helper()
	if _, err := c.master.WriteString(text); err != nil {
		c.t.Fatal(err)
	}
}

// logBuffer collects log lines.
type logBuffer struct {
	mu   sync.Mutex
	text bytes.Buffer
}

// Write implements [io.Writer].
func (l *logBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *logBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

func start(t *testing.T, terminals ...string) (*Prompts, *logBuffer) {
	t.Helper()
	testenv.Root(t)
	testenv.Programs(t, "mkpasswd", "bash", "setsid")
	out := testenv.Run(t, "mkpasswd", "-m", "sha512crypt", "-R", "1000", "correct horse")
	h, err := password.Parse(strings.TrimSpace(out))
	if err != nil {
		t.Fatal(err)
	}
	log := new(logBuffer)
	root := account.Root(h, nil, "/bin/bash")
	root.Home = t.TempDir()
	rescue := account.Rescue(h, "/bin/missing", "")
	p, err := Start(context.Background(), Options{
		Terminals: terminals, Accounts: account.List{root, rescue}, Log: slog.New(slog.NewTextHandler(log, nil)),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.Stop(); err != nil {
			t.Error(err)
		}
		if strings.Contains(log.String(), "horse") || strings.Contains(log.String(), h.Text()) {
			t.Errorf("the log contains a secret:\n%s", log)
		}
	})
	return p, log
}

// process returns the number of the process of the prompts, whose parent is a child of this process.
func process(t *testing.T) int {
	t.Helper()
	read := func(pid string) sysfs.Process {
		stat, _ := os.ReadFile("/proc/" + pid + "/stat") // it can have ended
		p, _ := sysfs.ParseProcess(stat)
		return p
	}
	entries, err := os.ReadDir("/proc")
	if err != nil {
		t.Fatal(err)
	}
	for _, entry := range entries {
		p := read(entry.Name())
		name, _ := os.ReadFile("/proc/" + entry.Name() + "/cmdline")
		if string(name) == childName+"\x00" && read(strconv.Itoa(p.Parent)).Parent == os.Getpid() {
			return p.PID
		}
	}
	t.Fatal("the process of the prompts is not found")
	return 0
}

// A user logs in on each of the terminals, without the password being shown. Wrong ones are refused after a pause.
// When the shell ends, the next user is asked. Signals do not end the prompts. When they are stopped, nothing that a
// user started is left.
func TestLogin(t *testing.T) {
	first, second := newConsole(t), newConsole(t)
	prompts, log := start(t, first.path, "/dev/missing", second.path)
	for _, c := range []*console{first, second} {
		c.await("ironroot login: ")
	}
	first.send("\n")
	first.await("ironroot login: ")
	for _, wrong := range [][2]string{
		{"root", "wrong"}, {"correct horse", "x"}, {"rescue", strings.Repeat("x", 2000)},
	} {
		began := time.Now()
		first.send(wrong[0] + "\n")
		first.await("Password: ")
		first.send(wrong[1] + "\n")
		if shown := first.await("login incorrect"); strings.Contains(shown, wrong[1]) {
			t.Errorf("the terminal shows the password: %q", shown)
		}
		if took := time.Since(began); took < failureDelay {
			t.Errorf("the next attempt is possible after %v, want %v", took, failureDelay)
		}
		first.await("ironroot login: ")
	}
	first.send("rescue\n")
	first.await("Password: ")
	first.send("correct horse\n")
	first.await("start /bin/missing: ")
	first.await("ironroot login: ")

	second.send("root\n")
	second.await("Password: ")
	second.send("correct horse\n")
	if shown := second.await("# "); strings.Contains(shown, "horse") {
		t.Errorf("the terminal shows the password: %q", shown)
	}
	second.send(`PS1='ready\n'; stty -echo; echo name $0 $UID $TERM; tty; ` +
		`sh -c 'trap "echo interrupted; exit 9" INT; echo job; while true; do sleep 0.1; done'` + "\n")
	second.await("name -bash 0 linux\r\n")
	second.await(second.path + "\r\n")
	second.await("job\r\n")
	second.send("\x03") // Ctrl-C
	second.await("interrupted\r\n")
	second.await("ready")
	second.send("exit\n")
	second.await("ironroot login: ")
	second.send("root\n")
	second.await("Password: ")
	second.send("correct horse\n")
	second.await("# ")
	second.send(`setsid sh -c 'echo p""id=$$.; exec sleep 1000 >/dev/null 2>&1' &` + "\n")
	second.await("pid=")
	text := strings.TrimSuffix(second.await("."), ".")
	pid, err := strconv.Atoi(text)
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.Kill(pid, 0); err != nil {
		t.Errorf("the detached process does not run: %v", err)
	}
	for _, signal := range []unix.Signal{unix.SIGHUP, unix.SIGTERM} {
		if err := unix.Kill(process(t), signal); err != nil {
			t.Fatal(err)
		}
	}
	first.send("\n")
	first.await("ironroot login: ")
	if err := prompts.Stop(); err != nil {
		t.Error(err)
	}
	if stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid)); err == nil && !bytes.Contains(stat, []byte(") Z")) {
		t.Error("the detached process runs after the prompts were stopped")
	}
	for _, want := range []string{
		`level=WARN msg="login failed" device=` + first.path + ` user=root count=1`,
		`level=WARN msg="login failed" device=` + first.path + ` user=(unknown) count=2`,
		`level=INFO msg="user logged in" device=` + second.path + ` user=root method=password`,
		`level=INFO msg="session ended" device=` + second.path + ` user=root status="exit status 9"`,
		`level=WARN msg="login prompt interrupted, retrying" device=/dev/missing err="open /dev/missing: no such file`,
	} {
		if !strings.Contains(log.String(), want) {
			t.Errorf("the log lacks %q:\n%s", want, log)
		}
	}
	if strings.Contains(log.String(), "retrying\" device=/dev/pts") || strings.Contains(log.String(), "restarting") {
		t.Errorf("got an interruption of prompts, want none:\n%s", log)
	}
}

func TestStartFails(t *testing.T) {
	for _, list := range []account.List{
		nil, {account.Root(password.Hash{}, []account.Key{[]byte("x")}, "/bin/sh")}, {{Name: "A:"}},
	} {
		if _, err := Start(t.Context(), Options{Accounts: list}); err == nil {
			t.Errorf("%+v: got no error", list)
		}
	}
}

// A line is bounded, whatever is entered.
func FuzzReadLine(f *testing.F) {
	f.Add([]byte("root\r\n"))
	f.Add(bytes.Repeat([]byte("x"), maxLine+2))
	f.Fuzz(func(t *testing.T, text []byte) {
		line, err := readLine(bytes.NewReader(text))
		if len(line) > maxLine || bytes.ContainsRune(line, '\n') || (err != nil) != !bytes.ContainsRune(text, '\n') {
			t.Errorf("got %d bytes, %v", len(line), err)
		}
	})
}

func FuzzReadConfig(f *testing.F) {
	f.Add([]byte(`{"Terminals":["/dev/ttyS0"],"Accounts":[{"name":"root","home":"/root","shell":"/bin/sh"}]}`))
	f.Add([]byte("{"))
	f.Fuzz(func(t *testing.T, text []byte) {
		c := new(config)
		err := worker.DecodeInput(bytes.NewReader(text), c)
		if err == nil && c.Accounts.Check() != nil {
			t.Error("invalid accounts")
		}
	})
}
