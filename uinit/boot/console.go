//go:build linux

package boot

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"ironroot/agent/status"
	"ironroot/internal/goroutine"
)

// consoleQueue limits the queue of a slow console, in bytes.
const consoleQueue = 256 << 10

// consoleNames returns the devices of all console= parameters, in order and without duplicates. The kernel writes to
// all of them, but /dev/console is only the last one. Without the parameter the result is the active consoles, which
// the kernel selected itself (Documentation/ABI/testing/sysfs-tty in Linux).
func consoleNames(cmdline, active string) []string {
	var names []string
	for _, word := range strings.Fields(cmdline) {
		value, found := strings.CutPrefix(word, "console=")
		name, _, _ := strings.Cut(value, ",") // console=ttyS0,115200n8
		if name == "tty" {
			name = "tty0"
		}
		if !found || name == "" || name == "null" || strings.ContainsAny(name, "/.") || slices.Contains(names, name) {
			continue
		}
		names = append(names, name)
	}
	if len(names) > 0 {
		return names
	}
	if names = strings.Fields(active); len(names) > 0 {
		return names
	}
	return []string{"console"}
}

// Console writes to several terminals. Write never blocks: a terminal that does not accept data, such as a serial
// port with flow control, loses lines, and a note says so. The other terminals are not affected.
//
// After Show, virtual terminals show the state of the agent instead of lines.
type Console struct {
	dir   string
	tail  *tail // the log lines that screens show
	mu    sync.Mutex
	wait  []string // names of terminals that are not open yet
	sinks []*sink
	board *status.Board   // that virtual terminals show; nil if they show lines
	ctx   context.Context // the end of the board
}

// OpenConsole opens the named terminals in the directory dir. Retry opens those that cannot be opened now.
func OpenConsole(dir string, names []string) *Console {
	c := &Console{dir: dir, wait: names, tail: newTail()}
	c.Retry()
	return c
}

// Retry opens the terminals that could not be opened earlier.
func (c *Console) Retry() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.wait = slices.DeleteFunc(c.wait, func(name string) bool {
		f, err := openTerminal(filepath.Join(c.dir, name))
		if err != nil {
			return false
		}
		s := newSink(f)
		s.virtual = isVirtualTerminal(name)
		c.sinks = append(c.sinks, s)
		c.startPainting(s)
		return true
	})
}

// openTerminal opens a terminal for writing. Without O_NONBLOCK, a serial port could wait for a carrier.
func openTerminal(path string) (*os.File, error) {
	return os.OpenFile(path, os.O_WRONLY|unix.O_NOCTTY|unix.O_NONBLOCK, 0)
}

// Write queues p for all terminals.
func (c *Console) Write(p []byte) (int, error) {
	c.tail.add(p)
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, s := range c.sinks {
		s.put(p)
	}
	return len(p), nil
}

// Flush waits until everything is written, at most for limit.
func (c *Console) Flush(limit time.Duration) {
	timer := time.NewTimer(limit)
	defer timer.Stop()
	c.mu.Lock()
	sinks := slices.Clone(c.sinks)
	c.mu.Unlock()
	for _, s := range sinks {
		select {
		case <-s.idle():
		case <-timer.C:
			return
		}
	}
}

// Paths returns the paths of the open terminals, in the order of the kernel parameters.
func (c *Console) Paths() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	var paths []string
	for _, s := range c.sinks {
		paths = append(paths, s.path)
	}
	return paths
}

// sink is a terminal and its queue.
type sink struct {
	path    string
	virtual bool     // a monitor, not a serial line
	file    *os.File // only run uses it

	mu      sync.Mutex
	cond    *sync.Cond
	buf     []byte
	busy    bool
	lost    int64
	dead    bool
	painted bool // it shows the screen, not lines
	stale   bool // the terminal may show something else than the last screen
}

func newSink(f *os.File) *sink {
	s := &sink{path: f.Name(), file: f}
	s.cond = sync.NewCond(&s.mu)
	goroutine.Go(func() error {
		s.run()
		return nil
	}, nil)
	return s
}

func (s *sink) put(p []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.dead || s.painted {
		return
	}
	if len(s.buf)+len(p) > consoleQueue {
		s.lost += int64(len(p))
		return
	}
	if s.lost > 0 {
		s.buf = fmt.Appendf(s.buf, "[%d bytes did not fit through this console]\n", s.lost)
		s.lost = 0
	}
	s.buf = append(s.buf, p...)
	s.cond.Broadcast()
}

// setPainted records whether the terminal shows the screen, and reports whether that is a change.
func (s *sink) setPainted(painted bool) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	before := s.painted
	s.painted, s.stale = painted, true
	return before != painted
}

// show writes the screen. It reports false if the terminal does not show the screen anymore.
func (s *sink) show(picture []byte) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.dead || !s.painted {
		return false
	}
	s.buf = append(s.buf, picture...)
	s.cond.Broadcast()
	return true
}

// markStale causes a full redraw, because something else may have been written over the screen.
func (s *sink) markStale() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stale = true
}

// takeStale reports whether the screen is stale, and resets that. The caller must redraw it.
func (s *sink) takeStale() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	stale := s.stale
	s.stale = false
	return stale
}

// run writes until the terminal is removed.
func (s *sink) run() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for !s.dead {
		for len(s.buf) == 0 {
			s.cond.Wait()
		}
		p := s.buf
		s.buf, s.busy = nil, true
		s.mu.Unlock()
		err := goroutine.Catch(func() error { return s.write(p) })
		s.mu.Lock()
		s.busy, s.dead = false, err != nil
		s.cond.Broadcast()
	}
}

// write writes p, and reopens the terminal if the descriptor was hung up. The kernel does that when a shell ends whose
// controlling terminal it is.
func (s *sink) write(p []byte) error {
	n, err := s.file.Write(p)
	if err == nil {
		return nil
	}
	again, err := openTerminal(s.path)
	if err != nil {
		return err
	}
	_ = s.file.Close() // what could be written was
	s.file = again
	s.markStale()
	_, err = s.file.Write(p[n:])
	return err
}

// idle returns a channel that is closed when the queue is empty.
func (s *sink) idle() <-chan struct{} {
	done := make(chan struct{})
	goroutine.Go(func() error {
		s.mu.Lock()
		defer s.mu.Unlock()
		for !s.dead && (len(s.buf) > 0 || s.busy) {
			s.cond.Wait()
		}
		return nil
	}, func(error) { close(done) })
	return done
}
