//go:build linux

package boot

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// The message of a panic, written piece by piece, appears on every terminal that accepts it. A terminal that accepts
// nothing is waited for once.
func TestCrashReporter(t *testing.T) {
	dir := t.TempDir()
	stuck, alive, monitor := fifo(t, dir, "ttyS0"), fifo(t, dir, "ttyS1"), fifo(t, dir, "tty0")
	if err := stuck.SetWriteDeadline(time.Now().Add(10 * time.Millisecond)); err != nil {
		t.Fatal(err)
	}
	for { // until the pipe is full
		if _, err := stuck.Write(make([]byte, 4096)); err != nil {
			break
		}
	}
	in, out, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		reportCrash(in, []string{stuck.Name(), filepath.Join(dir, "missing"), alive.Name(), monitor.Name()},
			2*time.Second) // the test waits for it once
	}()
	const line = "panic: the work exploded\n"
	for _, word := range strings.SplitAfter(line, " ") {
		if _, err := out.WriteString(word); err != nil {
			t.Fatal(err)
		}
	}
	for f, want := range map[*os.File]string{alive: line, monitor: "\x1b[0m\n" + line} {
		if got := readUntil(t, f, "exploded\n"); got != want {
			t.Errorf("%s shows %q, want %q", f.Name(), got, want)
		}
	}
	if err := out.Close(); err != nil {
		t.Fatal(err)
	}
	select {
	case <-ended:
	case <-time.After(time.Minute):
		t.Error("the crash reporter does not end with its input")
	}
}
