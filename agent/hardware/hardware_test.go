package hardware

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"ironroot/agent/fault"
	"ironroot/agent/node"
	"ironroot/storage/block"
)

var quiet = slog.New(slog.DiscardHandler)

// fake is a manager with configurable results.
type fake struct {
	class string
	level Level
	log   *[]string // what was called, over all managers
	steps []Step
	init  error
	disks func() ([]block.Device, error)
	keep  func(block.Device) (bool, error)
	sync  error
}

func (f *fake) Class() string   { return f.class }
func (f *fake) Name() string    { return "name_of_" + f.class }
func (f *fake) Version() string { return "1" }
func (f *fake) note(what string) {
	if f.log != nil {
		*f.log = append(*f.log, what+" "+f.class)
	}
}

func (f *fake) Support(context.Context) Level { f.note("evaluate"); return f.level }

func (f *fake) Initialize(context.Context) error                { f.note("initialize"); return f.init }
func (f *fake) Steps(Kind, *node.Node, []map[string]any) []Step { return f.steps }
func (f *fake) Sync(context.Context) error                      { f.note("sync"); return f.sync }
func (f *fake) Disks(context.Context) ([]block.Device, error)   { f.note("disks"); return f.disks() }

func (f *fake) FilterDevice(_ context.Context, d block.Device) (block.Device, bool, error) {
	if f.keep == nil {
		return d, false, fmt.Errorf("no opinion: %w", ErrIncompatible)
	}
	keep, err := f.keep(d)
	return d, keep, err
}

func load(t *testing.T, list ...Manager) *Managers {
	t.Helper()
	m, err := Load(t.Context(), list, quiet)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func typeOf(err error) string {
	var f *fault.Error
	if errors.As(err, &f) {
		return f.Type
	}
	return ""
}

// Parity: F1
func TestLoadEvaluatesAllThenInitialisesBestFirst(t *testing.T) {
	var log []string
	m := load(t,
		&fake{class: "Generic", level: 1, log: &log},
		&fake{class: "Absent", level: 0, log: &log},
		&fake{class: "Site", level: 3, log: &log},
		&fake{class: "Twin", level: 3, log: &log},
	)
	want := []string{
		"evaluate Generic", "evaluate Absent", "evaluate Site", "evaluate Twin",
		"initialize Site", "initialize Twin", "initialize Generic",
	}
	if diff := cmp.Diff(want, log); diff != "" {
		t.Errorf("calls differ (-want +got):\n%s", diff)
	}
	names := []NameVersion{{"name_of_Site", "1"}, {"name_of_Twin", "1"}, {"name_of_Generic", "1"}}
	if diff := cmp.Diff(names, m.List()); diff != "" {
		t.Errorf("managers differ (-want +got):\n%s", diff)
	}
}

func TestLoadWithoutManagers(t *testing.T) {
	_, err := Load(t.Context(), []Manager{&fake{class: "Absent"}}, quiet)
	if got, want := typeOf(err), "HardwareManagerNotFound"; got != want {
		t.Errorf("got %q (%v), want %q", got, err, want)
	}
	broken := errors.New("broken")
	failing := []Manager{&fake{class: "A", level: 1, init: broken}}
	if _, err := Load(t.Context(), failing, quiet); !errors.Is(err, broken) {
		t.Errorf("initialise: got %v, want %v", err, broken)
	}
}

// Parity: F1
func TestDispatch(t *testing.T) {
	incompatible := func() ([]block.Device, error) { return nil, fmt.Errorf("not mine: %w", ErrIncompatible) }
	empty := func() ([]block.Device, error) { return nil, nil }
	one := func() ([]block.Device, error) { return []block.Device{{Name: "sda"}}, nil }
	broken := func() ([]block.Device, error) { return nil, errors.New("broken") }
	for _, tt := range []struct {
		name   string
		best   func() ([]block.Device, error)
		second func() ([]block.Device, error)
		want   int
		err    string
		calls  []string
	}{
		{"the best answers", one, broken, 1, "", []string{"disks A"}},
		{"an empty answer counts", empty, one, 0, "", []string{"disks A"}},
		{"incompatible hands over", incompatible, one, 1, "", []string{"disks A", "disks B"}},
		{"an error ends the chain", broken, one, 0, "broken", []string{"disks A"}},
		{
			"nobody answers", incompatible, incompatible, 0,
			"No HardwareManager found to handle method: Could not find method: list",
			[]string{"disks A", "disks B"},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var log []string
			m := load(t, &fake{class: "B", level: 1, log: &log, disks: tt.second},
				&fake{class: "A", level: 2, log: &log, disks: tt.best})
			log = nil
			got, err := Dispatch(m, "list", func(l DiskLister) ([]block.Device, error) { return l.Disks(t.Context()) })
			text := ""
			if err != nil {
				text = err.Error()
			}
			if len(got) != tt.want || text != tt.err {
				t.Errorf("got %d devices and error %q, want %d and %q", len(got), text, tt.want, tt.err)
			}
			if !slices.Equal(log, tt.calls) {
				t.Errorf("got calls %v, want %v", log, tt.calls)
			}
		})
	}
}

// Parity: F1
func TestDispatchAll(t *testing.T) {
	var log []string
	call := func(s Syncer) (int, error) { return 7, s.Sync(t.Context()) }
	m := load(t,
		&fake{class: "C", level: 1, log: &log},
		&fake{class: "B", level: 2, log: &log, sync: fmt.Errorf("not mine: %w", ErrIncompatible)},
		&fake{class: "A", level: 3, log: &log},
	)
	log = nil
	got, err := DispatchAll(m, "full_sync", call)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(map[string]int{"A": 7, "C": 7}, got); diff != "" {
		t.Errorf("results differ (-want +got):\n%s", diff)
	}
	if want := []string{"sync A", "sync B", "sync C"}; !slices.Equal(log, want) {
		t.Errorf("got calls %v, want %v", log, want)
	}
	broken := errors.New("broken")
	m = load(t, &fake{class: "A", level: 3, sync: broken}, &fake{class: "B", level: 2, log: &log})
	log = nil
	if _, err := DispatchAll(m, "full_sync", call); !errors.Is(err, broken) || len(log) != 0 {
		t.Errorf("got error %v and calls %v, want %v and none", err, log, broken)
	}
	m = load(t, &fake{class: "A", level: 3, sync: fmt.Errorf("not mine: %w", ErrIncompatible)})
	if _, err := DispatchAll(m, "full_sync", call); typeOf(err) != "HardwareManagerMethodNotFound" {
		t.Errorf("nobody: got %v, want HardwareManagerMethodNotFound", err)
	}
}

func TestDisksLeavesOutWhatAManagerFilters(t *testing.T) {
	disks := func() ([]block.Device, error) {
		return []block.Device{
			{Name: "sda", Path: "/dev/sda"}, {Name: "sdb", Path: "/dev/sdb"}, {Name: "sdc", Path: "/dev/sdc"},
		}, nil
	}
	m := load(t,
		&fake{class: "Generic", level: 1, disks: disks, keep: func(block.Device) (bool, error) { return true, nil }},
		&fake{
			class: "Site", level: 3,
			disks: func() ([]block.Device, error) { return nil, fmt.Errorf("lists none: %w", ErrIncompatible) },
			keep: func(d block.Device) (bool, error) {
				if d.Name == "sdc" {
					return false, fmt.Errorf("no opinion: %w", ErrIncompatible)
				}
				return d.Name != "sdb", nil
			},
		},
	)
	got, err := m.Disks(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, d := range got {
		names = append(names, d.Name)
	}
	if want := []string{"sda", "sdc"}; !slices.Equal(names, want) {
		t.Errorf("got %v, want %v", names, want)
	}
}

// renaming is a manager that keeps disks under another name.
type renaming struct{ *fake }

func (r renaming) FilterDevice(_ context.Context, d block.Device) (block.Device, bool, error) {
	r.note("filter " + d.Name)
	d.Name += " of " + r.class
	return d, true, nil
}

// A manager protects disks whatever the others answer and whatever its level is. The answer of the best one is kept.
func TestFilterAsksAllManagers(t *testing.T) {
	answers := func(keep bool, err error) func(block.Device) (bool, error) {
		return func(block.Device) (bool, error) { return keep, err }
	}
	broken := errors.New("broken")
	var log []string
	builtIn := &fake{class: "Generic", level: 1, keep: answers(true, nil)}
	first := renaming{&fake{class: "First", level: 3, log: &log}}
	site := func(level Level, keep func(block.Device) (bool, error)) Manager {
		return &fake{class: "Site", level: level, keep: keep}
	}
	second := renaming{&fake{class: "Second", level: 2, log: &log}}
	for _, tt := range []struct {
		name string
		list []Manager
		want string // "" is no disk
		err  error
	}{
		{"level of the built-in one", []Manager{site(1, answers(false, nil))}, "", nil},
		{"below another", []Manager{first, site(2, answers(false, nil))}, "", nil},
		{"fails below another", []Manager{first, site(1, answers(true, broken))}, "", broken},
		{"all keep it", []Manager{second, first}, "sda of First", nil},
		{"no opinion", []Manager{site(3, nil), second}, "sda of Second", nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			list := []Manager{builtIn}
			for _, m := range tt.list {
				list = append(list, Custom{Manager: m})
			}
			m := load(t, list...)
			log = nil
			got, err := m.Filter(t.Context(), []block.Device{{Name: "sda", Path: "/dev/sda"}})
			name := ""
			if len(got) == 1 {
				name = got[0].Name
			}
			if name != tt.want || len(got) > 1 || !errors.Is(err, tt.err) {
				t.Errorf("got %v and %v, want %q and %v", got, err, tt.want, tt.err)
			}
			for _, call := range log { // all are asked about the same device
				if !strings.HasPrefix(call, "filter sda ") || strings.Contains(call, " of ") {
					t.Errorf("got call %q, want the device as it was listed", call)
				}
			}
		})
	}
	m := load(t, &fake{class: "Site", level: 1})
	if got, err := m.Filter(t.Context(), make([]block.Device, 1)); typeOf(err) != "HardwareManagerMethodNotFound" {
		t.Errorf("nobody has an opinion: got %v and %v, want HardwareManagerMethodNotFound", got, err)
	}
}

// The disks of a custom manager are listed, although the built-in one has the same level.
func TestCustomManagerOfBuiltInLevelListsDisks(t *testing.T) {
	lists := func(names ...string) func() ([]block.Device, error) {
		return func() ([]block.Device, error) {
			var list []block.Device
			for _, name := range names {
				list = append(list, block.Device{Name: name, Path: "/dev/" + name})
			}
			return list, nil
		}
	}
	keep := func(block.Device) (bool, error) { return true, nil }
	m := load(t, &fake{class: "Generic", level: 1, disks: lists("sda", "sdb"), keep: keep},
		Custom{Manager: &fake{class: "Site", level: 1, disks: lists("sdb"), keep: keep}})
	if got, err := m.Disks(t.Context()); err != nil || len(got) != 1 || got[0].Name != "sdb" {
		t.Errorf("got %v and %v, want sdb", got, err)
	}
}

func stepsOf(m *Managers) map[string][]string {
	got := map[string][]string{}
	listed, err := m.Steps(Clean, nil, nil)
	if err != nil {
		panic(err)
	}
	for class, steps := range listed {
		for _, s := range steps {
			got[class] = append(got[class], s.Name)
		}
	}
	return got
}

// The manager for which a step is listed also runs it, ties included.
//
// Parity: F3 (steps of the same name)
func TestStepsOfTheSameName(t *testing.T) {
	step := func(priority int) []Step { return []Step{{Name: "erase", Priority: priority}} }
	for _, tt := range []struct {
		name     string
		managers []Manager
		want     string
	}{
		{
			"higher level",
			[]Manager{&fake{class: "A", level: 1, steps: step(99)}, &fake{class: "B", level: 2, steps: step(1)}},
			"B",
		},
		{
			"same level, higher priority",
			[]Manager{&fake{class: "A", level: 2, steps: step(1)}, &fake{class: "B", level: 2, steps: step(5)}},
			"B",
		},
		{
			"same level and priority, first class name",
			[]Manager{&fake{class: "B", level: 2, steps: step(5)}, &fake{class: "A", level: 2, steps: step(5)}},
			"A",
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			for _, manager := range tt.managers {
				class := manager.Class()
				manager.(*fake).steps[0].Run = func(context.Context, Call) (any, error) { return class, nil }
			}
			want := map[string][]string{tt.want: {"erase"}}
			m := load(t, tt.managers...)
			if diff := cmp.Diff(want, stepsOf(m)); diff != "" {
				t.Errorf("steps differ (-want +got):\n%s", diff)
			}
			if got, err := m.Execute(t.Context(), Clean, "erase", Call{}); err != nil || got != tt.want {
				t.Errorf("got %v and %v, want a run by %s", got, err, tt.want)
			}
		})
	}
	m := load(t, &fake{class: "A", level: 2, steps: step(5)},
		&fake{class: "B", level: 1, steps: []Step{{Name: "erase"}, {Name: "own"}}})
	if diff := cmp.Diff(map[string][]string{"A": {"erase"}, "B": {"own"}}, stepsOf(m)); diff != "" {
		t.Errorf("a manager keeps the steps it alone has (-want +got):\n%s", diff)
	}
}

func TestExecute(t *testing.T) {
	answer := func(result any, err error) StepFunc {
		return func(context.Context, Call) (any, error) { return result, err }
	}
	m := load(t,
		&fake{class: "A", level: 2, steps: []Step{
			{Name: "erase", Run: answer(nil, fmt.Errorf("not mine: %w", ErrIncompatible))},
		}},
		&fake{class: "B", level: 1, steps: []Step{{Name: "erase", Run: answer("by B", nil)}}},
	)
	got, err := m.Execute(t.Context(), Clean, "erase", Call{})
	if err != nil || got != "by B" {
		t.Errorf("got %v and %v, want the next manager's answer", got, err)
	}
	if _, err := m.Execute(t.Context(), Clean, "unknown", Call{}); typeOf(err) != "HardwareManagerMethodNotFound" {
		t.Errorf("unknown step: got %v, want HardwareManagerMethodNotFound", err)
	}
}

func TestVersions(t *testing.T) {
	m := load(t, &fake{class: "A", level: 2}, &fake{class: "B", level: 1})
	current := map[string]string{"name_of_A": "1", "name_of_B": "1"}
	for _, tt := range []struct {
		name     string
		provided map[string]string
		want     string
	}{
		{"none", nil, ""},
		{"equal", current, ""},
		{"another version", map[string]string{"name_of_A": "1", "name_of_B": "2"}, "VersionMismatch"},
		{"one manager less", map[string]string{"name_of_A": "1"}, "VersionMismatch"},
		{"empty", map[string]string{}, "VersionMismatch"},
	} {
		if got := typeOf(m.CheckVersions(tt.provided)); got != tt.want {
			t.Errorf("%s: got %q, want %q", tt.name, got, tt.want)
		}
	}
}
