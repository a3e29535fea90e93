// Package generic implements the built-in hardware manager. It supports every machine that Linux runs on and uses only
// the kernel's interfaces. As the manager of that name in ironic-python-agent, it has steps that erase disks, remove
// boot entries and write images. It has no steps for RAID, burn-in, file injection and containers.
package generic

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"ironroot/agent/config"
	"ironroot/agent/hardware"
	"ironroot/agent/imaging"
	"ironroot/agent/node"
	"ironroot/agent/status"
	"ironroot/internal/goroutine"
	"ironroot/storage/block"
	"ironroot/storage/erase"
	"ironroot/storage/hint"
)

// Options are the options of a Manager.
type Options struct {
	Config *config.Live
	System block.System
	// Disks lists the disks as all managers together see them; nil means the system's own list.
	Disks  func(ctx context.Context) ([]block.Device, error)
	Imager *imaging.Imager
	Log    *slog.Logger
	// Board shows people how far the erasing is; may be nil.
	Board *status.Board
	// Join makes one disk of several paths to it, and reports whether the list of disks is another one now; nil leaves
	// them as they are.
	Join func(ctx context.Context, disks []block.Device) (changed bool)
	// Settled is closed when the drivers of all devices present at boot are loaded; nil means that they are.
	Settled <-chan struct{}
}

// Manager is the generic hardware manager.
type Manager struct {
	o Options

	limits     func(block.Device) erase.Limits // of what the kernel does with one disk
	controller func(ctx context.Context, path string) (erase.Controller, error)
	sync       func() // unix.Sync
	flush      func(ctx context.Context, path string) error

	mu     sync.Mutex
	gaveUp map[string]bool // node uuids ("" without a node) whose disks were waited for in vain
	driven time.Time       // when the drivers were there
}

// New returns the manager.
func New(o Options) *Manager {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Disks == nil {
		o.Disks = o.System.Disks
	}
	limits := func(block.Device) erase.Limits { return erase.DefaultLimits }
	return &Manager{
		o: o, limits: limits, controller: erase.ReadController, sync: unix.Sync, flush: block.Flush,
		gaveUp: map[string]bool{},
	}
}

// Class implements [hardware.Manager].
func (m *Manager) Class() string { return "GenericHardwareManager" }

// Name implements [hardware.Manager].
func (m *Manager) Name() string { return "generic_hardware_manager" }

// Version implements [hardware.Manager]. It must change with the list of steps: TestVersionNamesSteps fails if a step
// is added or removed, or if its priority, its interface, whether it can be aborted, or the names of its arguments and
// which of them are required change. No test notices that a step does something else: the version must be raised by
// hand then. It differs from ironic-python-agent's, whose manager of this name offers other steps: a conductor that
// listed steps there lists them again.
func (m *Manager) Version() string { return "1.2-ironroot.1" }

// Support implements [hardware.Manager].
func (m *Manager) Support(context.Context) hardware.Level { return hardware.Generic }

// Disks implements [hardware.DiskLister]. It joins multiple paths to a disk first, so that no disk is listed twice.
func (m *Manager) Disks(ctx context.Context) ([]block.Device, error) {
	disks, err := m.o.System.Disks(ctx)
	if (err == nil || errors.Is(err, block.ErrUnreadable)) && m.o.Join != nil && m.o.Join(ctx, disks) {
		return m.o.System.Disks(ctx)
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
			m.driven = time.Now()
			m.mu.Unlock()
		}
		return nil
	}, nil)
	return nil
}

// WaitDisks implements [hardware.DiskWaiter]: it waits until the node's root disk can be chosen, at most
// disk_wait_attempts times disk_wait_delay. A machine may well have no such disk; then it is waited for once a node,
// and without root device hints the time since the machine's drivers were loaded counts: any disk that was there at
// boot has shown itself by then. Before that it waits for the drivers, because the root disk need not be the last one
// to appear.
func (m *Manager) WaitDisks(ctx context.Context, n *node.Node) error {
	c := m.o.Config.Get()
	limit := time.Duration(c.DiskWaitAttempts) * c.DiskWaitDelay
	if limit <= 0 || m.inVain(n, false) {
		return nil
	}
	started := time.Now()
	waiting, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	if !m.settled(waiting) {
		if err := ctx.Err(); err != nil {
			return err
		}
		m.inVain(n, true)
		m.o.Log.Warn("drivers are still being loaded, going on with the disks there are", "waited", limit)
		return nil
	}
	if n == nil || len(n.RootDeviceHints()) == 0 {
		waiting, cancel = context.WithDeadline(waiting, m.sinceDriven(started).Add(limit))
		defer cancel()
	}
	missing := func(disks []block.Device) error {
		if _, err := imaging.ChooseRootDisk(n, disks); errors.Is(err, hint.ErrNoDisk) {
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
		_, err = m.o.System.WaitDisks(waiting, func(disks []block.Device) bool {
			// Where paths were joined the kernel tells of it, and there is a list anew.
			joined := m.o.Join != nil && m.o.Join(waiting, disks)
			return !joined && missing(disks) == nil
		})
	}
	switch took := time.Since(started).Round(time.Millisecond); {
	case err == nil:
		m.o.Log.Info("root disk found", "duration", took)
	case ctx.Err() != nil:
		return ctx.Err()
	case waiting.Err() != nil:
		m.inVain(n, true)
		m.o.Log.Warn("no root disk appeared in time", "took", took, "limit", limit)
	default:
		m.o.Log.Warn("cannot wait for disks", "err", err)
	}
	return nil
}

// sinceDriven returns when the drivers were there, or otherwise where that is not known.
func (m *Manager) sinceDriven(otherwise time.Time) time.Time {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.driven.IsZero() {
		return otherwise
	}
	return m.driven
}

// settled waits for the drivers of the devices present at boot. It returns false if ctx ended first.
func (m *Manager) settled(ctx context.Context) bool {
	if m.o.Settled == nil {
		return true
	}
	select {
	case <-m.o.Settled:
		return true
	case <-ctx.Done():
		return false
	}
}

// inVain reports whether the node's disks were waited for in vain, and with set says so.
func (m *Manager) inVain(n *node.Node, set bool) bool {
	uuid := ""
	if n != nil {
		uuid = n.UUID()
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if set {
		m.gaveUp[uuid] = true
	}
	return m.gaveUp[uuid]
}

// Sync implements [hardware.Syncer]. It writes out all dirty pages, drops the caches and flushes every disk. It
// returns an error if a write or flush failed. Caches that are not dropped and disks that cannot be flushed lose no
// data and are only logged. While a disk hangs, the kernel does not return: if ctx ends first, the error names the
// operation that did not end and wraps [erase.ErrStuck].
func (m *Manager) Sync(ctx context.Context) error {
	err := interruptible(ctx, "sync", func() error {
		m.sync()
		return nil
	})
	if err != nil {
		return err
	}
	err = interruptible(ctx, "drop caches", func() error {
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
	err = interruptible(ctx, "list disks", func() error {
		disks, unlisted = m.o.Disks(ctx)
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
	err := interruptible(ctx, "flush "+d.Path, func() error { return m.flush(ctx, d.Path) })
	if errors.Is(err, unix.ENOTTY) || errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.EINVAL) {
		m.o.Log.Warn("disk not flushed", "device", d.Path, "err", err)
		return nil
	}
	return err
}

// syncLimits are the limits of one operation of Sync. They allow no time after its context has ended.
var syncLimits = erase.Limits{Silence: erase.DefaultLimits.Silence}

// interruptible calls a function that can block in the kernel, and returns its error. If ctx ends first, the error
// names the operation and wraps [erase.ErrStuck], and the call continues in the background.
func interruptible(ctx context.Context, operation string, call func() error) error {
	if ctx.Err() != nil {
		return fmt.Errorf("%s: %w", operation, context.Cause(ctx))
	}
	_, err := erase.Bounded(ctx, syncLimits, func(context.Context) (any, error) { return nil, call() })
	if errors.Is(err, erase.ErrStuck) {
		return fmt.Errorf("%s: %w", operation, err)
	}
	return err
}
