package kmod

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"sort"
	"strconv"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"ironroot/internal/goroutine"
)

// Coldplug loads what the machine's devices ask for: those that are there when it starts, and those that appear later,
// because a module brought a bus up or because somebody plugged them in.
type Coldplug struct {
	loader *Loader
	sys    string
	log    *slog.Logger

	settled chan struct{}
	once    sync.Once

	mu      sync.Mutex
	asked   map[string]bool // modaliases seen
	pending int             // loads under way
	walked  bool            // the devices that were there have been looked at
	seen    uint64          // number of the last uevent read
}

// NewColdplug returns a Coldplug for the devices below sys, which is "/sys" on a machine.
func NewColdplug(loader *Loader, sys string, log *slog.Logger) *Coldplug {
	return &Coldplug{loader: loader, sys: sys, log: log, settled: make(chan struct{}), asked: map[string]bool{}}
}

// Settled returns a channel that is closed when no load is in progress and every event that the kernel has sent so
// far was handled. The kernel announces devices that a driver finds later, such as a disk behind a slow adapter, by
// their own events.
func (c *Coldplug) Settled() <-chan struct{} { return c.settled }

// Run loads modules until ctx ends.
func (c *Coldplug) Run(ctx context.Context) error {
	defer c.once.Do(func() { close(c.settled) }) // nobody may wait for what has ended
	events, err := listen(ctx)
	if err != nil {
		return fmt.Errorf("kernel events: %w", err)
	}
	c.seen = c.lastEvent()
	// Network cards sit on one of few buses, which are quickly listed; the whole tree takes a while.
	c.ask(ctx, c.modaliases(filepath.Join(c.sys, "bus", "pci", "devices"), filepath.Join(c.sys, "bus", "vmbus", "devices")))
	c.walk(ctx)
	for {
		message, err := events.next()
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case errors.Is(err, unix.ENOBUFS):
			c.log.Warn("kernel events were lost, looking at all devices again")
			c.walk(ctx)
		case err != nil:
			return fmt.Errorf("kernel events: %w", err)
		default:
			e := parseEvent(message)
			if e.action == "add" && e.modalias != "" {
				c.ask(ctx, []string{e.modalias})
			}
			c.mu.Lock()
			c.seen = max(c.seen, e.number)
			c.mu.Unlock()
		}
		c.check()
	}
}

// walk loads the modules of all devices.
func (c *Coldplug) walk(ctx context.Context) {
	var aliases []string
	err := filepath.WalkDir(filepath.Join(c.sys, "devices"), func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return nil //nolint:nilerr // a device may vanish under our eyes
		}
		if d.Name() != "modalias" {
			return nil
		}
		if text, err := os.ReadFile(path); err == nil {
			aliases = append(aliases, strings.TrimSpace(string(text)))
		}
		return nil
	})
	if err != nil {
		c.log.Warn("devices not listed", "err", err)
	}
	c.ask(ctx, aliases)
	c.mu.Lock()
	c.walked = true
	c.mu.Unlock()
	c.check()
}

// modaliases returns the modaliases of the devices in folders of links, which need not exist.
func (c *Coldplug) modaliases(folders ...string) []string {
	var aliases []string
	for _, folder := range folders {
		entries, err := os.ReadDir(folder)
		if err != nil {
			continue // the machine lacks this bus
		}
		for _, e := range entries {
			if text, err := os.ReadFile(filepath.Join(folder, e.Name(), "modalias")); err == nil {
				aliases = append(aliases, strings.TrimSpace(string(text)))
			}
		}
	}
	return aliases
}

// ask loads the modules of aliases that were not requested before. Modules of network interfaces are loaded first. The
// others follow when those have been loaded, in this call and in earlier ones, but at most networkLead later.
//
// A storage adapter must not precede a network adapter: when the kernel has loaded a module, it waits until all drivers
// have finished their asynchronous search for devices (do_init_module calls async_synchronize_full), so that disks
// without an answer would delay the network.
func (c *Coldplug) ask(ctx context.Context, aliases []string) {
	var first, rest []*Module
	for _, m := range c.modules(aliases) {
		if m.Network() {
			first = append(first, m)
		} else {
			rest = append(rest, m)
		}
	}
	c.mu.Lock()
	c.pending += len(first) + len(rest)
	c.mu.Unlock()
	for _, m := range first {
		c.load(ctx, m)
	}
	if len(rest) == 0 {
		return
	}
	goroutine.Go(func() error {
		for _, m := range first {
			<-c.loader.Begun(m)
		}
		for _, m := range rest {
			c.load(ctx, m)
		}
		return nil
	}, nil)
}

// modules returns the modules of new aliases, each once, in a stable order.
func (c *Coldplug) modules(aliases []string) []*Module {
	var found []*Module
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, alias := range aliases {
		if alias == "" || c.asked[alias] {
			continue
		}
		c.asked[alias] = true
		found = append(found, c.loader.index.Match(alias)...)
	}
	sort.Slice(found, func(i, j int) bool { return found[i].Name < found[j].Name })
	return slices.Compact(found)
}

// load loads a module in a goroutine.
func (c *Coldplug) load(ctx context.Context, m *Module) {
	goroutine.Go(func() error { return c.loader.LoadModule(ctx, m) }, func(err error) {
		if err != nil && !errors.Is(err, unix.ENODEV) {
			// A driver returns "no such device" if the machine has no device of its kind.
			c.log.Warn("module not loaded", "module", m.Name, "err", err)
		}
		c.mu.Lock()
		c.pending--
		c.mu.Unlock()
		c.check()
	})
}

// check closes settled when no load and no event is pending.
func (c *Coldplug) check() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.walked && c.pending == 0 && c.seen >= c.lastEvent() {
		c.once.Do(func() { close(c.settled) })
	}
}

// lastEvent returns the number of the last uevent that the kernel sent, and 0 if it cannot be read.
func (c *Coldplug) lastEvent() uint64 {
	text, err := os.ReadFile(filepath.Join(c.sys, "kernel", "uevent_seqnum"))
	if err != nil {
		return 0
	}
	number, err := strconv.ParseUint(strings.TrimSpace(string(text)), 10, 64)
	if err != nil {
		return 0
	}
	return number
}

// event is what matters of a uevent.
type event struct {
	action, modalias string
	number           uint64
}

// parseEvent reads a uevent: a header, then KEY=VALUE strings, each ended by a zero byte.
func parseEvent(message []byte) event {
	var e event
	for _, field := range bytes.Split(message, []byte{0}) {
		key, value, found := strings.Cut(string(field), "=")
		if !found {
			continue
		}
		switch key {
		case "ACTION":
			e.action = value
		case "MODALIAS":
			e.modalias = value
		case "SUBSYSTEM":
			// No device asks for IP over InfiniBand; it is of use where there is a port.
			if value == "infiniband" && e.modalias == "" {
				e.modalias = "ib_ipoib"
			}
		case "SEQNUM":
			e.number, _ = strconv.ParseUint(value, 10, 64) // 0 where it is broken: the next event has one
		}
	}
	return e
}

// stream is a socket on which the kernel sends uevents.
type stream struct {
	file   *os.File
	buffer []byte
}

const (
	ueventGroup  = 1       // the kernel's own multicast group
	ueventBuffer = 8 << 20 // bytes the kernel may queue for us
	ueventSize   = 16 << 10
)

// listen opens the socket and closes it when ctx ends.
func listen(ctx context.Context) (*stream, error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, unix.NETLINK_KOBJECT_UEVENT)
	if err != nil {
		return nil, err
	}
	// Fails without CAP_NET_ADMIN, as in tests; the default buffer then holds fewer events.
	_ = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, ueventBuffer)
	if err := unix.Bind(fd, &unix.SockaddrNetlink{Family: unix.AF_NETLINK, Groups: ueventGroup}); err != nil {
		return nil, errors.Join(err, unix.Close(fd))
	}
	s := &stream{file: os.NewFile(uintptr(fd), "uevents"), buffer: make([]byte, ueventSize)}
	goroutine.AfterContext(ctx, func() { _ = s.file.Close() })
	return s, nil
}

// next returns the next message. It is valid until the next call.
func (s *stream) next() ([]byte, error) {
	n, err := s.file.Read(s.buffer)
	if err != nil {
		return nil, err
	}
	return s.buffer[:n], nil
}
