package chroot

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"ironroot/internal/confine"
	"ironroot/internal/test/testenv"
	"ironroot/storage/mounted"
)

// TestMain runs the child process that enters the root.
func TestMain(m *testing.M) {
	Child()
	os.Exit(m.Run())
}

// system is a loop device whose root file system contains the installer.
func system(t *testing.T) System {
	t.Helper()
	return systemOn(t, 64<<20, "mkfs.ext4", "-q", "-d")
}

// systemOn makes a system on a file system of size bytes, see systemOf.
func systemOn(t *testing.T, size int64, mkfs ...string) System {
	t.Helper()
	return systemOf(t, func(path string) {
		testenv.Run(t, "env", "CGO_ENABLED=0", "go", "build", "-o", path, "./testdata/installer")
	}, size, mkfs...)
}

// systemOf makes a system on a file system of size bytes, with the installer that install writes to a path. mkfs is the
// command that makes the file system; the tree and the device are appended to its arguments.
func systemOf(t *testing.T, install func(path string), size int64, mkfs ...string) System {
	t.Helper()
	testenv.Root(t)
	testenv.Programs(t, mkfs[0])
	tree := t.TempDir()
	for _, name := range []string{"dev", "proc", "sys", "run", "tmp", "etc", "usr/sbin"} {
		if err := os.MkdirAll(filepath.Join(tree, name), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	install(filepath.Join(tree, "usr/sbin/installer"))
	image := testenv.SparseFile(t, size)
	testenv.Run(t, mkfs[0], append(mkfs[1:], tree, image)...)
	return System{Root: testenv.Loop(t, image, 512)}
}

// left fails the test if the device is still in use, or if a mount of it is visible.
func left(t *testing.T, s System) {
	t.Helper()
	fd, err := unix.Open(s.Root, unix.O_RDWR|unix.O_EXCL|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Errorf("the root is still in use: %v", err)
		return
	}
	if err := unix.Close(fd); err != nil {
		t.Error(err)
	}
}

func TestRun(t *testing.T) {
	s := system(t)
	if err := Run(t.Context(), s, []string{"VARIABLE=value"}, "other|installer", "argument"); err != nil {
		t.Fatal(err)
	}
	left(t, s)
	root, err := mounted.Open(t.Context(), s.Root, false)
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	f, err := root.Regular("etc/installer")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	got, err := io.ReadAll(f)
	const want = "pid 1, 1 processes, 1 interfaces, argument argument, variable value, outside false, null true, " +
		"sys true, 1 names by UUID"
	if err != nil || string(got) != want {
		t.Errorf("the program reports\n%s (%v), want\n%s", got, err, want)
	}
}

func TestRunFails(t *testing.T) {
	s := system(t)
	var failed *Error
	err := Run(t.Context(), s, nil, "installer", "fail")
	if !errors.As(err, &failed) || !strings.HasSuffix(failed.Output, "\ndisk is on fire") ||
		len(failed.Output) > confine.MaxOutput ||
		!strings.Contains(err.Error(), "exit status 3") || !strings.Contains(err.Error(), "installer") {
		t.Errorf("got %.200v, want the exit status and the end of the output", err)
	}
	left(t, s)
	if err := Run(t.Context(), s, nil, "one|two"); !errors.Is(err, ErrNoProgram) ||
		!strings.Contains(err.Error(), "one|two") {
		t.Errorf("no such program: got %v, want %v", err, ErrNoProgram)
	}
	left(t, s)
	testenv.Programs(t, "mkfs.btrfs")
	other := System{Root: testenv.Loop(t, testenv.SparseFile(t, 128<<20), 512)}
	testenv.Run(t, "mkfs.btrfs", "-q", other.Root)
	if err := Run(t.Context(), other, nil, "installer", "argument"); err == nil ||
		!strings.Contains(err.Error(), "/dev in "+other.Root+", btrfs, in its default subvolume") {
		t.Errorf("no root there: got %v, want an error that says where it was looked for", err)
	}
	left(t, other)
	testenv.Run(t, "wipefs", "-qaf", s.Root)
	if err := Run(t.Context(), s, nil, "installer", "argument"); err == nil || errors.Is(err, ErrNoProgram) ||
		!strings.Contains(err.Error(), s.Root) {
		t.Errorf("no file system: got %v, want an error that names %s", err, s.Root)
	}
}

// A command that is cancelled leaves neither a process nor a mount.
func TestRunCancelled(t *testing.T) {
	s := system(t)
	ctx, cancel := context.WithCancelCause(t.Context())
	given := errors.New("given up")
	go func() {
		for ctx.Err() == nil {
			if len(children(t)) > 0 {
				cancel(given)
			}
		}
	}()
	if err := Run(ctx, s, nil, "installer", "hang", strconv.Itoa(os.Getpid())); !errors.Is(err, given) {
		t.Errorf("got %v, want %v", err, given)
	}
	left(t, s)
	if c := children(t); len(c) > 0 {
		t.Errorf("processes %v are left", c)
	}
}

// children returns the processes that run the installer for this process, and not for another run of the test.
func children(t *testing.T) []int {
	var found []int
	names, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		t.Error(err)
	}
	for _, name := range names {
		line, err := os.ReadFile(name)
		if err != nil || string(line) != "/usr/sbin/installer\x00hang\x00"+strconv.Itoa(os.Getpid())+"\x00" {
			continue // ended meanwhile, or another's
		}
		pid, err := strconv.Atoi(strings.Split(name, "/")[2])
		if err != nil {
			t.Error(err)
		}
		found = append(found, pid)
	}
	return found
}
