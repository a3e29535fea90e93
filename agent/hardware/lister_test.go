package hardware

import (
	"context"
	"errors"
	"testing"

	"ironroot/agent/node"
)

// lister is a manager that cannot list all its steps.
type lister struct {
	fake
	listed []Step
	err    error
}

func (l *lister) Steps() {} // not Stepper's

func (l *lister) ListSteps(Kind, *node.Node, []map[string]any) ([]Step, error) {
	return l.listed, l.err
}

// Without some steps of a built-in manager nothing is listed, but everything that is known can be executed. Without the
// steps of a custom manager nothing can be executed: another manager's step could run in place of one.
func TestStepsThatCannotBeListed(t *testing.T) {
	run := func(context.Context, Call) (any, error) { return "done", nil }
	broken := errors.New("broken file")
	for _, custom := range []bool{false, true} {
		l := &lister{
			fake: fake{class: "L", level: 2}, listed: []Step{{Name: "listed", Run: run}}, err: broken,
		}
		var manager Manager = l
		if custom {
			manager = Custom{Manager: l}
		}
		m := load(t, manager, &fake{class: "A", level: 1, steps: []Step{{Name: "other", Run: run}}})
		if got, err := m.Steps(Clean, nil, nil); !errors.Is(err, broken) || got != nil {
			t.Errorf("custom %v: got steps %v and %v, want %v", custom, got, err, broken)
		}
		for name, known := range map[string]bool{"listed": true, "other": true, "unknown": false} {
			got, err := m.Execute(t.Context(), Clean, name, Call{})
			want := known && !custom
			if want != (err == nil) || want != (got == "done") || !want && !errors.Is(err, broken) {
				t.Errorf("custom %v: step %s: got %v and %v", custom, name, got, err)
			}
		}
		if _, err := m.StepNames("A", nil, nil); !errors.Is(err, broken) {
			t.Errorf("custom %v: names of steps: got %v, want %v", custom, err, broken)
		}
		if names, err := m.StepNames("L", nil, nil); err != nil || !names["other"] || len(names) != 1 {
			t.Errorf("custom %v: got names %v and %v, want other", custom, names, err)
		}
	}
}
