//go:build linux

package boot

import (
	"io"
	"os"
	"strings"
	"testing"
	"time"

	"ironroot/agent/status"
)

// readUntil reads from a terminal until it has shown text, and returns all it read.
func readUntil(t *testing.T, f *os.File, text string) string {
	t.Helper()
	if err := f.SetReadDeadline(time.Now().Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	var all []byte
	buffer := make([]byte, 64<<10)
	for !strings.Contains(string(all), text) {
		n, err := f.Read(buffer)
		if all = append(all, buffer[:n]...); err != nil {
			t.Fatalf("%s: %v; want %q, got %q", f.Name(), err, text, all)
		}
	}
	return string(all)
}

// A monitor shows pictures while a serial line shows lines; lines come back to the monitor where somebody has to read
// them, such as the stack of a panic.
func TestScreenAndSerial(t *testing.T) {
	dir := t.TempDir()
	monitor, serial, late := fifo(t, dir, "tty0"), fifo(t, dir, "ttyS0"), ""
	c := OpenConsole(dir, []string{"tty0", "ttyS0", "tty2"})
	write := func(text string) {
		t.Helper()
		if _, err := io.WriteString(c, text); err != nil {
			t.Fatal(err)
		}
	}
	write("first line\n")
	readUntil(t, monitor, "first line\n")
	board := status.NewBoard("1.2.3", nil)
	c.Show(t.Context(), board)
	readUntil(t, monitor, "ironroot 1.2.3")
	board.Node("4c9e53e9-138a-489f-a945-d4844245b7ee", "")
	readUntil(t, monitor, "4c9e53e9-138a-489f-a945-d4844245b7ee")
	write("second line\n")
	if got := readUntil(t, monitor, "second line"); strings.Contains(got, "ironroot") {
		t.Errorf("what did not change is drawn again: %q", got)
	}
	c.KernelWrote("kernel: it broke")
	if got := readUntil(t, monitor, "kernel: it broke"); !strings.Contains(got, "ironroot") {
		t.Errorf("a stale screen is not redrawn: %q", got)
	}
	second := fifo(t, dir, "tty2") // comes with its driver
	c.Retry()
	readUntil(t, second, "ironroot 1.2.3")
	c.Plain()
	write("a stack\n")
	if got := readUntil(t, monitor, "a stack\n"); !strings.HasSuffix(got, "\na stack\n") {
		t.Errorf("the monitor shows %q, want a line of its own", got)
	}
	late = readUntil(t, serial, "a stack\n")
	if late != "first line\nsecond line\na stack\n" {
		t.Errorf("the serial line shows %q, want nothing but the lines", late)
	}
}

// A monitor whose output somebody has paused by a key delays nothing, and its queue does not grow.
func TestScreenStandsStill(t *testing.T) {
	dir := t.TempDir()
	fifo(t, dir, "tty0") // never read
	serial := fifo(t, dir, "ttyS0")
	c := OpenConsole(dir, []string{"tty0", "ttyS0"})
	board := status.NewBoard("1.2.3", nil)
	c.Show(t.Context(), board)
	line := strings.Repeat("x", 500) + "\n"
	got := make([]byte, len(line))
	for range 2000 {
		board.Node(line, line)
		if _, err := io.WriteString(c, line); err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadFull(serial, got); err != nil {
			t.Fatal(err)
		}
	}
	s := c.sinks[0]
	s.mu.Lock()
	waiting := len(s.buf)
	s.mu.Unlock()
	if waiting > 64<<10 {
		t.Errorf("%d bytes wait for a paused monitor, want one picture at most", waiting)
	}
	started := time.Now()
	c.Plain()
	c.Flush(time.Millisecond)
	if took := time.Since(started); took > 30*time.Second {
		t.Errorf("giving up on it takes %v", took)
	}
}

func TestKernelMessage(t *testing.T) {
	for record, want := range map[string]struct {
		text  string
		level int
	}{
		"3,812,5140900,-;nvme0: I/O error\n SUBSYSTEM=nvme\n": {"nvme0: I/O error", 3},
		"30,5,100,-;from user space\n":                        {"from user space", 6},
		"x,5,100,-;broken\n":                                  {"", 7},
		"":                                                    {"", 7},
	} {
		if text, level := kernelMessage([]byte(record)); text != want.text || level != want.level {
			t.Errorf("%q: got %q at level %d, want %q at %d", record, text, level, want.text, want.level)
		}
	}
}

func TestIsVirtualTerminal(t *testing.T) {
	for name, want := range map[string]bool{
		"tty0": true, "tty12": true, "ttyS0": false, "ttyAMA0": false, "hvc0": false, "tty": false, "console": false,
		"ttyUSB0": false,
	} {
		if got := isVirtualTerminal(name); got != want {
			t.Errorf("%s: got %v, want %v", name, got, want)
		}
	}
}
