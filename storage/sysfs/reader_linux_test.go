package sysfs

import (
	"bytes"
	"errors"
	"log/slog"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// EAGAIN, which some drivers return, is an error of the read. A non-blocking pipe without data returns it.
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

// A file that cannot be read is named in one warning. No read leaves a descriptor open.
func TestReadFails(t *testing.T) {
	var log bytes.Buffer
	r := Reader{Limit: time.Minute, Log: slog.New(slog.NewTextHandler(&log, nil))}
	const path = "/proc/self/mem" // nothing is at address 0
	for range 3 {
		if _, err := r.Read(path); !errors.Is(err, unix.EIO) {
			t.Errorf("got %v, want %v", err, unix.EIO)
		}
	}
	if got := strings.Count(log.String(), path); got != 1 {
		t.Errorf("got the log %q, want one warning that names the file", &log)
	}
	open, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	for _, fd := range open {
		if target, _ := os.Readlink("/proc/self/fd/" + fd.Name()); strings.HasSuffix(target, "/mem") {
			t.Errorf("descriptor %s of %s is open", fd.Name(), target)
		}
	}
}
