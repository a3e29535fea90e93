package sysfs

import (
	"errors"
	"testing"

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
