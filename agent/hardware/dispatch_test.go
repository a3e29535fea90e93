package hardware

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"testing"

	"ironroot/agent/node"
	"ironroot/storage/block"
)

// bare is a manager without optional methods.
type bare struct{ Manager }

// waiter is a manager that waits for disks.
type waiter struct {
	Manager
	wait func(*node.Node) error
}

func (w waiter) WaitDisks(_ context.Context, n *node.Node) error { return w.wait(n) }

// A manager without the method is skipped, regardless of its level.
func TestManagersWithoutMethods(t *testing.T) {
	one := func() ([]block.Device, error) { return []block.Device{{Name: "sda", Path: "/dev/sda"}}, nil }
	keep := func(block.Device) (bool, error) { return true, nil }
	run := func(context.Context, Call) (any, error) { return "done", nil }
	var log []string
	m := load(t, bare{&fake{class: "Bare", level: 3}},
		&fake{class: "A", level: 1, log: &log, disks: one, keep: keep, steps: []Step{{Name: "erase", Run: run}}})
	if disks, err := m.Disks(t.Context()); err != nil || len(disks) != 1 {
		t.Errorf("Disks: got %v and %v, want one", disks, err)
	}
	if got := stepsOf(m); len(got) != 1 || !slices.Equal(got["A"], []string{"erase"}) {
		t.Errorf("Steps: got %v, want those of A", got)
	}
	if got, err := m.Execute(t.Context(), Clean, "erase", Call{}); err != nil || got != "done" {
		t.Errorf("Execute: got %v and %v, want done", got, err)
	}
	log = nil
	if err := m.Sync(t.Context()); err != nil || !slices.Equal(log, []string{"sync A"}) {
		t.Errorf("Sync: got calls %v and %v, want A synced", log, err)
	}
	if err := m.WaitDisks(t.Context(), nil); typeOf(err) != "HardwareManagerMethodNotFound" {
		t.Errorf("WaitDisks: got %v, want HardwareManagerMethodNotFound", err)
	}
}

// Errors of a manager are returned to the caller.
func TestManagersErrors(t *testing.T) {
	broken := errors.New("broken")
	one := func() ([]block.Device, error) { return []block.Device{{Name: "sda", Path: "/dev/sda"}}, nil }
	keep := func(block.Device) (bool, error) { return true, nil }
	m := load(t, &fake{
		class: "A", level: 1, disks: one, keep: func(block.Device) (bool, error) { return true, broken },
	})
	if disks, err := m.Disks(t.Context()); !errors.Is(err, broken) || len(disks) > 0 {
		t.Errorf("filter: got %v and %v, want no disks and %v", disks, err, broken)
	}
	some := func() ([]block.Device, error) { return []block.Device{{Name: "sda", Path: "/dev/sda"}}, broken }
	m = load(t, &fake{class: "A", level: 1, disks: some, keep: keep})
	if disks, err := m.Disks(t.Context()); !errors.Is(err, broken) || len(disks) != 1 {
		t.Errorf("list: got %v and %v, want the disk and %v", disks, err, broken)
	}
	if err := load(t, &fake{class: "A", level: 1, sync: broken}).Sync(t.Context()); !errors.Is(err, broken) {
		t.Errorf("Sync: got %v, want %v", err, broken)
	}
	var waited *node.Node
	n := nodeFrom(t, `{"uuid": "u"}`)
	m = load(t, waiter{&fake{class: "A", level: 1}, func(n *node.Node) error { waited = n; return broken }})
	if err := m.WaitDisks(t.Context(), n); !errors.Is(err, broken) || waited != n {
		t.Errorf("WaitDisks: got node %v and %v, want the caller's and %v", waited, err, broken)
	}
	run := func(context.Context, Call) (any, error) { return nil, broken }
	other := func(context.Context, Call) (any, error) { return "done", nil }
	m = load(t, &fake{class: "A", level: 2, steps: []Step{{Name: "erase", Run: run}}},
		&fake{class: "B", level: 1, steps: []Step{{Name: "erase", Run: other}}})
	if got, err := m.Execute(t.Context(), Clean, "erase", Call{}); !errors.Is(err, broken) || got != nil {
		t.Errorf("Execute: got %v and %v, want %v", got, err, broken)
	}
}

func nodeFrom(t *testing.T, text string) *node.Node {
	t.Helper()
	n, err := node.FromJSON(json.RawMessage(text))
	if err != nil {
		t.Fatal(err)
	}
	return n
}
