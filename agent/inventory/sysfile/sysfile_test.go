package sysfile

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func TestRead(t *testing.T) {
	var r Reader
	path := filepath.Join(t.TempDir(), "fact")
	want := make([]byte, 3*os.Getpagesize()+7)
	want[len(want)-1] = 'x'
	if err := os.WriteFile(path, want, 0o600); err != nil {
		t.Fatal(err)
	}
	got, err := r.Read(path)
	if err != nil || string(got) != string(want) {
		t.Errorf("got %d bytes and %v, want %d", len(got), err, len(want))
	}
	if _, err := r.Read(path + "2"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("got %v, want %v", err, fs.ErrNotExist)
	}
}

// A named pipe that nobody writes to hangs like a driver that does not answer.
func TestReadHangs(t *testing.T) {
	var r Reader
	path := filepath.Join(t.TempDir(), "fact")
	if err := unix.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { // lets the forgotten reader go
		if f, err := os.OpenFile(path, os.O_RDWR, 0); err == nil {
			_ = f.Close()
		}
	})
	for _, limit := range []time.Duration{2 * Limit, Limit / 2} { // the second time it is known
		started := time.Now()
		_, err := r.Read(path)
		var named *fs.PathError
		if !errors.Is(err, ErrHangs) || !errors.As(err, &named) || named.Path != path {
			t.Errorf("got %v, want %v with the path", err, ErrHangs)
		}
		if took := time.Since(started); took > limit {
			t.Errorf("got an answer after %v, want one within %v", took, limit)
		}
	}
}

// A pipe without data that is opened not to block answers EAGAIN, as some drivers do.
func TestReadAgain(t *testing.T) {
	var ends [2]int
	if err := unix.Pipe2(ends[:], unix.O_NONBLOCK|unix.O_CLOEXEC); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Close(ends[0]); _ = unix.Close(ends[1]) })
	if _, err := readFD(ends[0], "pipe"); !errors.Is(err, unix.EAGAIN) {
		t.Errorf("got %v, want %v", err, unix.EAGAIN)
	}
}
