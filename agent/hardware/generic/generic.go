package generic

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"ironroot/agent/cleaning"
	"ironroot/agent/config"
	"ironroot/agent/hardware"
	"ironroot/agent/imaging"
	"ironroot/agent/journal"
	"ironroot/agent/node"
	"ironroot/agent/softraid"
	"ironroot/agent/status"
	"ironroot/internal/goroutine"
	"ironroot/internal/pause"
	"ironroot/internal/timelimit"
	"ironroot/storage/block"
	"ironroot/storage/hint"
	"ironroot/storage/sysfs"
)

// Options are the options of a Manager.
type Options struct {
	Config *config.Live
	System sysfs.Root
	// Disks lists the disks that all managers together report; nil means [block.Disks].
	Disks  block.Lister
	Imager *imaging.Imager
	Log    *slog.Logger
	// Journal keeps the evidence of erases for the log archive; nil keeps none.
	Journal *journal.Journal
	Version string // of the program, in the evidence
	// Dialer connects to erase_evidence_url; nil is a net.Dialer.
	Dialer cleaning.Dialer
	// Board shows the plan and the progress of work on devices; nil shows nothing.
	Board status.Trackers
	Join  Joiner // nil joins none
	// Settled is closed when the drivers of all devices present at boot are loaded; nil means that they are.
	Settled <-chan struct{}
}

// Joiner joins several paths to one disk into a multipath map.
type Joiner interface {
	// Join reports whether the list of disks has changed.
	Join(ctx context.Context, disks []block.Device) (changed bool)
}

// track shows the progress of work on a device.
func (m *Manager) track(what, device string) status.Tracker {
	return m.o.Board.Track(m.o.Log, what, device)
}

// Manager is the generic hardware manager.
type Manager struct {
	o Options

	kernel softraid.Kernel // nil means this machine's

	flusher flusher

	mu        sync.Mutex
	gaveUp    map[string]bool // UUIDs of nodes ("" without a node) whose root disk did not appear in time
	settledAt time.Time       // when the drivers were loaded; zero if unknown
}

// New returns the manager.
func New(o Options) *Manager {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Board == nil {
		o.Board = (*status.Board)(nil)
	}
	if o.Disks == nil {
		o.Disks = block.MachineDisks{System: o.System}
	}
	return &Manager{o: o, flusher: kernel{}, gaveUp: map[string]bool{}}
}

// flusher writes out what the kernel has buffered.
type flusher interface {
	Sync() // all file systems
	Flush(ctx context.Context, path string) error
}

// kernel implements flusher.
type kernel struct{}

func (kernel) Sync() { unix.Sync() }

func (kernel) Flush(ctx context.Context, path string) error { return block.Flush(ctx, path) }

// Class implements [hardware.Manager].
func (m *Manager) Class() string { return "GenericHardwareManager" }

// Name implements [hardware.Manager].
func (m *Manager) Name() string { return "generic_hardware_manager" }

// Support implements [hardware.Manager].
func (m *Manager) Support(context.Context) hardware.Level { return hardware.Generic }

// Disks implements [hardware.DiskLister]. It joins multiple paths to a disk first, so that no disk is listed twice.
func (m *Manager) Disks(ctx context.Context) ([]block.Device, error) {
	disks, err := block.Disks(ctx, m.o.System)
	if (err == nil || errors.Is(err, block.ErrUnreadable)) && m.o.Join != nil && m.o.Join.Join(ctx, disks) {
		return block.Disks(ctx, m.o.System)
	}
	return disks, err
}

// FilterDevice implements [hardware.DeviceFilter]: the generic manager keeps every device as it is.
func (m *Manager) FilterDevice(_ context.Context, d block.Device) (block.Device, bool, error) {
	return d, true, nil
}

// Initialize implements [hardware.Initializer]. It records when the drivers are loaded: the time limit of WaitDisks
// starts then.
func (m *Manager) Initialize(ctx context.Context) error {
	goroutine.Go(func() error {
		if m.settled(ctx) {
			m.mu.Lock()
			m.settledAt = time.Now()
			m.mu.Unlock()
		}
		return nil
	}, nil)
	return nil
}

// driverTimeout limits the wait for drivers, if disk_wait_attempts and disk_wait_delay do not permit more. It is their
// product by default, and shorter than the time that Ironic waits for the answer to a command.
const driverTimeout = 30 * time.Second

// WaitDisks implements [hardware.DiskWaiter]. It waits until the drivers are loaded, because the root disk need not be
// the last one to appear, and then until the node's root disk can be chosen, at most disk_wait_attempts times
// disk_wait_delay. A timeout is not an error, because a machine may have no such disk, and WaitDisks does not wait for
// the same node again.
//
// Without root device hints the time since the drivers were loaded counts, because any disk present at boot has
// appeared by then.
func (m *Manager) WaitDisks(ctx context.Context, n *node.Node) error {
	if m.hasGivenUp(n) {
		return nil
	}
	c := m.o.Config.Get()
	limit := time.Duration(c.DiskWaitAttempts) * c.DiskWaitDelay
	longest := max(limit, driverTimeout)
	waiting, cancel := context.WithTimeout(ctx, longest)
	defer cancel()
	if !m.settled(waiting) {
		if err := ctx.Err(); err != nil {
			return err
		}
		m.giveUp(n)
		m.o.Log.Warn("drivers are still being loaded, root disk is chosen from the present disks", "waited", longest)
		return nil
	}
	if limit <= 0 {
		return nil
	}
	started := time.Now()
	since := started
	if n == nil || !n.HasRootDeviceHints() {
		since = m.settledSince(started)
	}
	waiting, cancel = context.WithDeadline(waiting, since.Add(limit))
	defer cancel()
	rules, err := softraid.RulesOf(n)
	hasArrays := err != nil || rules.HasCreated()
	missing := func(disks []block.Device) error {
		// Arrays of raid_config are assembled later, see AssembleVolumes. Until then, their members are waited for.
		if hasArrays && !slices.ContainsFunc(disks, block.Device.IsArray) {
			return m.raidArrays(n).Missing(waiting, rules, disks)
		}
		if _, err := imaging.ChooseRootDisk(c, n, disks); errors.Is(err, hint.ErrNoDisk) {
			return err
		}
		return nil // invalid hints cannot match later either
	}
	disks, err := m.Disks(ctx)
	if err == nil {
		lack := missing(disks)
		if lack == nil {
			return nil
		}
		m.o.Log.Info("waiting for the root disk", "limit", limit, "err", lack)
		_, err = block.WaitDisks(waiting, m.o.System, func(disks []block.Device) bool {
			// If Join created a map, the kernel reports it and the disks are listed again.
			joined := m.o.Join != nil && m.o.Join.Join(waiting, disks)
			return !joined && missing(disks) == nil
		})
	}
	switch took := time.Since(started).Round(time.Millisecond); {
	case err == nil:
		m.o.Log.Info("root disk found", "duration", took)
	case ctx.Err() != nil:
		return ctx.Err()
	case waiting.Err() != nil:
		m.giveUp(n)
		m.o.Log.Warn("no root disk appeared in time", "duration", took, "limit", limit)
	default:
		m.o.Log.Warn("cannot wait for disks", "err", err)
	}
	return nil
}

// settledSince returns when the drivers were loaded, or fallback if that is unknown.
func (m *Manager) settledSince(fallback time.Time) time.Time {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.settledAt.IsZero() {
		return fallback
	}
	return m.settledAt
}

// settled waits for the drivers of the devices present at boot. It returns false if ctx ended first.
func (m *Manager) settled(ctx context.Context) bool { return pause.Until(ctx, m.o.Settled) == nil }

// hasGivenUp reports whether an earlier wait for the node's root disk timed out.
func (m *Manager) hasGivenUp(n *node.Node) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.gaveUp[n.UUID()]
}

// giveUp records that the wait for the node's root disk timed out.
func (m *Manager) giveUp(n *node.Node) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.gaveUp[n.UUID()] = true
}

// Sync implements [hardware.Syncer]. It writes out all dirty pages, drops the caches and flushes every disk. It
// returns an error if a write or flush failed. Caches that are not dropped and disks that cannot be flushed lose no
// data and are only logged. While a disk hangs, the kernel does not return: if ctx ends first, the error names the
// operation that did not end and wraps [timelimit.ErrStuck].
func (m *Manager) Sync(ctx context.Context) error {
	err := limitSync(ctx, "sync", func() error {
		m.flusher.Sync()
		return nil
	})
	if err != nil {
		return err
	}
	err = limitSync(ctx, "drop caches", func() error {
		if err := os.WriteFile(m.o.System.Proc("sys/vm/drop_caches"), []byte("3"), 0o200); err != nil {
			m.o.Log.Warn("caches not dropped", "err", err)
		}
		return nil
	})
	if err != nil {
		return err
	}
	var disks []block.Device
	var unlisted error
	err = limitSync(ctx, "list disks", func() error {
		disks, unlisted = m.o.Disks.Disks(ctx)
		return nil
	})
	if err != nil {
		return err
	}
	errs := make([]error, len(disks))
	flushes := make([]func(), len(disks))
	for i, d := range disks {
		flushes[i] = func() { errs[i] = m.flushDisk(ctx, d) }
	}
	goroutine.Do(flushes...)
	if unlisted != nil {
		errs = append(errs, fmt.Errorf("disks not flushed: %w", unlisted))
	}
	return errors.Join(errs...)
}

// flushDisk flushes one disk. If the disk does not support it, it logs a warning.
func (m *Manager) flushDisk(ctx context.Context, d block.Device) error {
	err := limitSync(ctx, "flush "+d.Path, func() error { return m.flusher.Flush(ctx, d.Path) })
	if errors.Is(err, unix.ENOTTY) || errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.EINVAL) {
		m.o.Log.Warn("disk not flushed", "device", d.Path, "err", err)
		return nil
	}
	return err
}

// syncLimits are the limits of one operation of Sync. They allow no time after its context has ended.
var syncLimits = timelimit.Limits{NoProgress: timelimit.Disk.NoProgress}

// limitSync calls a function of Sync that can block in the kernel, and returns its error. If ctx ends first, the error
// names the operation and wraps [timelimit.ErrStuck], and the call continues in the background.
func limitSync(ctx context.Context, operation string, call func() error) error {
	if ctx.Err() != nil {
		return fmt.Errorf("%s: %w", operation, context.Cause(ctx))
	}
	err := timelimit.Run(ctx, syncLimits, func(context.Context) error { return call() })
	if errors.Is(err, timelimit.ErrStuck) {
		return fmt.Errorf("%s: %w", operation, err)
	}
	return err
}
