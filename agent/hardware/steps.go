package hardware

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"ironroot/agent/fault"
	"ironroot/agent/node"
)

// offer is a step that a manager has.
type offer struct {
	manager leveled
	step    Step
}

// offers returns the steps of a kind that managers may offer, in the order of the managers. It may return them with an
// incompleteError.
func (m *Managers) offers(kind Kind, n *node.Node, ports []map[string]any) ([]*offer, error) {
	offers, err := m.stepsOfAll(kind, n, ports)
	var incomplete *incompleteError
	if err != nil && !errors.As(err, &incomplete) {
		return nil, err
	}
	offers, permitErr := m.permitted(offers, n, ports)
	if permitErr != nil {
		return nil, permitErr
	}
	return offers, err
}

// incompleteError is the error of a built-in manager that could not list all its steps.
type incompleteError struct{ err error }

func (e *incompleteError) Error() string { return e.err.Error() }
func (e *incompleteError) Unwrap() error { return e.err }

// stepsOfAll returns the steps of a kind of all managers. It fails if a custom manager panics or cannot list its steps:
// without them another manager's could run in their place. If built-in managers cannot list all their steps, it returns
// all other steps with an incompleteError.
func (m *Managers) stepsOfAll(kind Kind, n *node.Node, ports []map[string]any) ([]*offer, error) {
	var offers []*offer
	var incomplete error
	for _, manager := range m.list {
		steps, err := manager.steps(kind, n, ports)
		switch {
		case err != nil && manager.custom:
			return nil, fmt.Errorf("list %s steps: %w", kind, err)
		case err != nil && incomplete == nil:
			incomplete = &incompleteError{fmt.Errorf("list %s steps: %w", kind, err)}
		}
		for _, step := range steps {
			offers = append(offers, &offer{manager, step})
		}
	}
	return offers, incomplete
}

// steps returns the steps of a manager, possibly with an error.
func (l *leveled) steps(kind Kind, n *node.Node, ports []map[string]any) (steps []Step, err error) {
	err = l.guard(func() (err error) {
		switch s := l.Manager.(type) {
		case StepLister:
			steps, err = s.ListSteps(kind, n, ports)
		case Stepper:
			steps = s.Steps(kind, n, ports)
		}
		return err
	})
	return steps, err
}

// StepNames returns the names of the steps of all kinds of all managers except the managers of one class.
func (m *Managers) StepNames(except string, n *node.Node, ports []map[string]any) (map[string]bool, error) {
	names := map[string]bool{}
	for _, manager := range m.list {
		if manager.class == except {
			continue
		}
		for _, kind := range []Kind{Clean, Deploy, Service} {
			steps, err := manager.steps(kind, n, ports)
			if err != nil {
				return nil, fmt.Errorf("list %s steps: %w", kind, err)
			}
			for _, step := range steps {
				names[step.Name] = true
			}
		}
	}
	return names, nil
}

// compare orders offers of the same step, best first: by support level, by priority, by class name.
func compare(a, b *offer) int {
	return cmp.Or(
		cmp.Compare(b.manager.level, a.manager.level),
		cmp.Compare(b.step.Priority, a.step.Priority),
		cmp.Compare(a.manager.Class(), b.manager.Class()),
	)
}

// Steps lists the steps of a kind by the class name of their manager. If several managers have a step of the same
// name, the one with the higher support level is listed, then the one with the higher priority, then the one whose
// class name sorts first. Managers without listed steps are omitted.
func (m *Managers) Steps(kind Kind, n *node.Node, ports []map[string]any) (map[string][]Step, error) {
	offers, err := m.offers(kind, n, ports)
	if err != nil {
		return nil, err
	}
	best := map[string]*offer{}
	for _, o := range offers {
		if other := best[o.step.Name]; other == nil || compare(o, other) < 0 {
			best[o.step.Name] = o
		}
	}
	m.logReplaced(offers, best)
	result := map[string][]Step{}
	for _, o := range offers {
		if best[o.step.Name] == o {
			result[o.manager.Class()] = append(result[o.manager.Class()], o.step)
		}
	}
	return result, nil
}

// Execute runs a step on the manager for which Steps lists it. If the step returns ErrIncompatible, the next best
// manager that has it is tried. If no manager is left, Execute returns a fault that names the step.
func (m *Managers) Execute(ctx context.Context, kind Kind, name string, call Call) (any, error) {
	offers, err := m.offers(kind, call.Node, call.Ports)
	var incomplete *incompleteError
	if err != nil && !errors.As(err, &incomplete) {
		return nil, err
	}
	offers = slices.DeleteFunc(offers, func(o *offer) bool { return o.step.Name != name })
	slices.SortStableFunc(offers, compare)
	for _, o := range offers {
		m.log.Info("step started", "step", name, "kind", string(kind), "manager", o.manager.Name())
		var result any
		err := o.manager.guard(func() (err error) {
			result, err = o.step.Run(ctx, call)
			return err
		})
		if errors.Is(err, ErrIncompatible) {
			m.log.Warn("step not supported by hardware manager",
				"step", name, "manager", o.manager.Name(), "err", err)
			continue
		}
		return result, err
	}
	if incomplete != nil { // the step may be one of those that could not be listed
		return nil, incomplete.err
	}
	return nil, fault.MethodNotFound(name)
}
