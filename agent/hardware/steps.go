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

// offers returns the steps of a kind that managers may offer, in the order of the managers.
func (m *Managers) offers(kind Kind, n *node.Node, ports []map[string]any) ([]*offer, error) {
	offers, err := m.stepsOfAll(kind, n, ports)
	if err != nil {
		return nil, err
	}
	return m.permitted(offers, n, ports)
}

// stepsOfAll returns the steps of a kind of all managers. It fails if a custom manager panics: without its steps
// another manager's could run in their place.
func (m *Managers) stepsOfAll(kind Kind, n *node.Node, ports []map[string]any) ([]*offer, error) {
	var offers []*offer
	for _, manager := range m.list {
		stepper, ok := manager.Manager.(Stepper)
		if !ok {
			continue
		}
		err := manager.guard(func() error {
			for _, step := range stepper.Steps(kind, n, ports) {
				offers = append(offers, &offer{manager, step})
			}
			return nil
		})
		if err != nil {
			return nil, fmt.Errorf("list %s steps: %w", kind, err)
		}
	}
	return offers, nil
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
	if err != nil {
		return nil, err
	}
	offers = slices.DeleteFunc(offers, func(o *offer) bool { return o.step.Name != name })
	slices.SortStableFunc(offers, compare)
	for _, o := range offers {
		m.log.Info("step starts", "step", name, "kind", string(kind), "manager", o.manager.Name())
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
	return nil, fault.MethodNotFound(name)
}
