package erase

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"ironroot/internal/test/testenv"
	"ironroot/storage/sysfs"
)

// A process is listed once, even if it has opened the device several times.
func TestHoldersOfThisMachine(t *testing.T) {
	path := testenv.Loop(t, testenv.SparseFile(t, mib), 512)
	for range 2 {
		f, err := os.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
	}
	want := fmt.Sprintf("process %d (", os.Getpid())
	withoutOthers(t, func() (problem string) {
		names, err := holders(t.Context(), sysfs.Root{}, path)
		if err != nil || len(names) != 1 || !strings.HasPrefix(names[0], want) {
			return fmt.Sprintf("got %q and %v, want only %q", names, err, want)
		}
		return ""
	})
}

// withoutOthers repeats a check of a loop device's holders for at most a minute: a program that looks for a free loop
// device, such as losetup, has each of them open for a moment.
func withoutOthers(t *testing.T, check func() (problem string)) {
	t.Helper()
	problem := check()
	for end := time.Now().Add(time.Minute); problem != "" && time.Now().Before(end); problem = check() {
		time.Sleep(20 * time.Millisecond)
	}
	if problem != "" {
		t.Error(problem)
	}
}

// number returns the number of a device, and its form in sysfs and mountinfo.
func number(t *testing.T, path string) (number uint64, text string) {
	t.Helper()
	var stat unix.Stat_t
	if err := unix.Stat(path, &stat); err != nil {
		t.Fatal(err)
	}
	return stat.Rdev, fmt.Sprintf("%d:%d", unix.Major(stat.Rdev), unix.Minor(stat.Rdev))
}

func TestHolders(t *testing.T) {
	path := testenv.Loop(t, testenv.SparseFile(t, mib), 512)
	name := filepath.Base(path)
	rdev, text := number(t, path)
	sys := nvmeTree(t, name)
	// The map dm-901 is a partition of the device, which is a multipath map; md127 is not.
	put(t, sys.Sys("class/block", name, "dm/uuid"), "mpath-disk\n")
	put(t, sys.Sys("class/block/dm-901/dm/uuid"), "part1-mpath-disk\n")
	put(t, sys.Sys("class/block/dm-901/size"), "8\n")
	for _, holder := range []string{"dm-901", "md127"} {
		put(t, sys.Sys("class/block", name, "holders", holder), "")
	}
	put(t, sys.Proc("self/mountinfo"), "1 0 "+text+" / /srv rw\n2 0 0:5 / /other rw\n3 0\n4 0 0:x / /junk rw\n")
	// A character device of the same number is another device, and directories without a number are not processes.
	character := filepath.Join(t.TempDir(), "dev", "character")
	if err := os.Mkdir(filepath.Dir(character), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mknod(character, unix.S_IFCHR|0o600, int(rdev)); err != nil {
		t.Fatal(err)
	}
	for process, target := range map[string]string{
		"1234": path, "1235": character, "1236": "/dev/missing", "self": path,
	} {
		put(t, sys.Proc(process, "comm"), "tgtd\n")
		if err := os.Mkdir(sys.Proc(process, "fd"), 0o755); err != nil {
			t.Fatal(err)
		}
		for _, file := range []string{"3", "4"} {
			if err := os.Symlink(target, sys.Proc(process, "fd", file)); err != nil {
				t.Fatal(err)
			}
		}
	}
	put(t, sys.Proc("1237/comm"), "ended\n")
	want := []string{"md127 on " + path, "a mount of " + path + " at /srv", "process 1234 (tgtd) on " + path}
	if names, err := holders(t.Context(), sys, path); err != nil || !slices.Equal(names, want) {
		t.Errorf("got %q and %v, want %q", names, err, want)
	}
	unlisted := sysfs.Root{Path: sys.Path}
	if err := os.RemoveAll(sys.Sys()); err != nil {
		t.Fatal(err)
	}
	if names, err := holders(t.Context(), unlisted, path); err != nil || !slices.Equal(names, want[1:]) {
		t.Errorf("device that is not listed: got %q and %v, want %q", names, err, want[1:])
	}
	put(t, sys.Proc("self/mountinfo"), "1 0 0:0 / /srv rw\n")
	if names, err := holders(t.Context(), unlisted, testenv.SparseFile(t, mib)); err != nil || len(names) > 0 {
		t.Errorf("regular file: got %q and %v, want none", names, err)
	}
}

// Holders that cannot be listed are errors: the device may be in use.
func TestHoldersErrors(t *testing.T) {
	path := testenv.Loop(t, testenv.SparseFile(t, mib), 512)
	name := filepath.Base(path)
	upper, mounts := nvmeTree(t, name), nvmeTree(t, name)
	class, processes := sysfs.Root{Path: t.TempDir()}, nvmeTree(t, name)
	put(t, upper.Sys("class/block", name, "holders"), "")
	put(t, mounts.Proc("self/mountinfo/file"), "")
	put(t, class.Sys("class/block"), "")
	put(t, processes.Proc(), "")
	for what, c := range map[string]struct {
		sys  sysfs.Root
		path string
		want error
	}{
		"holders":         {upper, path, unix.ENOTDIR},
		"mounts":          {mounts, path, unix.EISDIR},
		"devices":         {class, path, unix.ENOTDIR},
		"proc":            {processes, path, unix.ENOTDIR},
		"path of no node": {nvmeTree(t), "/dev/null/node", unix.ENOTDIR},
	} {
		if names, err := holders(t.Context(), c.sys, c.path); !errors.Is(err, c.want) {
			t.Errorf("%s: got %q and %v, want %v", what, names, err, c.want)
		}
	}
	if names, err := openersOf(t.Context(), processes, nil); !errors.Is(err, unix.ENOTDIR) {
		t.Errorf("processes: got %q and %v, want %v", names, err, unix.ENOTDIR)
	}
	checks := 0
	late := hooked{t.Context(), func() error { // while processes are looked at
		if checks++; checks > 1 {
			return context.Canceled
		}
		return nil
	}}
	if names, err := holders(late, sysfs.Root{}, path); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: got %q and %v, want %v", names, err, context.Canceled)
	}
	cancelled, cancel := context.WithCancel(t.Context())
	cancel()
	if err := (Wait{}).free(cancelled, sysfs.Root{}, path); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: free: got %v, want %v", err, context.Canceled)
	}
}

func TestWaitErrors(t *testing.T) {
	path := testenv.Loop(t, testenv.SparseFile(t, mib), 512)
	busy := func() error { return unix.EBUSY }
	heldBy := func(want string) {
		t.Helper()
		withoutOthers(t, func() (problem string) {
			err := Wait{}.until(t.Context(), sysfs.Root{}, path, busy)
			if !errors.Is(err, ErrBusy) || !strings.Contains(err.Error(), want) {
				return fmt.Sprintf("got %v, want %q", err, want)
			}
			return ""
		})
	}
	heldBy("held by an unknown holder")
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	heldBy(fmt.Sprintf("held by process %d", os.Getpid()))
	cancelled, cancel := context.WithCancel(t.Context())
	cancel()
	long := Wait{Interval: time.Hour, Retries: 1}
	if err := long.until(cancelled, sysfs.Root{}, path, busy); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: got %v, want %v", err, context.Canceled)
	}
}
