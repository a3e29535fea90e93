//go:build linux

package login

import (
	"errors"
	"io"
	"log/slog"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"

	"ironroot/uinit/account"
)

// lineHandler calls a function for each log line.
type lineHandler func(line string)

// Write implements [io.Writer].
func (f lineHandler) Write(p []byte) (int, error) {
	f(string(p))
	return len(p), nil
}

// A terminal that cannot be opened is tried again after a pause, and is logged once until a user has logged in on it.
func TestMissingTerminal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lines := 0
		log := slog.New(slog.NewTextHandler(lineHandler(func(string) {
			if lines++; lines > 1 {
				runtime.Goexit() // prompts have no end
			}
		}), nil))
		p := &prompt{path: "/dev/missing", log: log}
		go p.run() //nolint:errcheck // it does not return
		time.Sleep(3*reopenPause + time.Second)
		synctest.Wait()
		if lines != 1 {
			t.Errorf("got %d log lines about one terminal, want 1", lines)
		}
		p.broken = false // as after a login
		time.Sleep(reopenPause)
		synctest.Wait()
		if lines != 2 {
			t.Errorf("got %d log lines, want another one after a login", lines)
		}
	})
}

// A terminal that hangs up ends the prompt, and is opened again.
func TestHangUp(t *testing.T) {
	c := newConsole(t)
	p := &prompt{path: c.path, log: slog.New(slog.DiscardHandler)}
	ended := make(chan error, 1)
	go func() { ended <- p.once() }()
	c.await("ironroot login: ")
	c.send("root\n")
	c.await("Password: ")
	if err := c.master.Close(); err != nil {
		t.Fatal(err)
	}
	select {
	case err := <-ended:
		if err == nil {
			t.Error("got no error from a terminal that has hung up")
		}
	case <-time.After(eventTimeout):
		t.Fatal("the prompt waits for a terminal that has hung up")
	}
}

// A password that is not entered in time ends the attempt. The next question has no limit.
func TestPasswordLimit(t *testing.T) {
	c := newConsole(t)
	terminal, err := openTerminal(c.path)
	if err != nil {
		t.Fatal(err)
	}
	defer terminal.close()
	p := &prompt{log: slog.New(slog.DiscardHandler), limit: time.Millisecond}
	ended := make(chan error, 1)
	ask := func() {
		_, ok, err := p.ask(terminal)
		if ok {
			err = errors.New("login without a password")
		}
		ended <- err
	}
	go ask()
	c.await("ironroot login: ")
	c.send("root\n")
	c.await("no password entered in time")
	if err := <-ended; err != nil {
		t.Error(err)
	}
	go ask()
	c.await("ironroot login: ")
	c.send("\n")
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// Everything that a prompt does with a terminal that has hung up fails at once.
func TestAfterHangUp(t *testing.T) {
	c := newConsole(t)
	terminal, err := openTerminal(c.path)
	if err != nil {
		t.Fatal(err)
	}
	defer terminal.close()
	if err := c.master.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := terminal.question("login: ", true, 0); !errors.Is(err, unix.EIO) ||
		!strings.HasPrefix(err.Error(), "set modes: ") {
		t.Errorf("got %v, want %v", err, unix.EIO)
	}
	if err := terminal.blocking(); !errors.Is(err, unix.EIO) {
		t.Errorf("blocking: got %v, want %v", err, unix.EIO)
	}
	if err := terminal.write("text"); !errors.Is(err, unix.EIO) {
		t.Errorf("write: got %v, want %v", err, unix.EIO)
	}
	p := &prompt{log: slog.New(slog.DiscardHandler)}
	if err := p.shell(terminal, account.Account{Shell: "/bin/true"}); !errors.Is(err, unix.EIO) {
		t.Errorf("shell: got %v, want %v", err, unix.EIO)
	}
}

// Stop returns the error of the prompts.
func TestStopFails(t *testing.T) {
	want := errors.New("processes are left")
	p := &Prompts{cancel: func() {}, ended: make(chan struct{}), err: want}
	close(p.ended)
	if err := p.Stop(); !errors.Is(err, want) {
		t.Errorf("got %v, want %v", err, want)
	}
}

// chunks is a reader that returns one chunk at a time, also empty ones.
type chunks []string

func (c *chunks) Read(p []byte) (int, error) {
	if len(*c) == 0 {
		return 0, io.EOF
	}
	n := copy(p, (*c)[0])
	*c = (*c)[1:]
	return n, nil
}

// A read without a byte adds nothing to the line.
func TestReadLineOfEmptyReads(t *testing.T) {
	got, err := readLine(&chunks{"", "a", "", "b", "", "\r", "\n"})
	if err != nil || string(got) != "ab" {
		t.Errorf("got %q, %v, want ab", got, err)
	}
}
