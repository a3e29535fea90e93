package generic

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"ironroot/agent/fault"
	"ironroot/agent/hardware"
	"ironroot/internal/goroutine"
	"ironroot/storage/block"
	"ironroot/storage/erase"
)

// eraseDevices destroys all data of all disks that are not protected, several at a time where the node says so. Its
// result has a null for every disk.
func (m *Manager) eraseDevices(ctx context.Context, call hardware.Call) (any, error) {
	flags, disks, err := m.toErase(ctx, call)
	if err != nil {
		return nil, err
	}
	result := map[string]any{}
	var failures collected
	group := goroutine.NewGroup()
	group.SetLimit(flags.concurrency)
	for _, d := range disks {
		result[d.Path] = nil
		group.Go(func() error {
			if err := goroutine.Catch(func() error { return m.eraseDisk(ctx, d, flags) }); err != nil {
				m.o.Log.Error("disk not erased", "device", d.Path, "err", err)
				failures.add(fmt.Errorf("%s: %w", d.Path, err))
			}
			return nil
		})
	}
	_ = group.Wait() // the functions return no errors: every disk gets its turn
	if err := failures.fault(); err != nil {
		return nil, err
	}
	return result, nil
}

func (m *Manager) eraseDisk(ctx context.Context, d block.Device, flags eraseFlags) error {
	skip, err := m.skips(ctx, d)
	if err != nil || skip {
		return err
	}
	if readOnly, err := erase.ReadOnly(m.o.System, d.Name); err != nil {
		return err
	} else if readOnly && flags.skipReadOnly {
		m.o.Log.Info("read-only disk not erased", "device", d.Path)
		return nil
	} else if readOnly {
		return erase.ErrReadOnly
	}
	started := time.Now()
	m.o.Log.Info("erasing disk", "device", d.Path, "bytes", d.Size)
	tracker := m.o.Board.Track(m.o.Log, "erasing disk", d.Path)
	defer tracker.End()
	method, err := erase.Full(ctx, m.o.System, d, flags.options(tracker.Set))
	if err != nil {
		return err
	}
	m.o.Log.Info("disk erased", "device", d.Path, "method", string(method), "took", time.Since(started).Round(time.Second))
	return nil
}

// eraseMetadata removes partition tables and signatures from all disks and partitions that are not protected.
func (m *Manager) eraseMetadata(ctx context.Context, call hardware.Call) (any, error) {
	_, disks, err := m.toErase(ctx, call)
	if err != nil {
		return nil, err
	}
	var failures collected
	for i := len(disks) - 1; i >= 0; i-- { // arrays and maps come after the disks they are made of
		if err := m.wipeMetadata(ctx, disks[i]); err != nil {
			m.o.Log.Error("metadata not erased", "device", disks[i].Path, "err", err)
			failures.add(fmt.Errorf("%s: %w", disks[i].Path, err))
		}
	}
	return nil, failures.fault()
}

// eraseExpress formats NVMe disks, which takes seconds; of all others, and where that fails, it removes the metadata.
func (m *Manager) eraseExpress(ctx context.Context, call hardware.Call) (any, error) {
	_, disks, err := m.toErase(ctx, call)
	if err != nil {
		return nil, err
	}
	var failures collected
	for i := len(disks) - 1; i >= 0; i-- {
		if err := m.expressErase(ctx, disks[i]); err != nil {
			m.o.Log.Error("disk not erased", "device", disks[i].Path, "err", err)
			failures.add(fmt.Errorf("%s: %w", disks[i].Path, err))
		}
	}
	return nil, failures.fault()
}

// expressErase looks before it formats as eraseDisk does: a format destroys more than metadata.
func (m *Manager) expressErase(ctx context.Context, d block.Device) error {
	if d.Transport != "nvme" {
		return m.wipeMetadata(ctx, d)
	}
	skip, err := m.skips(ctx, d)
	if err != nil || skip {
		return err
	}
	// Without a pass of overwriting: what cannot be formatted is an error and not written in full.
	method, err := erase.Full(ctx, m.o.System, d, erase.Options{NVMe: true})
	if err == nil {
		m.o.Log.Info("disk erased", "device", d.Path, "method", string(method))
		return nil
	}
	if errors.Is(err, erase.ErrReadOnly) || errors.Is(err, erase.ErrRemains) {
		return err // its metadata cannot go either; the disk was formatted, and others remain
	}
	m.o.Log.Warn("disk cannot be formatted, its metadata goes", "device", d.Path, "err", err)
	return m.wipeMetadata(ctx, d)
}

// wipeMetadata leaves RAID members alone, but not the partitions beside them. That a disk is left out because it is the
// virtual floppy or read-only is no error, and logged.
func (m *Manager) wipeMetadata(ctx context.Context, d block.Device) error {
	if floppy, err := erase.ParametersFloppy(ctx, m.o.System, d); err != nil {
		return err
	} else if floppy {
		m.o.Log.Info("virtual floppy not erased", "device", d.Path)
		return nil
	}
	if readOnly, err := erase.ReadOnly(m.o.System, d.Name); err != nil {
		return err
	} else if readOnly {
		m.o.Log.Warn("metadata of a read-only disk not erased", "device", d.Path)
		return nil
	}
	member, err := erase.RAIDMember(ctx, m.o.System, d.Path)
	if err != nil {
		return err
	}
	if !member {
		m.o.Log.Info("erasing metadata", "device", d.Path)
		return erase.Metadata(ctx, m.o.System, d.Path)
	}
	partitions, err := m.o.System.Partitions(ctx, d.Path)
	if err != nil {
		return err
	}
	for _, p := range partitions {
		if member, err := erase.RAIDMember(ctx, m.o.System, p.Path); err != nil {
			return err
		} else if member {
			m.o.Log.Info("RAID member not erased", "device", p.Path)
			continue
		}
		m.o.Log.Info("erasing metadata", "device", p.Path)
		if err := erase.Metadata(ctx, m.o.System, p.Path); err != nil {
			return fmt.Errorf("%s: %w", p.Path, err)
		}
	}
	return nil
}

// erasePstore removes what a crashed kernel left in the firmware's memory.
func (m *Manager) erasePstore(ctx context.Context, call hardware.Call) (any, error) {
	if err := noArguments(call); err != nil {
		return nil, err
	}
	return nil, erase.Pstore(ctx, m.o.System)
}

// toErase lists the disks that the node does not protect, after the guard has looked at all of them: no disk is touched
// when one of them holds a shared file system.
func (m *Manager) toErase(ctx context.Context, call hardware.Call) (eraseFlags, []block.Device, error) {
	flags := eraseFlagsOf(call.Node, m.o.Config.Get().GuardSpecialFilesystems)
	if err := noArguments(call); err != nil {
		return flags, nil, err
	}
	all, err := m.o.Disks(ctx)
	if err != nil {
		return flags, nil, fmt.Errorf("list disks to erase: %w", err)
	}
	disks, err := hardware.WithoutSkipped(call.Node, all)
	if err != nil {
		return flags, nil, fault.BlockDeviceErase("%w", err)
	}
	if !flags.guard {
		return flags, disks, nil
	}
	paths := make([]string, 0, len(disks))
	for _, d := range disks {
		paths = append(paths, d.Path)
	}
	if err := erase.Guard(ctx, m.o.System, paths); errors.Is(err, erase.ErrProtected) {
		return flags, nil, fault.ProtectedDevice("%w", err)
	} else if err != nil {
		return flags, nil, fault.BlockDeviceErase("%w", err)
	}
	return flags, disks, nil
}

// skips tells whether a disk is left alone without that being an error.
func (m *Manager) skips(ctx context.Context, d block.Device) (bool, error) {
	if floppy, err := erase.ParametersFloppy(ctx, m.o.System, d); err != nil {
		return false, err
	} else if floppy {
		m.o.Log.Info("virtual floppy not erased", "device", d.Path)
		return true, nil
	}
	// A disk that cannot be read is an error: leaving it out in silence would hand its data to the next tenant.
	if member, err := erase.RAIDMember(ctx, m.o.System, d.Path); err != nil {
		return false, err
	} else if member {
		m.o.Log.Info("RAID member not erased", "device", d.Path)
		return true, nil
	}
	return false, nil
}

// collected gathers the errors of several disks into one fault.
type collected struct {
	mu   sync.Mutex
	errs []error
}

func (c *collected) add(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.errs = append(c.errs, err)
}

func (c *collected) fault() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.errs) == 0 {
		return nil
	}
	return fault.BlockDeviceErase("%w", errors.Join(c.errs...))
}
