//go:build linux

package login

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
)

// The terminal hides a password, is prepared for a shell, and has its former modes when it is closed.
func TestTerminalModes(t *testing.T) {
	path := newConsole(t).path
	observer, err := os.OpenFile(path, os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer observer.Close() //nolint:errcheck // nothing was written
	modes := func() unix.Termios {
		t.Helper()
		modes, err := unix.IoctlGetTermios(int(observer.Fd()), unix.TCGETS)
		if err != nil {
			t.Fatal(err)
		}
		return *modes
	}
	changed := modes()
	changed.Iflag ^= unix.IXANY
	if err := unix.IoctlSetTermios(int(observer.Fd()), unix.TCSETS, &changed); err != nil {
		t.Fatal(err)
	}
	before := modes()
	terminal, err := openTerminal(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := terminal.setModes(false); err != nil {
		t.Fatal(err)
	}
	if got := modes().Lflag & (unix.ECHO | unix.ECHONL | unix.ICANON); got != unix.ECHONL|unix.ICANON {
		t.Errorf("password: got modes %#x, want lines without echo", got)
	}
	if err := terminal.blocking(); err != nil {
		t.Fatal(err)
	}
	if got := modes().Lflag & (unix.ECHO | unix.ISIG | unix.ICANON); got != unix.ECHO|unix.ISIG|unix.ICANON {
		t.Errorf("shell: got modes %#x, want lines with echo and signals", got)
	}
	if err := terminal.control(func(fd int) error {
		flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFL, 0)
		if flags&unix.O_NONBLOCK != 0 {
			t.Error("shell: reads do not block")
		}
		return err
	}); err != nil {
		t.Error(err)
	}
	terminal.close()
	if diff := cmp.Diff(before, modes()); diff != "" {
		t.Errorf("modes after the end (-before +after):\n%s", diff)
	}
	if err := terminal.write("text"); !errors.Is(err, os.ErrClosed) {
		t.Errorf("write after the end: got %v, want %v", err, os.ErrClosed)
	}
}

func TestOpenTerminalFails(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{file: "get modes of " + file, file + ".missing": "open " + file} {
		if _, err := openTerminal(path); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%s: got %v, want %q", path, err, want)
		}
	}
}
