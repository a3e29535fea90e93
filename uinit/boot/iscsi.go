//go:build linux

package boot

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"ironroot/internal/goroutine"
	"ironroot/internal/pause"
	"ironroot/netboot"
	"ironroot/storage/ibft"
	"ironroot/storage/iscsi"
	"ironroot/storage/sysfs"
)

const (
	// attachLimit is the time for which the machine's list of disks waits for the disks of the iBFT. Connecting
	// continues after it.
	attachLimit = time.Minute
	// attachPause is the pause between two attempts to connect to a target, unless a link changes before.
	attachPause = 5 * time.Second
)

// sanDisks are the disks of the iSCSI targets from which the firmware has booted (iBFT).
type sanDisks struct {
	m       *Machine
	network *netboot.Network
	// settled is closed when the drivers are loaded, and the disks are there or cannot be waited for any longer.
	settled chan struct{}

	mu       sync.Mutex
	sessions []*iscsi.Session
	closed   bool
}

// attachSAN connects to the targets of the iBFT, if the image allows it. static reports whether other static network
// data is in use.
func attachSAN(ctx context.Context, m *Machine, network *netboot.Network, static func() bool) *sanDisks {
	d := &sanDisks{m: m, network: network, settled: make(chan struct{})}
	goroutine.Go(func() error { return d.attach(ctx, static) }, func(err error) {
		if err != nil && ctx.Err() == nil {
			m.Log.Error("disks of the iBFT not attached", "err", err)
		}
		_ = pause.Until(ctx, m.Settled) // if ctx ends, nobody waits any more
		close(d.settled)
	})
	return d
}

// awaitNetwork waits until the first link is in use, so that the search for the table delays no network card.
func (d *sanDisks) awaitNetwork(ctx context.Context) {
	for ctx.Err() == nil && !pause.Closed(d.m.Settled) {
		changed := d.network.Changed()
		for _, l := range d.network.Links() {
			if l.HasAddress() || l.History.DHCP.Sent > 0 {
				return
			}
		}
		select {
		case <-changed:
		case <-d.m.Settled:
		case <-ctx.Done():
		}
	}
}

// attach reads the table and connects to its targets concurrently.
func (d *sanDisks) attach(ctx context.Context, static func() bool) error {
	if !d.m.Params.AllowsNetworkDisks(d.m.Signed) {
		d.m.Log.Info("iBFT ignored", "reason", "signed image without ironroot.network_disks=1")
		return nil
	}
	d.awaitNetwork(ctx)
	if err := d.m.Probe(ctx, "iscsi_ibft"); err != nil {
		d.m.Log.Debug("iBFT not read", "err", err) // the table is invalid, or the image lacks the module
		return nil
	}
	table, err := ibft.Read(sysfs.Root{})
	if err != nil || table == nil {
		return err
	}
	for _, t := range table.Targets {
		d.m.Journal.Redact(t.CHAP.Secret)
		d.m.Journal.Redact(t.CHAP.TargetSecret)
	}
	for _, problem := range table.Problems {
		d.m.Log.Error("part of the iBFT ignored", "err", problem)
	}
	d.m.Log.Info("iBFT found", "targets", len(table.Targets), "network_cards", len(table.NICs))
	for _, t := range table.Targets {
		d.m.Log.Info("iSCSI target of the iBFT", "target", t.Name, "address", t.Address, "chap", t.CHAP)
	}
	if len(table.Targets) == 0 {
		return nil
	}
	keep(ctx, func() { d.addresses(ctx, table, static) })
	if err := d.m.Probe(ctx, "iscsi_tcp"); err != nil {
		return err
	}
	initiator, err := iscsi.Open(iscsi.Options{Log: d.m.Log, Dialer: d.network})
	if err != nil {
		return err
	}
	limited, cancel := context.WithTimeoutCause(ctx, attachLimit, fmt.Errorf("no disk within %v", attachLimit))
	defer cancel()
	var waits []func()
	for _, target := range table.Targets {
		done := make(chan struct{})
		goroutine.Go(func() error { return d.connect(ctx, initiator, target) }, func(err error) {
			if err != nil && ctx.Err() == nil {
				d.m.Log.Error("iSCSI target not connected", "target", target.Name, "address", target.Address, "err",
					err)
			}
			close(done)
		})
		waits = append(waits, func() {
			if err := pause.Until(limited, done); err != nil && ctx.Err() == nil {
				d.m.Log.Warn("iSCSI target not connected yet, still trying", "target", target.Name,
					"address", target.Address, "waited", attachLimit)
			}
		})
	}
	goroutine.Do(waits...)
	return nil
}

// connect connects to a target, again until it succeeds or the target rejects the login, and waits for its disks.
func (d *sanDisks) connect(ctx context.Context, initiator *iscsi.Initiator, target iscsi.Target) error {
	reported := ""
	for {
		changed := d.network.Changed()
		session, err := initiator.Connect(ctx, target)
		if err == nil {
			return d.use(ctx, session, target)
		}
		var rejected *iscsi.LoginError
		if ctx.Err() != nil || errors.As(err, &rejected) && rejected.Permanent() {
			return err
		}
		if text := err.Error(); text != reported {
			reported = text
			d.m.Log.Warn("iSCSI target not connected, retrying", "target", target.Name, "address", target.Address,
				"err", err)
		}
		waiting, cancel := context.WithTimeout(ctx, attachPause)
		_ = pause.Until(waiting, changed) // a new address can be the way to the target
		cancel()
	}
}

// use keeps a session and waits for its disks.
func (d *sanDisks) use(ctx context.Context, session *iscsi.Session, target iscsi.Target) error {
	d.mu.Lock()
	closed := d.closed
	d.sessions = append(d.sessions, session)
	d.mu.Unlock()
	if closed {
		return session.Close(ctx)
	}
	limited, cancel := context.WithTimeoutCause(ctx, attachLimit, fmt.Errorf("no disk within %v", attachLimit))
	defer cancel()
	disks, err := session.WaitDisks(limited)
	if err != nil {
		return err
	}
	for _, disk := range disks {
		d.m.Log.Info("iSCSI disk attached", "target", target.Name, "device", disk.Path, "bytes", disk.Size)
	}
	return nil
}

// Detach implements [agent.NetworkDisks].
func (d *sanDisks) Detach(ctx context.Context) {
	d.mu.Lock()
	d.closed = true
	sessions := d.sessions
	d.mu.Unlock()
	var closes []func()
	for _, session := range sessions {
		closes = append(closes, func() {
			if err := session.Close(ctx); err != nil {
				d.m.Log.Warn("iSCSI session not ended in order", "err", err)
			}
		})
	}
	goroutine.Do(closes...)
}
