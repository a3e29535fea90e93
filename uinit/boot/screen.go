//go:build linux

package boot

import (
	"bytes"
	"context"
	"errors"
	"io"
	"iter"
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
	// redrawPause is the minimum time between two redraws: more is not visible, and writing to VGA can be slow.
	redrawPause = 400 * time.Millisecond
	// tailLines is the number of log lines that are kept for screens. tailLine limits each, in bytes.
	tailLines, tailLine = 64, 512
)

// isVirtualTerminal reports whether a console is a monitor, which shows the status screen. Serial consoles get lines
// only.
func isVirtualTerminal(name string) bool {
	number, found := strings.CutPrefix(name, "tty")
	return found && number != "" && strings.Trim(number, "0123456789") == ""
}

// Show draws the board on all virtual terminals instead of log lines, until ctx ends.
func (c *Console) Show(ctx context.Context, board *status.Board) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ctx, c.board = ctx, board
	for _, s := range c.sinks {
		c.startPainting(s)
	}
}

// startPainting requires mu.
func (c *Console) startPainting(s *sink) {
	ctx, board := c.ctx, c.board
	if s.virtual && board != nil && s.setPainted(true) {
		keep(ctx, func() { c.draw(ctx, s, board) })
	}
}

// banner writes a text to virtual terminals only.
func (c *Console) banner(text string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, s := range c.sinks {
		if s.virtual {
			s.put([]byte(text))
		}
	}
}

// Plain stops drawing. Later lines appear on every terminal, below the last screen.
func (c *Console) Plain() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.board = nil
	for _, s := range c.sinks {
		if s.virtual && s.setPainted(false) {
			var release bytes.Buffer
			if err := screen.NewPainter(&release).Release(); err == nil {
				s.put(release.Bytes())
			}
		}
	}
}

// KernelWrote causes a full redraw, because the kernel wrote a line onto the screens. The line is shown with the log.
func (c *Console) KernelWrote(line string) {
	c.tail.add([]byte(line + "\n"))
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, s := range c.sinks {
		s.markStale()
	}
}

// draw keeps the screen of one terminal current. It writes the next screen only after the terminal has accepted the
// last.
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
		if s.takeStale() {
			painter.Forget()
		}
		width, height := terminalSize(s.path)
		out.Reset()
		err := painter.Paint(screen.Draw(board.State(), c.tail.lines(), width, height))
		if err == nil && !s.show(out.Bytes()) {
			return // the terminal shows lines now
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

// terminalSize returns the size of a terminal in cells. The size changes when the driver of the graphics card is
// loaded.
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

// tail holds the latest log lines.
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

// watchKernel redraws the screens whenever the kernel wrote a message onto them, until ctx ends. If /dev/kmsg cannot
// be read, a stale screen is redrawn with its next change; that is not logged.
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
	for text, level := range kernelMessages(f) {
		if level < consoleLevel() {
			c.KernelWrote("kernel: " + text)
		}
	}
}

// kernelMessages yields the text and the level of each message that an open /dev/kmsg receives, until it fails or is
// closed. Messages that the kernel overwrites before they are read are omitted.
func kernelMessages(kmsg *os.File) iter.Seq2[string, int] {
	return func(yield func(string, int) bool) {
		record := make([]byte, maxRecord)
		for {
			n, err := kmsg.Read(record)
			switch {
			case errors.Is(err, unix.EPIPE): // overwritten
				continue
			case err != nil:
				return
			}
			if !yield(kernelMessage(record[:n])) {
				return
			}
		}
	}
}

// kernelMessage parses a record of /dev/kmsg (Documentation/ABI/testing/dev-kmsg in Linux):
// "priority,sequence,time,flags;text", and then lines of properties. The lowest three bits of the priority are the
// level.
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

// consoleLevel returns the level below which the kernel writes messages to its consoles.
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
