package hardware

import (
	"cmp"
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

// ErrIncompatible is returned by a method that does not support this hardware. The next manager is called then.
// It corresponds to IncompatibleHardwareMethodError of ironic-python-agent.
var ErrIncompatible = errors.New("method does not support this hardware")

// Managers is the set of managers that support this machine, best first. It does not change while the agent runs.
type Managers struct {
	list    []leveled
	noDisks error // which managers that can select disks are not usable; disks are listed only if it is nil
	log     *slog.Logger
}

// leveled is a manager with what it has returned at the start of the agent.
type leveled struct {
	Manager
	class, name, version  string
	level                 Level
	custom, replacesErase bool // see Custom
}

// Class implements [Manager].
func (l *leveled) Class() string { return l.class }

// Name implements [Manager].
func (l *leveled) Name() string { return l.name }

// Version implements [Manager].
func (l *leveled) Version() string { return l.version }

// Load determines the support level of every manager in list, drops those that return None, sorts the others by level
// (stable, but custom ones before built-in ones) and initialises them in that order. If no manager is left, it returns
// a fault. The managers of the operator are marked by [Custom]. Those that fail, panic, do not return within a minute,
// or have no name and class of their own are logged and not used. If one of them can select disks, no disks are listed.
func Load(ctx context.Context, list []Manager, log *slog.Logger) (*Managers, error) {
	m := &Managers{log: log}
	for _, manager := range list {
		l := leveled{Manager: manager}
		if c, ok := manager.(Custom); ok {
			l = leveled{Manager: c.Manager, custom: true}
		}
		if err := m.evaluate(ctx, &l); err != nil {
			m.ignore(&l, err)
			continue
		}
		if c, ok := manager.(Custom); ok {
			l.replacesErase = slices.Contains(c.EraseManagers, l.name)
		}
		log.Debug("hardware manager evaluated", "manager", l.name, "level", int(l.level))
		if l.level > None {
			m.list = append(m.list, l)
		}
	}
	if len(m.list) == 0 {
		return nil, fault.HardwareManagerNotFound("none of %d hardware managers supports this machine", len(list))
	}
	slices.SortStableFunc(m.list, compareRanks)
	if err := m.initialize(ctx); err != nil {
		return nil, err
	}
	return m, nil
}

// compareRanks sorts by level, best first, and custom managers before built-in ones of the same level.
func compareRanks(a, b leveled) int {
	switch {
	case a.level != b.level:
		return cmp.Compare(b.level, a.level)
	case a.custom == b.custom:
		return 0
	case a.custom:
		return -1
	}
	return 1
}

// evaluate sets the identity and the support level of a manager. Only custom managers can fail.
func (m *Managers) evaluate(ctx context.Context, l *leveled) error {
	if u, ok := l.Manager.(*unusable); ok {
		l.name = u.name
		return u.err
	}
	l.name = fmt.Sprintf("%T", l.Manager) // until it has returned its name
	var class, name, version string
	err := l.start(ctx, func(context.Context) error {
		class, name, version = l.Manager.Class(), l.Manager.Name(), l.Manager.Version()
		return nil
	})
	if err != nil {
		return err
	}
	l.class, l.name, l.version = class, name, version
	if err := m.checkIdentity(l); err != nil {
		return err
	}
	var level Level
	err = l.start(ctx, func(ctx context.Context) (err error) {
		if e, ok := l.Manager.(Evaluator); ok {
			level, err = e.Evaluate(ctx)
			return err
		}
		level = l.Support(ctx)
		return nil
	})
	if err != nil {
		return fmt.Errorf("evaluate support: %w", err)
	}
	l.level = level
	return nil
}

// initialize initialises all managers, and removes custom managers that fail.
func (m *Managers) initialize(ctx context.Context) error {
	kept := m.list[:0]
	for _, l := range m.list {
		var err error
		if i, ok := l.Manager.(Initializer); ok {
			err = l.start(ctx, i.Initialize)
		}
		switch {
		case err == nil:
			kept = append(kept, l)
			l.logCustom(m.log)
		case l.custom:
			m.ignore(&l, fmt.Errorf("initialise: %w", err))
		default:
			return fmt.Errorf("initialise hardware manager %s: %w", l.name, err)
		}
	}
	m.list = kept
	return nil
}

// Dispatch calls the managers that implement I, best first, until one does not return ErrIncompatible, and returns its
// result and error. An empty result counts. If no manager is left, it returns a fault that names method.
func Dispatch[I, R any](m *Managers, method string, call func(I) (R, error)) (R, error) {
	for _, manager := range m.list {
		i, ok := manager.Manager.(I)
		if !ok {
			continue
		}
		result, err := guarded(&manager, func() (R, error) { return call(i) })
		if errors.Is(err, ErrIncompatible) {
			m.log.Debug("method not supported by hardware manager",
				"manager", manager.Name(), "method", method, "err", err)
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
		result, err := guarded(&manager, func() (R, error) { return call(i) })
		if errors.Is(err, ErrIncompatible) {
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

// guarded is guard for a function with a result.
func guarded[R any](l *leveled, f func() (R, error)) (result R, err error) {
	err = l.guard(func() (err error) {
		result, err = f()
		return err
	})
	return result, err
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
// manager that can select disks is not usable.
//
// As in ironic-python-agent, the answer of the best manager that has an opinion is the device that is kept. But the
// others are asked as well, with the device as it was given: a device that one of them removes is not kept.
func (m *Managers) Filter(ctx context.Context, devices []block.Device) ([]block.Device, error) {
	if m.noDisks != nil {
		return nil, fmt.Errorf("%w; no disk is used: correct the manager, or build the image without it", m.noDisks)
	}
	kept := make([]block.Device, 0, len(devices))
	for _, d := range devices {
		out, keep, err := m.filter(ctx, d)
		if err != nil {
			return nil, fmt.Errorf("filter %s: %w", d.Path, err)
		}
		if keep {
			kept = append(kept, out)
		}
	}
	return kept, nil
}

// filter passes a device to the managers' filters, best first, until one removes it.
func (m *Managers) filter(ctx context.Context, d block.Device) (kept block.Device, keep bool, err error) {
	answered := false
	for _, manager := range m.list {
		f, ok := manager.Manager.(DeviceFilter)
		if !ok {
			continue
		}
		var out block.Device
		err := manager.guard(func() (err error) {
			out, keep, err = f.FilterDevice(ctx, d)
			return err
		})
		switch {
		case errors.Is(err, ErrIncompatible):
			m.log.Debug("method not supported by hardware manager",
				"manager", manager.Name(), "method", "filter_device", "err", err)
		case err != nil:
			return block.Device{}, false, err
		case !keep:
			m.log.Info("device omitted by hardware manager's filter", "device", d.Path, "manager", manager.Name())
			return block.Device{}, false, nil
		case !answered:
			kept, answered = out, true
		}
	}
	if !answered {
		return block.Device{}, false, fault.MethodNotFound("filter_device")
	}
	return kept, true, nil
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
