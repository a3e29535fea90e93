package qemu

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"regexp"
	"strings"
	"sync"
)

// consoleLimit is the number of bytes that a Console keeps. The console's log file is complete.
const consoleLimit = 4 << 20

// Lines receives the lines of a console.
type Lines interface {
	// Line is called from one goroutine with each complete line, without its line end.
	Line(text string)
}

// Console is the output of the machine's serial port. Its methods may be called concurrently, also after the machine
// has ended.
type Console struct {
	mu      sync.Mutex
	buf     []byte
	start   int64         // position of buf[0] in the whole output
	changed chan struct{} // closed and replaced at each change
	ended   bool
	input   io.Writer
	to      Lines  // may be nil
	partial []byte // the incomplete last line, for to
}

func newConsole(input io.Writer, to Lines) *Console {
	return &Console{changed: make(chan struct{}), input: input, to: to}
}

// Match is a match of an expression on the console.
type Match struct {
	Groups []string // the match and its parenthesised groups
	End    int64    // position after the match, for FollowFrom
}

// halted is the last line of a Linux that panicked and does not restart. It is not printed if the kernel parameter
// panic= requests a restart.
const halted = "---[ end Kernel panic"

// Follow waits until the console's output matches expression and returns the first match. It fails when ctx or the
// machine ends, or when the machine's Linux stops with a panic; the error quotes the end of the output.
func (c *Console) Follow(ctx context.Context, expression *regexp.Regexp) (Match, error) {
	return c.FollowFrom(ctx, 0, expression)
}

// FollowFrom is like Follow, but ignores the output before position from.
func (c *Console) FollowFrom(ctx context.Context, from int64, expression *regexp.Regexp) (Match, error) {
	for {
		c.mu.Lock()
		m, found := c.find(from, expression)
		panicked := bytes.Contains(c.after(from), []byte(halted))
		ended, changed := c.ended, c.changed
		c.mu.Unlock()
		if found {
			return m, nil
		}
		if panicked {
			return Match{}, fmt.Errorf("kernel panic before %q; the console's end is:\n%s", expression, c.Tail(40))
		}
		if ended {
			return Match{}, fmt.Errorf("console ended without %q; its end is:\n%s", expression, c.Tail(20))
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return Match{}, fmt.Errorf("waiting for %q on the console: %w; its end is:\n%s",
				expression, context.Cause(ctx), c.Tail(20))
		}
	}
}

func (c *Console) find(from int64, expression *regexp.Regexp) (Match, bool) {
	text := c.after(from)
	at := expression.FindSubmatchIndex(text)
	if at == nil {
		return Match{}, false
	}
	m := Match{End: c.start + int64(len(c.buf)-len(text)+at[1])}
	for i := 0; i < len(at); i += 2 {
		group := ""
		if at[i] >= 0 {
			group = string(text[at[i]:at[i+1]])
		}
		m.Groups = append(m.Groups, group)
	}
	return m, true
}

// after returns the output after position from that is still there.
func (c *Console) after(from int64) []byte {
	return c.buf[min(max(from-c.start, 0), int64(len(c.buf))):]
}

// Mark returns the current end position of the output, for FollowFrom.
func (c *Console) Mark() int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.start + int64(len(c.buf))
}

// String returns the output so far, or at least its last 4 MiB.
func (c *Console) String() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return string(c.buf)
}

// Tail returns the last n lines without control sequences.
func (c *Console) Tail(n int) string {
	lines := strings.Split(strings.TrimRight(Plain(c.String()), "\n"), "\n")
	return strings.Join(lines[max(0, len(lines)-n):], "\n")
}

// Send writes text to the serial port, as if it were typed.
func (c *Console) Send(text string) error {
	if _, err := io.WriteString(c.input, text); err != nil {
		return fmt.Errorf("write to the serial console: %w", err)
	}
	return nil
}

// Write appends output of the machine.
func (c *Console) Write(p []byte) (int, error) {
	c.mu.Lock()
	c.buf = append(c.buf, p...)
	if extra := len(c.buf) - consoleLimit; extra > consoleLimit/4 {
		c.buf = append([]byte(nil), c.buf[extra:]...)
		c.start += int64(extra)
	}
	c.notify()
	c.mu.Unlock()
	c.lines(p)
	return len(p), nil
}

// lines passes on complete lines. Only the reading goroutine calls it.
func (c *Console) lines(p []byte) {
	if c.to == nil {
		return
	}
	c.partial = append(c.partial, p...)
	for {
		line, rest, found := bytes.Cut(c.partial, []byte("\n"))
		if !found {
			break
		}
		c.to.Line(strings.TrimRight(Plain(string(line)), "\r"))
		c.partial = rest
	}
	if len(c.partial) > 1<<16 {
		c.partial = nil
	}
}

func (c *Console) end() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ended = true
	c.notify()
}

func (c *Console) notify() {
	close(c.changed)
	c.changed = make(chan struct{})
}

var controls = regexp.MustCompile(`\x1b\[[0-9;?=]*[A-Za-z]|\x1b[()][A-Z0-9]|` +
	`\x1b[=>c78]|[\x00-\x08\x0b\x0c\x0e-\x1a\x1c-\x1f]`)

// BIOSText returns an expression that matches text that a program, for example a boot loader, prints through the
// BIOS. SeaBIOS copies its screen to the serial port at each timer tick, and can reposition the cursor within a word.
func BIOSText(text string) *regexp.Regexp {
	var parts []string
	for _, character := range text {
		parts = append(parts, regexp.QuoteMeta(string(character)))
	}
	return regexp.MustCompile(strings.Join(parts, `(?:\r|\x1b\[[0-9;]*[A-Za-z])*`))
}

// Plain returns text without terminal control sequences and with line feeds as the only line ends.
func Plain(text string) string {
	return strings.ReplaceAll(controls.ReplaceAllString(text, ""), "\r\n", "\n")
}
