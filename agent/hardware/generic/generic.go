// Package generic is the built-in hardware manager: it works on any machine that Linux runs on, through the kernel's own
// interfaces. It offers the steps that erase disks and write images, as ironic-python-agent's manager of that name does;
// steps for RAID, burn-in, file injection and containers are not offered.
package generic

import (
	"context"
	"errors"
	"log/slog"

	"ironroot/agent/config"
	"ironroot/agent/hardware"
	"ironroot/agent/imaging"
	"ironroot/agent/node"
	"ironroot/storage/block"
)

// Options are what the manager works with.
type Options struct {
	Config *config.Live
	System block.System
	// Disks lists the disks as all managers together see them; nil means the system's own list.
	Disks  func(ctx context.Context) ([]block.Device, error)
	Imager *imaging.Imager
	Log    *slog.Logger
}

// Manager is the generic hardware manager.
type Manager struct{ o Options }

// New returns the manager.
func New(o Options) *Manager {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Disks == nil {
		o.Disks = o.System.Disks
	}
	return &Manager{o}
}

// Class implements [hardware.Manager].
func (m *Manager) Class() string { return "GenericHardwareManager" }

// Name implements [hardware.Manager].
func (m *Manager) Name() string { return "generic_hardware_manager" }

// Version implements [hardware.Manager]. It changes when the meaning of a step changes.
func (m *Manager) Version() string { return "1.2" }

// Support implements [hardware.Manager].
func (m *Manager) Support(context.Context) hardware.Level { return hardware.Generic }

// Disks implements [hardware.DiskLister].
func (m *Manager) Disks(ctx context.Context) ([]block.Device, error) { return m.o.System.Disks(ctx) }

// FilterDevice implements [hardware.DeviceFilter]: the generic manager keeps every device as it is.
func (m *Manager) FilterDevice(_ context.Context, d block.Device) (block.Device, bool, error) {
	return d, true, nil
}

// Steps implements [hardware.Stepper].
func (m *Manager) Steps(hardware.Kind, *node.Node, []map[string]any) []hardware.Step { return nil }

// Sync implements [hardware.Syncer].
func (m *Manager) Sync(context.Context) error { return errors.New("not there yet") }
