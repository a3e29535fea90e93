package kmod

import (
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
	"time"

	"golang.org/x/sys/unix"

	"ironroot/internal/goroutine"
	"ironroot/internal/uevent"
)

// eventQueue is the number of bytes of uevents that the kernel can queue.
const eventQueue = 8 << 20

const (
	// networkLead is the time for which other modules wait for the next sign of progress: a module of a network
	// interface is loaded, or Postpone is called. A driver that needs longer is waiting for its device, for example
	// while that loads firmware, and leaves the processors to others. So does an agent that waits for a carrier or a
	// DHCP server.
	networkLead = time.Second
	// maxNetworkLead limits this wait from the first module of a network interface on.
	maxNetworkLead = 3 * time.Second
)

// Coldplug loads the modules of the machine's devices: those that are present when it starts, and those that appear
// later because a module registered a bus or because they were plugged in.
type Coldplug struct {
	loader *Loader
	sys    string
	log    *slog.Logger

	settled chan struct{}
	once    sync.Once

	mu      sync.Mutex
	asked   map[string]bool // modaliases seen
	pending int             // loads in progress
	walked  bool            // the devices that were present have been examined
	seen    uint64          // number of the last uevent read
	lead    lead
}

// lead is the precedence of the network over other modules.
type lead struct {
	begun    time.Time     // when the first module of a network interface was requested; zero = not yet
	advanced time.Time     // when there was progress last
	loading  int           // modules of network interfaces that are being loaded
	used     bool          // Postpone was called
	ended    bool          // Resume was called
	changed  chan struct{} // closed and replaced at every change
}

// NewColdplug returns a Coldplug for the devices below sys, which is "/sys" on a machine.
func NewColdplug(loader *Loader, sys string, log *slog.Logger) *Coldplug {
	return &Coldplug{
		loader: loader, sys: sys, log: log, settled: make(chan struct{}), asked: map[string]bool{},
		lead: lead{changed: make(chan struct{})},
	}
}

// Postpone makes modules that do not belong to network interfaces wait until Resume is called, but not longer than one
// second after the last call of Postpone. They do not wait on a machine without network interfaces, and never longer
// than three seconds. Callers call it at each step of their work for which these modules should leave the processors
// free.
func (c *Coldplug) Postpone() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.lead.used = true
	c.lead.advance()
}

// Resume ends the effect of Postpone, also of later calls.
func (c *Coldplug) Resume() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.lead.ended = true
	c.lead.notify()
}

// advance records progress.
func (l *lead) advance() {
	l.advanced = time.Now()
	l.notify()
}

func (l *lead) notify() {
	close(l.changed)
	l.changed = make(chan struct{})
}

// left returns how long other modules have to wait if nothing changes. It is negative as long as begun is zero.
func (l *lead) left() time.Duration {
	if l.loading == 0 && (!l.used || l.ended) {
		return 0
	}
	return min(time.Until(l.advanced.Add(networkLead)), time.Until(l.begun.Add(maxNetworkLead)))
}

// Settled returns a channel that is closed when no load is in progress and every event that the kernel has sent so
// far was handled. The kernel announces devices that a driver finds later, such as a disk behind a slow adapter, by
// their own events.
func (c *Coldplug) Settled() <-chan struct{} { return c.settled }

// Run loads modules until ctx ends.
func (c *Coldplug) Run(ctx context.Context) error {
	defer c.once.Do(func() { close(c.settled) }) // waiters must not wait for an ended Run
	events, err := uevent.Listen(eventQueue)
	if err != nil {
		return fmt.Errorf("kernel events: %w", err)
	}
	defer events.Close() //nolint:errcheck // only read
	c.seen = c.lastEvent()
	// Network adapters are on one of a few buses, which are listed quickly. The whole tree takes longer.
	c.ask(ctx, c.modaliases("pci", "virtio", "vmbus"))
	c.walk(ctx)
	for {
		e, err := events.Next(ctx)
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case errors.Is(err, uevent.ErrLost):
			c.log.Warn("kernel events lost, listing all devices again")
			c.walk(ctx)
		case err != nil:
			return fmt.Errorf("kernel events: %w", err)
		default:
			if alias := c.requested(e); alias != "" {
				c.ask(ctx, []string{alias})
			}
			c.mu.Lock()
			c.seen = max(c.seen, e.Number)
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

// modaliases returns the modaliases of the devices on buses. Missing buses are ignored.
func (c *Coldplug) modaliases(buses ...string) []string {
	var aliases []string
	for _, bus := range buses {
		dir := filepath.Join(c.sys, "bus", bus, "devices")
		entries, err := os.ReadDir(dir)
		if err != nil {
			continue // the machine lacks this bus
		}
		for _, e := range entries {
			if text, err := os.ReadFile(filepath.Join(dir, e.Name(), "modalias")); err == nil {
				aliases = append(aliases, strings.TrimSpace(string(text)))
			}
		}
	}
	return aliases
}

// ask loads the modules of aliases that were not requested before. Modules of network interfaces are loaded first. The
// others follow when those have been loaded, in this call and in earlier ones, and when Postpone no longer has an
// effect.
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
	if c.lead.loading += len(first); c.lead.begun.IsZero() && len(first) > 0 {
		c.lead.begun, c.lead.advanced = time.Now(), time.Now()
	}
	c.mu.Unlock()
	for _, m := range first {
		c.loadNetwork(ctx, m)
	}
	if len(rest) == 0 {
		return
	}
	goroutine.Go(func() error {
		c.awaitNetwork(ctx)
		for _, m := range rest {
			c.load(ctx, m)
		}
		return nil
	}, nil)
}

// awaitNetwork waits until modules that do not belong to network interfaces can be loaded, or until ctx ends.
func (c *Coldplug) awaitNetwork(ctx context.Context) {
	for {
		c.mu.Lock()
		left, changed := c.lead.left(), c.lead.changed
		c.mu.Unlock()
		if left <= 0 {
			return
		}
		select {
		case <-changed:
		case <-time.After(left):
		case <-ctx.Done():
			return
		}
	}
}

// loadNetwork loads a module of a network interface in a goroutine. Each of its dependencies is progress.
func (c *Coldplug) loadNetwork(ctx context.Context, m *Module) {
	goroutine.Go(func() error {
		for _, name := range m.Depends {
			if before := c.loader.index.Module(name); before != nil {
				_ = c.loader.insert(ctx, before, nil) // LoadModule returns the error
				c.networkLoaded(0)
			}
		}
		return c.loader.LoadModule(ctx, m)
	}, func(err error) {
		c.networkLoaded(1)
		c.done(m, err)
	})
}

// networkLoaded records that a module was loaded, with which the loading of n network interfaces has ended.
func (c *Coldplug) networkLoaded(n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.lead.loading -= n
	c.lead.advance()
}

// modules returns the modules of new aliases without duplicates, in a stable order.
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
	goroutine.Go(func() error { return c.loader.LoadModule(ctx, m) }, func(err error) { c.done(m, err) })
}

// done records that the load of a module has ended.
func (c *Coldplug) done(m *Module, err error) {
	if err != nil && !errors.Is(err, unix.ENODEV) {
		// A driver returns "no such device" if the machine has no device of its kind.
		c.log.Warn("module not loaded", "module", m.Name, "err", err)
	}
	c.mu.Lock()
	c.pending--
	c.mu.Unlock()
	c.check()
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

// requested returns the alias by which a device that was added requests a module, "" if it requests none. It is read
// from sysfs, which only the kernel writes.
func (c *Coldplug) requested(e uevent.Event) string {
	path := strings.TrimPrefix(e.Path, "/")
	if e.Action != "add" || !filepath.IsLocal(path) {
		return ""
	}
	device := filepath.Join(c.sys, path)
	text, err := os.ReadFile(filepath.Join(device, "uevent"))
	if err != nil {
		return "" // it was removed since
	}
	for line := range strings.Lines(string(text)) {
		if alias, found := strings.CutPrefix(strings.TrimSpace(line), "MODALIAS="); found {
			return alias
		}
	}
	if subsystem, err := os.Readlink(filepath.Join(device, "subsystem")); err == nil &&
		filepath.Base(subsystem) == "infiniband" {
		return ipoib // no device requests IP over InfiniBand; a port needs it
	}
	return ""
}
