package hardware

import (
	"context"

	"ironroot/agent/fault"
	"ironroot/agent/node"
)

// Steps lists the steps of a kind by the class name of the manager that offers them. Where several managers offer a
// step of the same name, the one with the higher support level stays, then the higher priority, then the
// alphabetically first class name. Managers that lose all their steps do not appear.
func (m *Managers) Steps(kind Kind, n *node.Node, ports []map[string]any) map[string][]Step {
	type offer struct {
		manager leveled
		step    Step
	}
	best := map[string]offer{}
	var offers []offer
	for _, manager := range m.list {
		stepper, ok := manager.Manager.(Stepper)
		if !ok {
			continue
		}
		for _, step := range stepper.Steps(kind, n, ports) {
			o := offer{manager, step}
			offers = append(offers, o)
			if other, taken := best[step.Name]; !taken || beats(o.manager, o.step, other.manager, other.step) {
				best[step.Name] = o
			}
		}
	}
	result := map[string][]Step{}
	for _, o := range offers {
		if best[o.step.Name].manager.Manager == o.manager.Manager {
			result[o.manager.Class()] = append(result[o.manager.Class()], o.step)
		}
	}
	return result
}

func beats(m leveled, s Step, other leveled, otherStep Step) bool {
	if m.level != other.level {
		return m.level > other.level
	}
	if s.Priority != otherStep.Priority {
		return s.Priority > otherStep.Priority
	}
	return m.Class() < other.Class()
}

// Execute runs the step of that kind and name on the best manager that offers it; a manager that answers
// fault.IncompatibleHardware hands over to the next one. A step that nobody offers is a fault naming it.
func (m *Managers) Execute(ctx context.Context, kind Kind, name string, call Call) (any, error) {
	for _, manager := range m.list {
		stepper, ok := manager.Manager.(Stepper)
		if !ok {
			continue
		}
		for _, step := range stepper.Steps(kind, call.Node, call.Ports) {
			if step.Name != name {
				continue
			}
			m.log.Info("step starts", "step", name, "kind", string(kind), "manager", manager.Name())
			result, err := step.Run(ctx, call)
			if incompatible(err) {
				m.log.Warn("step not possible with this manager", "step", name, "manager", manager.Name(), "err", err)
				break
			}
			return result, err
		}
	}
	return nil, fault.MethodNotFound(name)
}
