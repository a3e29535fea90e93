package generic

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"

	"ironroot/internal/test/disktest"
	"ironroot/internal/test/testenv"
	"ironroot/internal/timelimit"
	"ironroot/storage/block"
)

// fakeFlusher is a flusher. Functions that are nil do nothing.
type fakeFlusher struct {
	sync  func()
	flush func(ctx context.Context, path string) error
}

// flushes returns the flusher of a manager. The first call replaces the kernel.
func flushes(m *Manager) *fakeFlusher {
	if f, ok := m.flusher.(*fakeFlusher); ok {
		return f
	}
	f := &fakeFlusher{}
	m.flusher = f
	return f
}

func (f *fakeFlusher) Sync() {
	if f.sync != nil {
		f.sync()
	}
}

func (f *fakeFlusher) Flush(ctx context.Context, path string) error {
	if f.flush != nil {
		return f.flush(ctx, path)
	}
	return nil
}

// A disk that cannot be flushed is a warning. Any other error of a flush is an error of the sync, because data may be
// lost. All disks are flushed, even if some fail.
func TestSyncFlushErrors(t *testing.T) {
	first, second := block.Device{Path: "/dev/first"}, block.Device{Path: "/dev/second"}
	for _, c := range []struct {
		name   string
		first  error
		second error
		fails  []error // nil for success
		warned bool
	}{
		{name: "flushed"},
		{name: "no ioctl", first: unix.ENOTTY, warned: true},
		{name: "not supported", first: unix.EOPNOTSUPP, warned: true},
		{name: "no fsync", first: unix.EINVAL, warned: true},
		{name: "write-back failed", first: unix.EIO, fails: []error{unix.EIO}},
		{name: "gone", first: unix.ENOENT, fails: []error{unix.ENOENT}},
		{name: "both", first: unix.EIO, second: unix.ENOSPC, fails: []error{unix.EIO, unix.ENOSPC}},
		{name: "one of each", first: unix.ENOTTY, second: unix.EIO, fails: []error{unix.EIO}, warned: true},
	} {
		var log strings.Builder
		m := newManager(t, first, second)
		m.o.Log = slog.New(slog.NewTextHandler(&log, nil))
		flushed := map[string]chan bool{first.Path: make(chan bool, 1), second.Path: make(chan bool, 1)}
		flushes(m).flush = func(_ context.Context, path string) error {
			flushed[path] <- true
			if err := map[string]error{first.Path: c.first, second.Path: c.second}[path]; err != nil {
				return fmt.Errorf("flush %s: %w", path, err)
			}
			return nil
		}
		err := m.Sync(t.Context())
		if (err != nil) != (c.fails != nil) {
			t.Errorf("%s: got %v, want an error: %v", c.name, err, c.fails != nil)
		}
		for _, want := range c.fails {
			if !errors.Is(err, want) {
				t.Errorf("%s: got %v, want %v", c.name, err, want)
			}
		}
		if got := strings.Contains(log.String(), `"disk not flushed" device=/dev/first`); got != c.warned {
			t.Errorf("%s: got log %s, want a warning: %v", c.name, &log, c.warned)
		}
		for path, calls := range flushed {
			if len(calls) != 1 {
				t.Errorf("%s: %s was not flushed", c.name, path)
			}
		}
	}
}

// Disks that are not listed are not flushed, which is an error. Those that are listed are flushed.
func TestSyncDisksNotListed(t *testing.T) {
	broken := errors.New("broken")
	m := newManager(t)
	m.o.Disks = disktest.Lister(func(context.Context) ([]block.Device, error) {
		return []block.Device{{Path: "/dev/good"}}, broken
	})
	flushed := ""
	flushes(m).flush = func(_ context.Context, path string) error {
		flushed = path
		return nil
	}
	if err := m.Sync(t.Context()); !errors.Is(err, broken) || !strings.Contains(err.Error(), "disks not flushed: ") {
		t.Errorf("got %v, want an error about the disks", err)
	}
	if flushed != "/dev/good" {
		t.Errorf("got %q flushed, want the disk in the list", flushed)
	}
}

// A sync does nothing after its context has ended.
func TestSyncCancelled(t *testing.T) {
	m := newManager(t)
	flushes(m).sync = func() { t.Error("called") }
	cause := errors.New("stopped")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(cause)
	err := m.Sync(ctx)
	if !errors.Is(err, cause) || errors.Is(err, timelimit.ErrStuck) || err.Error() != "sync: stopped" {
		t.Errorf("got %v, want sync: stopped", err)
	}
}

// A sync ends with its context even if the kernel does not return, and its error names what did not end.
func TestSyncStuck(t *testing.T) {
	const limit = time.Minute
	for _, c := range []struct{ stuck, want string }{
		{"sync", "sync: still busy in the kernel: too late"},
		{"list", "list disks: still busy in the kernel: too late"},
		{"/dev/a", "flush /dev/a: still busy in the kernel: too late"},
		{"", ""},
	} {
		t.Run(strings.TrimPrefix(c.stuck, "/dev/"), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				returns := make(chan struct{})
				defer close(returns)
				disks := []block.Device{{Path: "/dev/a"}, {Path: "/dev/b"}}
				hang := func(what string) {
					if what == c.stuck {
						<-returns
					}
				}
				m := newManager(t)
				flushed := make(chan string, len(disks))
				flushes(m).sync = func() { hang("sync") }
				m.o.Disks = disktest.Lister(func(context.Context) ([]block.Device, error) {
					hang("list")
					return disks, nil
				})
				flushes(m).flush = func(_ context.Context, path string) error {
					hang(path)
					flushed <- path
					return nil
				}
				ctx, cancel := context.WithTimeoutCause(t.Context(), limit, errors.New("too late"))
				defer cancel()
				started := time.Now()
				err := m.Sync(ctx)
				took := time.Since(started)
				switch c.stuck {
				case "":
					if err != nil || took != 0 || len(flushed) != len(disks) {
						t.Errorf("got %v after %v and %d disks flushed, want both at once", err, took, len(flushed))
					}
					return
				case "/dev/a":
					if len(flushed) != 1 {
						t.Errorf("got %d disks flushed, want the other one", len(flushed))
					}
				}
				if err == nil || err.Error() != c.want || !errors.Is(err, timelimit.ErrStuck) || took != limit {
					t.Errorf("got %v after %v, want %q after %v", err, took, c.want, limit)
				}
			})
		})
	}
}

// The write to drop_caches can block, too: here no process reads it.
func TestSyncCachesStuck(t *testing.T) {
	m := newManager(t)
	caches := m.o.System.Proc("sys/vm/drop_caches")
	if err := errors.Join(os.MkdirAll(filepath.Dir(caches), 0o755), unix.Mkfifo(caches, 0o600)); err != nil {
		t.Fatal(err)
	}
	m.o.Disks = disktest.Lister(func(context.Context) ([]block.Device, error) {
		t.Error("disks listed")
		return nil, nil
	})
	t.Cleanup(func() { // ends the wait of the writer
		reader, err := os.OpenFile(caches, os.O_RDONLY|unix.O_NONBLOCK, 0)
		if err != nil {
			t.Fatal(err)
		}
		_ = reader.Close()
	})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	flushes(m).sync = func() { time.AfterFunc(time.Second, cancel) } // time for the write to begin
	if err := m.Sync(ctx); !errors.Is(err, context.Canceled) || !strings.HasPrefix(err.Error(), "drop caches: ") {
		t.Errorf("got %v, want the caches to be stuck", err)
	}
}

// Data that sync(2) could not write are an error of the sync, although sync(2) itself returns none.
func TestSyncWriteBackFails(t *testing.T) {
	testenv.Root(t)
	dir := t.TempDir()
	testenv.Mount(t, "small", dir, "tmpfs", "size=64k")
	t.Cleanup(func() { testenv.Detach(t, dir) })
	backing := filepath.Join(dir, "disk")
	if err := errors.Join(os.WriteFile(backing, nil, 0o600), os.Truncate(backing, mib)); err != nil {
		t.Fatal(err)
	}
	// A loop device ignores a write that fails partially, so the file system must not have a single free byte.
	if err := os.WriteFile(filepath.Join(dir, "filler"), make([]byte, 128<<10), 0o600); !errors.Is(err, unix.ENOSPC) {
		t.Fatalf("fill %s: got %v, want %v", dir, err, unix.ENOSPC)
	}
	path := testenv.Loop(t, backing, 512)
	disk, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer disk.Close() //nolint:errcheck // fails
	if _, err := disk.Write(make([]byte, mib/2)); err != nil {
		t.Fatal(err)
	}
	err = newManager(t, block.Device{Path: path}).Sync(t.Context())
	if (!errors.Is(err, unix.EIO) && !errors.Is(err, unix.ENOSPC)) ||
		!strings.Contains(err.Error(), "flush "+path+": ") {
		t.Errorf("got %v, want an error of the flush", err)
	}
}
