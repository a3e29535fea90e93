package sysfs

import (
	"bytes"
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"ironroot/internal/goroutine"
	"ironroot/internal/test/testenv"
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

// A read that hangs ends at the time limit. The file is named in one warning and not read again. A named pipe without
// a writer hangs like a driver that does not answer.
func TestReadHangs(t *testing.T) {
	const limit = 100 * time.Millisecond
	var log bytes.Buffer
	r := Reader{Limit: limit, Log: slog.New(slog.NewTextHandler(&log, nil))}
	path := filepath.Join(t.TempDir(), "fact")
	if err := unix.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { // ends the read that still blocks
		if f, err := os.OpenFile(path, os.O_RDWR, 0); err == nil {
			_ = f.Close()
		}
	})
	for _, least := range []time.Duration{limit, 0} {
		started := time.Now()
		_, err := r.Read(path)
		var named *fs.PathError
		if !errors.Is(err, ErrHangs) || !errors.As(err, &named) || named.Path != path {
			t.Errorf("got %v, want %v with the path", err, ErrHangs)
		}
		if took := time.Since(started); took < least || took > time.Minute {
			t.Errorf("got an answer after %v, want one after %v", took, least)
		}
		if within := "within " + limit.String(); least > 0 && !strings.Contains(err.Error(), within) {
			t.Errorf("got %v, want it %s", err, within)
		}
		r.Limit = time.Hour // the second read fails at once
	}
	if got := strings.Count(log.String(), path); got != 1 {
		t.Errorf("got the log %q, want one warning that names the file", &log)
	}
	var none *Reader
	if data, err := none.Read("/proc/self/comm"); err != nil || len(data) == 0 {
		t.Errorf("without a Reader: got %q and %v, want a file's content", data, err)
	}
}

// A file whose read has ended late is read again: a busy machine had delayed it.
func TestReadAfterHang(t *testing.T) {
	r := Reader{Limit: 10 * time.Millisecond}
	path := filepath.Join(t.TempDir(), "fact")
	if err := unix.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := r.Read(path); !errors.Is(err, ErrHangs) {
		t.Fatalf("got %v, want %v", err, ErrHangs)
	}
	writer, err := os.OpenFile(path, os.O_WRONLY, 0) // the read that blocks can end
	if err == nil {
		err = errors.Join(os.Remove(path), os.WriteFile(path, []byte("answer"), 0o600), writer.Close())
	}
	if err != nil {
		t.Fatal(err)
	}
	late := make(chan content, 1)
	late <- <-r.hung[path]
	r.hung[path], r.Limit = late, time.Minute
	for range 2 {
		if got, err := r.Read(path); err != nil || string(got) != "answer" {
			t.Errorf("got %q and %v, want the content of the file", got, err)
		}
	}
}

// The results are in the order of the items, and at most 64 functions run at a time.
func TestEach(t *testing.T) {
	items := make([]int, 200)
	for i := range items {
		items[i] = i
	}
	var now, most atomic.Int32
	got := Each(items, func(i int) int {
		most.Store(max(most.Load(), now.Add(1)))
		defer now.Add(-1)
		return i
	})
	if !slices.Equal(got, items) || most.Load() > 64 {
		t.Errorf("got %v, %d at once, want the items in order and at most 64 at once", got, most.Load())
	}
}

func TestEachPanics(t *testing.T) {
	testenv.ExpectPanics(t)
	defer func() {
		err, _ := recover().(*goroutine.PanicError)
		if err == nil || err.Value != "oops" {
			t.Errorf("got panic %v, want that of the function", err)
		}
	}()
	Each([]int{1, 2}, func(i int) int {
		if i == 2 {
			panic("oops")
		}
		return i
	})
}
