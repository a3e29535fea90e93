//go:build linux

package sshd

import (
	"errors"
	"log/slog"
	"os"
	"strings"
	"testing"

	"golang.org/x/crypto/ssh"
	"golang.org/x/sys/unix"
)

// lowestFree returns the lowest number of a descriptor that is not open.
func lowestFree(t *testing.T) uint64 {
	t.Helper()
	free, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer free.Close() //nolint:errcheck // nothing was written
	return uint64(free.Fd())
}

// Without descriptors for a terminal, the request for it is refused, and nothing stays open.
func TestTerminalWithoutDescriptors(t *testing.T) {
	s := &session{server: &server{log: slog.New(slog.DiscardHandler)}, conn: &connection{}}
	request := ssh.Marshal(struct {
		Kind                         string
		Columns, Rows, Width, Height uint32
		Modes                        string
	}{"xterm", 80, 24, 0, 0, ""})
	var before unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &before); err != nil {
		t.Fatal(err)
	}
	free := lowestFree(t)
	for more, want := range []string{"open /dev/ptmx: ", "open /dev/pts/"} {
		limit := unix.Rlimit{Cur: free + uint64(more), Max: before.Max}
		if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
			t.Fatal(err)
		}
		_, err := newTerminal()
		ok := s.openTerminal(request)
		if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &before); err != nil {
			t.Fatal(err)
		}
		if !errors.Is(err, unix.EMFILE) || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%d descriptors: got %v, want %q and %v", more, err, want, unix.EMFILE)
		}
		if ok || s.terminal != nil {
			t.Errorf("%d descriptors: got %v, %v, want no terminal", more, ok, s.terminal)
		}
		if got := lowestFree(t); got != free {
			t.Errorf("%d descriptors: got %d as the lowest free one, want %d: one stays open", more, got, free)
		}
	}
	if ok := s.openTerminal(request); !ok {
		t.Error("with descriptors: got no terminal")
	}
	s.terminal.close()
}
