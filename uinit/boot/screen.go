package boot

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"ironroot/agent/screen"
	"ironroot/agent/status"
	"ironroot/internal/goroutine"
)

const (
	// redrawPause is the shortest time between two pictures: a person sees no more, and a slow VGA has other work.
	redrawPause = 400 * time.Millisecond
	// tailLines is how many log lines are kept for screens, and tailLine how long one may be, in bytes.
	tailLines, tailLine = 64, 512
)

// isVirtualTerminal tells monitors, on which the status screen is drawn, from serial consoles, which get lines only.
func isVirtualTerminal(name string) bool {
	number, found := strings.CutPrefix(name, "tty")
	return found && number != "" && strings.Trim(number, "0123456789") == ""
}

// Show draws the board on all virtual terminals from now on until ctx ends, in place of log lines.
func (c *Console) Show(ctx context.Context, board *status.Board) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.paint = func(s *sink) {
		keep(ctx, func() { c.draw(ctx, s, board) })
	}
	for _, s := range c.sinks {
		c.startPainting(s)
	}
}

// startPainting is called with mu held.
func (c *Console) startPainting(s *sink) {
	if s.virtual && c.paint != nil && s.setPainted(true) {
		c.paint(s)
	}
}

// banner writes a text for people in front of a monitor, and nowhere else.
func (c *Console) banner(text string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, s := range c.sinks {
		if s.virtual {
			s.put([]byte(text))
		}
	}
}

// Plain ends the drawing: what is written from now on appears on every terminal, below the last picture.
func (c *Console) Plain() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.paint = nil
	for _, s := range c.sinks {
		if s.virtual && s.setPainted(false) {
			var release bytes.Buffer
			if err := screen.NewPainter(&release).Release(); err == nil {
				s.put(release.Bytes())
			}
		}
	}
}

// Torn makes the next picture be drawn as a whole: the kernel wrote a line of its own, which is shown with the log.
func (c *Console) Torn(line string) {
	c.tail.add([]byte(line + "\n"))
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, s := range c.sinks {
		s.tear()
	}
}

// draw keeps one terminal up to date. A terminal that stands still gets no picture until it has taken the last one.
func (c *Console) draw(ctx context.Context, s *sink, board *status.Board) {
	var out bytes.Buffer
	painter := screen.NewPainter(&out)
	for {
		changed, logged := board.Changed(), c.tail.changes()
		select {
		case <-s.idle():
		case <-ctx.Done():
			return
		}
		if s.mended() {
			painter.Forget()
		}
		width, height := terminalSize(s.path)
		out.Reset()
		if err := painter.Paint(screen.Draw(board.State(), c.tail.lines(), width, height)); err == nil && !s.show(out.Bytes()) {
			return // the terminal shows lines again
		}
		select {
		case <-changed:
		case <-logged:
		case <-ctx.Done():
			return
		}
		select {
		case <-time.After(redrawPause):
		case <-ctx.Done():
			return
		}
	}
}

// terminalSize asks the terminal for its size in cells. It changes when a driver of the graphics card takes over.
func terminalSize(path string) (width, height int) {
	f, err := openTerminal(path)
	if err != nil {
		return screen.DefaultWidth, screen.DefaultHeight
	}
	defer f.Close() //nolint:errcheck // nothing was written
	raw, err := f.SyscallConn()
	if err != nil {
		return screen.DefaultWidth, screen.DefaultHeight
	}
	var size *unix.Winsize
	failed := raw.Control(func(fd uintptr) { size, err = unix.IoctlGetWinsize(int(fd), unix.TIOCGWINSZ) })
	if errors.Join(failed, err) != nil || size.Col == 0 || size.Row == 0 {
		return screen.DefaultWidth, screen.DefaultHeight
	}
	return int(size.Col), int(size.Row)
}

// tail keeps the latest lines.
type tail struct {
	mu      sync.Mutex
	kept    []string
	changed chan struct{} // closed and replaced with every line
}

func newTail() *tail { return &tail{changed: make(chan struct{})} }

func (t *tail) add(p []byte) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for line := range bytes.Lines(p) {
		line = bytes.TrimRight(line, "\r\n")
		t.kept = append(t.kept, string(line[:min(len(line), tailLine)]))
	}
	if extra := len(t.kept) - tailLines; extra > 0 {
		t.kept = slices.Delete(t.kept, 0, extra)
	}
	close(t.changed)
	t.changed = make(chan struct{})
}

func (t *tail) lines() []string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.Clone(t.kept)
}

func (t *tail) changes() <-chan struct{} {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.changed
}

// watchKernel has the screens redrawn whenever the kernel wrote a message onto them, until ctx ends. Where it cannot,
// screens stay torn until their next change, which is no reason to complain.
func watchKernel(ctx context.Context, c *Console) {
	f, err := os.OpenFile("/dev/kmsg", os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return
	}
	defer f.Close() //nolint:errcheck // only read
	goroutine.AfterContext(ctx, func() { _ = f.Close() })
	if _, err := f.Seek(0, io.SeekEnd); err != nil {
		return
	}
	record := make([]byte, 8<<10) // the kernel's own limit
	for {
		n, err := f.Read(record)
		switch {
		case errors.Is(err, unix.EPIPE): // messages were overwritten before they were read
			continue
		case err != nil:
			return
		}
		if text, level := kernelMessage(record[:n]); level < consoleLevel() {
			c.Torn("kernel: " + text)
		}
	}
}

// kernelMessage reads a record of /dev/kmsg (Documentation/ABI/testing/dev-kmsg in Linux): "priority,sequence,time,flags;text",
// and then lines of properties. The lowest three bits of the priority are the level.
func kernelMessage(record []byte) (text string, level int) {
	head, rest, _ := bytes.Cut(record, []byte(";"))
	first, _, _ := bytes.Cut(rest, []byte("\n"))
	number, _, _ := bytes.Cut(head, []byte(","))
	priority, err := strconv.Atoi(string(number))
	if err != nil {
		return "", 7
	}
	return string(first), priority & 7
}

// consoleLevel is the level below which the kernel writes messages onto its consoles.
func consoleLevel() int {
	text, err := os.ReadFile("/proc/sys/kernel/printk")
	if err != nil {
		return 0
	}
	fields := strings.Fields(string(text))
	if len(fields) == 0 {
		return 0
	}
	level, err := strconv.Atoi(fields[0])
	if err != nil {
		return 0
	}
	return level
}
