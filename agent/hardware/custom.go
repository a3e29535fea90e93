package hardware

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"time"

	"ironroot/agent/node"
	"ironroot/internal/goroutine"
	"ironroot/storage/block"
	"ironroot/storage/sysfs"
)

// Machine contains the agent's data and functions for a custom manager. Its fields are read-only.
type Machine struct {
	// System reads files of sysfs and procfs. The path of a file is System.Sys("class/dmi/id/sys_vendor"). A test
	// sets System.Path to a directory.
	System sysfs.Root
	// Disks lists the machine's disks without those that a manager filters out. It fails until all managers are loaded.
	Disks block.Lister
	Log   *slog.Logger
}

// New creates a custom manager. It must not fail, and changes nothing: see [Manager] and [Initializer].
type New func(Machine) Manager

// Create calls New and returns its manager, or an [Unusable] one if it panics, returns nil or does not return in time.
func (create New) Create(ctx context.Context, machine Machine) Manager {
	var manager Manager
	err := try(ctx, func(context.Context) error {
		manager = create(machine)
		return nil
	})
	if err == nil && manager == nil {
		err = errors.New("got nil, want a manager")
	}
	if err != nil {
		return Unusable("of "+runtime.FuncForPC(reflect.ValueOf(create).Pointer()).Name(), err)
	}
	return manager
}

// Custom marks a manager of the operator in the list for Load. Managers without the mark are built in.
type Custom struct {
	Manager
	// EraseManagers are the names of the managers whose steps may replace built-in steps named erase_*. Such steps of
	// other custom managers are neither listed nor executed, and a warning is logged.
	EraseManagers []string
}

// startTimeout limits each function of a custom manager that the start of the agent waits for.
const startTimeout = time.Minute

// try calls a function of a custom manager at the start of the agent. A panic is an error. After startTimeout it
// returns an error without waiting for the function.
func try(ctx context.Context, f func(context.Context) error) error {
	ctx, cancel := context.WithTimeoutCause(ctx, startTimeout, fmt.Errorf("not done within %v", startTimeout))
	defer cancel()
	done := make(chan error, 1)
	goroutine.Go(func() error { return f(ctx) }, func(err error) { done <- err })
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// start calls a function of a manager at the start of the agent: see try. Functions of built-in managers are only
// called.
func (l *leveled) start(ctx context.Context, f func(context.Context) error) error {
	if !l.custom {
		return f(ctx)
	}
	return try(ctx, f)
}

// guard calls a function of a manager. A panic in a custom manager is an error that names the manager.
func (l *leveled) guard(f func() error) error {
	if !l.custom {
		return f()
	}
	err := goroutine.Catch(f)
	var panicked *goroutine.PanicError
	if errors.As(err, &panicked) {
		return fmt.Errorf("hardware manager %s: %w", l.name, err)
	}
	return err
}

// Unusable returns a manager in place of a custom one that could not be loaded because of err. Load ignores it, and
// handles it as one that selects disks, because it could be one. name identifies the manager in logs and errors: its
// path, or "in DIRECTORY".
func Unusable(name string, err error) Manager { return &unusable{name: name, err: err} }

// unusable is a custom manager that could not be loaded.
type unusable struct {
	name string
	err  error
}

func (u *unusable) Class() string                 { return u.name }
func (u *unusable) Name() string                  { return u.name }
func (u *unusable) Version() string               { return "" }
func (u *unusable) Support(context.Context) Level { return None }

// ignore logs that a custom manager is not used. If it can select disks, no disks are listed: a step must not change
// one that the manager would have omitted.
func (m *Managers) ignore(l *leveled, err error) {
	m.log.Error("custom hardware manager ignored", "manager", l.name, "err", err)
	_, unknown := l.Manager.(*unusable)
	_, lists := l.Manager.(DiskLister)
	_, filters := l.Manager.(DeviceFilter)
	selects := "selects"
	switch {
	case unknown:
		selects = "could select"
	case !lists && !filters:
		return
	}
	err = fmt.Errorf("hardware manager %s %s disks, but is not usable: %w", l.name, selects, err)
	if m.noDisks != nil {
		err = fmt.Errorf("%w; %w", m.noDisks, err)
	}
	m.noDisks = err
}

// eraseStepPrefix is the prefix of the names of steps that custom managers replace only with permission: their success
// lets a node pass from one tenant to the next.
const eraseStepPrefix = "erase_"

// checkIdentity returns an error if a custom manager has no name and class of its own. Two managers of the same name
// could not be distinguished in the version dictionary, two of the same class not in the list of steps.
func (m *Managers) checkIdentity(l *leveled) error {
	same := func(other leveled) bool { return other.name == l.name || other.class == l.class }
	switch {
	case !l.custom:
		return nil
	case l.name == "" || l.class == "":
		return fmt.Errorf("name %q, class %q: want both", l.name, l.class)
	case slices.ContainsFunc(m.list, same):
		return fmt.Errorf("name %q, class %q: another manager has one of them", l.name, l.class)
	}
	return nil
}

// logCustom logs what a custom manager can do in place of the built-in ones.
func (l *leveled) logCustom(log *slog.Logger) {
	if !l.custom {
		return
	}
	var methods []string
	add := func(implemented bool, method string) {
		if implemented {
			methods = append(methods, method)
		}
	}
	_, ok := l.Manager.(Stepper)
	_, lists := l.Manager.(StepLister)
	add(ok || lists, "steps")
	_, ok = l.Manager.(DiskLister)
	add(ok, "list_block_devices")
	_, ok = l.Manager.(DeviceFilter)
	add(ok, "filter_device")
	_, ok = l.Manager.(DiskWaiter)
	add(ok, "wait_for_disks")
	_, ok = l.Manager.(Syncer)
	add(ok, "full_sync")
	log.Info("custom hardware manager loaded", "manager", l.Name(), "version", l.Version(), "level", int(l.level),
		"methods", strings.Join(methods, ","), "replaces_erase", l.replacesErase)
}

// permitted returns the offers without the steps of custom managers that replace built-in erase steps without
// permission.
func (m *Managers) permitted(offers []*offer, n *node.Node, ports []map[string]any) ([]*offer, error) {
	needsPermission := func(o *offer) bool {
		return o.manager.custom && !o.manager.replacesErase && strings.HasPrefix(o.step.Name, eraseStepPrefix)
	}
	if !slices.ContainsFunc(offers, needsPermission) {
		return offers, nil
	}
	reserved, err := m.eraseSteps(n, ports)
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(offers, func(o *offer) bool {
		ignored := needsPermission(o) && reserved[o.step.Name]
		if ignored {
			m.log.Warn("step of custom hardware manager ignored: it may not replace a built-in erase step",
				"step", o.step.Name, "manager", o.manager.Name())
		}
		return ignored
	}), nil
}

// eraseSteps returns the names of the built-in erase steps of all kinds.
func (m *Managers) eraseSteps(n *node.Node, ports []map[string]any) (map[string]bool, error) {
	names := map[string]bool{}
	for _, kind := range []Kind{Clean, Deploy, Service} {
		offers, err := m.stepsOfAll(kind, n, ports)
		var incomplete *incompleteError
		if err != nil && !errors.As(err, &incomplete) {
			return nil, err
		}
		for _, o := range offers {
			if !o.manager.custom && strings.HasPrefix(o.step.Name, eraseStepPrefix) {
				names[o.step.Name] = true
			}
		}
	}
	return names, nil
}

// logReplaced logs that a step of a custom manager is listed in place of a built-in one.
func (m *Managers) logReplaced(offers []*offer, best map[string]*offer) {
	for _, o := range offers {
		if winner := best[o.step.Name]; winner.manager.custom && !o.manager.custom {
			m.log.Warn("built-in step replaced by custom hardware manager",
				"step", o.step.Name, "manager", winner.manager.Name(), "replaced", o.manager.Name())
		}
	}
}
