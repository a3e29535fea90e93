package hardware

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"reflect"
	"slices"

	"ironroot/agent/fault"
	"ironroot/agent/node"
	"ironroot/storage/block"
)

// incompatible reports whether err is the fault by which a manager says that it has a method, but not for this
// hardware (fault.IncompatibleHardware): the next manager is asked.
func incompatible(err error) bool {
	var f *fault.Error
	return errors.As(err, &f) && f.Type == "IncompatibleHardwareMethodError"
}

// Managers is the set of managers that support this machine, best first. It does not change while the agent runs.
type Managers struct {
	list []leveled
	log  *slog.Logger
}

// leveled is a manager with what it has returned at the start of the agent.
type leveled struct {
	Manager
	level Level
}

// Load asks every manager of list for its support level, drops those that do not fit, orders the others by level (ties
// in the order of list) and only then initialises them, in that order. No manager left is a fault.
func Load(ctx context.Context, list []Manager, log *slog.Logger) (*Managers, error) {
	m := &Managers{log: log}
	for _, manager := range list {
		level := manager.Support(ctx)
		log.Debug("hardware manager evaluated", "manager", manager.Name(), "level", int(level))
		if level > None {
			m.list = append(m.list, leveled{manager, level})
		}
	}
	if len(m.list) == 0 {
		return nil, fault.HardwareManagerNotFound("none of %d hardware managers supports this machine", len(list))
	}
	slices.SortStableFunc(m.list, func(a, b leveled) int { return int(b.level) - int(a.level) })
	for _, manager := range m.list {
		if i, ok := manager.Manager.(Initializer); ok {
			if err := i.Initialize(ctx); err != nil {
				return nil, fmt.Errorf("initialise hardware manager %s: %w", manager.Name(), err)
			}
		}
	}
	return m, nil
}

// Dispatch asks the managers that implement I in turn, best first. The first one that does not answer
// fault.IncompatibleHardware wins, with its result or its error; an empty result counts as an answer. Nobody answering
// is a fault naming method.
func Dispatch[I, R any](m *Managers, method string, call func(I) (R, error)) (R, error) {
	for _, manager := range m.list {
		i, ok := manager.Manager.(I)
		if !ok {
			continue
		}
		result, err := call(i)
		if incompatible(err) {
			m.log.Debug("hardware manager passes", "manager", manager.Name(), "method", method, "err", err)
			continue
		}
		return result, err
	}
	var none R
	return none, fault.MethodNotFound(method)
}

// DispatchAll calls every manager that implements I and returns the results by class name, without those that returned
// ErrIncompatible. It stops at any other error. If there is no result, it returns a fault that names method.
func DispatchAll[I, R any](m *Managers, method string, call func(I) (R, error)) (map[string]R, error) {
	results := map[string]R{}
	for _, manager := range m.list {
		i, ok := manager.Manager.(I)
		if !ok {
			continue
		}
		result, err := call(i)
		if incompatible(err) {
			continue
		}
		if err != nil {
			return nil, err
		}
		results[manager.Class()] = result
	}
	if len(results) == 0 {
		return nil, fault.MethodNotFound(method)
	}
	return results, nil
}

// Disks lists the machine's disks that no manager filters out. As with [block.Disks], an error may come together with
// the disks that could be read.
func (m *Managers) Disks(ctx context.Context) ([]block.Device, error) {
	found, err := Dispatch(m, "list_block_devices", func(l DiskLister) ([]block.Device, error) { return l.Disks(ctx) })
	kept, filterErr := m.Filter(ctx, found)
	if filterErr != nil {
		return nil, filterErr
	}
	return kept, err
}

// Filter passes every device to the managers' filters and returns the devices that they keep. It fails if a custom
// manager that selects disks is not usable.
func (m *Managers) Filter(ctx context.Context, devices []block.Device) ([]block.Device, error) {
	kept := make([]block.Device, 0, len(devices))
	for _, d := range devices {
		type answer struct {
			device block.Device
			keep   bool
		}
		a, err := Dispatch(m, "filter_device", func(f DeviceFilter) (answer, error) {
			out, keep, err := f.FilterDevice(ctx, d)
			return answer{out, keep}, err
		})
		if err != nil {
			return nil, fmt.Errorf("filter %s: %w", d.Path, err)
		}
		if !a.keep {
			m.log.Info("device left out by a hardware manager", "device", d.Path)
			continue
		}
		kept = append(kept, a.device)
	}
	return kept, nil
}

// WaitDisks waits for the disks that a node needs. n may be nil.
func (m *Managers) WaitDisks(ctx context.Context, n *node.Node) error {
	_, err := Dispatch(m, "wait_for_disks", func(w DiskWaiter) (struct{}, error) {
		return struct{}{}, w.WaitDisks(ctx, n)
	})
	return err
}

// Sync makes every manager write out all data that is still in memory.
func (m *Managers) Sync(ctx context.Context) error {
	_, err := DispatchAll(m, "full_sync", func(s Syncer) (struct{}, error) { return struct{}{}, s.Sync(ctx) })
	return err
}

// NameVersion is a manager's entry in the inspection data.
type NameVersion struct {
	Name    string `json:"name"`
	Version string `json:"version"`
}

// List returns name and version of all managers, best first.
func (m *Managers) List() []NameVersion {
	list := make([]NameVersion, 0, len(m.list))
	for _, manager := range m.list {
		list = append(list, NameVersion{manager.Name(), manager.Version()})
	}
	return list
}

// Versions returns the version dictionary, which maps names of managers to versions.
func (m *Managers) Versions() map[string]string {
	versions := map[string]string{}
	for _, manager := range m.list {
		versions[manager.Name()] = manager.Version()
	}
	return versions
}

// CheckVersions compares the version dictionary of a step with Versions; nil matches. If they differ, it returns the
// fault that makes the conductor list the steps again.
func (m *Managers) CheckVersions(provided map[string]string) error {
	if provided == nil {
		return nil
	}
	if current := m.Versions(); !reflect.DeepEqual(current, provided) {
		return fault.VersionMismatch(current, provided)
	}
	return nil
}
