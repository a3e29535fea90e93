package testenv

import (
	"os"
	"runtime"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	"golang.org/x/sys/unix"
)

// reopened is the number of times that Reopen opens a server.
const reopened = 500

// Reopen opens and closes a server again and again while all processors are busy. Each open must succeed at the port
// that the former server has just closed, even if a program was started meanwhile: until it runs, it has copies of all
// sockets of this process.
func Reopen(t testing.TB, open func() (closeServer func() error, err error)) {
	t.Helper()
	var done atomic.Bool
	defer done.Store(true)
	for range 2 * runtime.NumCPU() {
		go func() {
			for !done.Load() { // keeps a processor busy
			}
		}()
	}
	for n := range reopened {
		closeServer, err := open()
		if err != nil {
			t.Fatalf("open %d: %v", n, err)
		}
		copies := copySockets(t, n%2 == 0)
		err = closeServer()
		if err != nil {
			t.Fatalf("close %d: %v", n, err)
		}
		closeServer, err = open()
		for _, fd := range copies {
			_ = unix.Close(fd)
		}
		if err != nil {
			t.Fatalf("open %d again, with copies %t: %v", n, n%2 == 0, err)
		}
		if err := closeServer(); err != nil {
			t.Fatalf("close %d again: %v", n, err)
		}
	}
}

// copySockets returns copies of all sockets of this process, as a process that was forked has them.
func copySockets(t testing.TB, wanted bool) (copies []int) {
	t.Helper()
	if !wanted {
		return nil
	}
	const dir = "/proc/self/fd"
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		target, err := os.Readlink(dir + "/" + e.Name())
		if err != nil || !strings.HasPrefix(target, "socket:") {
			continue
		}
		fd, err := strconv.Atoi(e.Name())
		if err != nil {
			t.Fatal(err)
		}
		if copied, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0); err == nil { // it may be closed now
			copies = append(copies, copied)
		}
	}
	return copies
}
