package hardware

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"

	"ironroot/agent/node"
	"ironroot/internal/test/testenv"
	"ironroot/storage/block"
)

// named is a manager with another name than its class suggests.
type named struct {
	*fake
	name string
}

func (n named) Name() string { return n.name }

// stepsBy returns steps whose result is by.
func stepsBy(by string, names ...string) []Step {
	var steps []Step
	for _, name := range names {
		steps = append(steps, Step{Name: name, Run: func(context.Context, Call) (any, error) { return by, nil }})
	}
	return steps
}

// A custom manager replaces built-in steps, which is logged, but steps that erase only with permission.
func TestCustomManagerReplacesSteps(t *testing.T) {
	for _, permitted := range []bool{false, true} {
		t.Run(fmt.Sprint(permitted), func(t *testing.T) {
			var log bytes.Buffer
			erasers := []string{"other"}
			if permitted {
				erasers = append(erasers, "name_of_Site")
			}
			m, err := Load(t.Context(), []Manager{
				&fake{class: "Generic", level: 1, steps: stepsBy("Generic", "erase_devices", "write_image", "own")},
				Custom{
					Manager: &fake{
						class: "Site", level: 2, steps: stepsBy("Site", "erase_devices", "write_image", "erase_site"),
					},
					EraseManagers: erasers,
				},
			}, slog.New(slog.NewTextHandler(&log, nil)))
			if err != nil {
				t.Fatal(err)
			}
			want := map[string][]string{"Generic": {"erase_devices", "own"}, "Site": {"write_image", "erase_site"}}
			if permitted {
				want = map[string][]string{"Generic": {"own"}, "Site": {"erase_devices", "write_image", "erase_site"}}
			}
			if diff := cmp.Diff(want, stepsOf(m)); diff != "" {
				t.Errorf("steps differ (-want +got):\n%s", diff)
			}
			for class, names := range want {
				for _, name := range names {
					if got, err := m.Execute(t.Context(), Clean, name, Call{}); err != nil || got != class {
						t.Errorf("%s: got %v and %v, want a run by %s", name, got, err, class)
					}
				}
			}
			for _, line := range []struct {
				text   string
				wanted bool
			}{
				{`msg="custom hardware manager loaded" manager=name_of_Site version=1 level=2 methods=steps,`, true},
				{`msg="built-in step replaced by custom hardware manager" step=write_image manager=name_of_Site ` +
					`replaced=name_of_Generic`, true},
				{`replaced by custom hardware manager" step=erase_devices`, permitted},
				{`it may not replace a built-in erase step" step=erase_devices manager=name_of_Site`, !permitted},
				{`step=erase_site manager=name_of_Site replaced`, false},
			} {
				text, wanted := line.text, line.wanted
				if strings.Contains(log.String(), text) != wanted {
					t.Errorf("log contains %q: got %v, want %v:\n%s", text, !wanted, wanted, log.String())
				}
			}
		})
	}
}

// A built-in erase step is protected in steps of every kind, not only of its own.
func TestCustomManagerErasesInOtherKind(t *testing.T) {
	builtIn := kinds{&fake{class: "Generic", level: 1}, map[Kind][]Step{Clean: stepsBy("Generic", "erase_devices")}}
	site := &fake{class: "Site", level: 2, steps: stepsBy("Site", "erase_devices")}
	m := load(t, builtIn, Custom{Manager: site})
	got, err := m.Steps(Deploy, nil, nil)
	if err != nil || len(got) != 0 {
		t.Errorf("got deploy steps %v and %v, want none", got, err)
	}
	_, err = m.Execute(t.Context(), Deploy, "erase_devices", Call{})
	if typeOf(err) != "HardwareManagerMethodNotFound" {
		t.Errorf("got %v, want HardwareManagerMethodNotFound", err)
	}
}

// A custom manager needs a name and a class of its own.
func TestCustomManagerNames(t *testing.T) {
	for _, tt := range []struct {
		name    string
		manager Manager
		want    []string
	}{
		{"own", &fake{class: "Site", level: 2}, []string{"name_of_Site", "name_of_Generic"}},
		{"same class", named{&fake{class: "Generic", level: 2}, "site"}, []string{"name_of_Generic"}},
		{"same name", named{&fake{class: "Site", level: 2}, "name_of_Generic"}, []string{"name_of_Generic"}},
		{"no name", named{&fake{class: "Site", level: 2}, ""}, []string{"name_of_Generic"}},
		{"no class", named{&fake{level: 2}, "site"}, []string{"name_of_Generic"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var got []string
			for _, m := range load(t, &fake{class: "Generic", level: 1}, Custom{Manager: tt.manager}).List() {
				got = append(got, m.Name)
			}
			if !slices.Equal(got, tt.want) {
				t.Errorf("got managers %q, want %q", got, tt.want)
			}
		})
	}
}

// broken is a manager with one method that panics, and one that waits for release.
type broken struct {
	Manager
	panics, hangs string
	release       chan struct{}
}

func (b broken) call(method string) {
	if b.panics == method {
		panic("broken " + method)
	}
	if b.hangs == method {
		<-b.release
	}
}

func (b broken) Version() string                   { b.call("Version"); return "1" }
func (b broken) Support(ctx context.Context) Level { b.call("Support"); return b.Manager.Support(ctx) }
func (b broken) Initialize(context.Context) error  { b.call("Initialize"); return nil }
func (b broken) Sync(context.Context) error        { b.call("Sync"); return nil }

func (b broken) WaitDisks(context.Context, *node.Node) error { b.call("WaitDisks"); return nil }

func (b broken) Steps(Kind, *node.Node, []map[string]any) []Step {
	b.call("Steps")
	return []Step{{Name: "own", Run: func(context.Context, Call) (any, error) { b.call("Run"); return "own", nil }}}
}

// selecting is a broken manager that keeps all disks.
type selecting struct{ broken }

func (selecting) FilterDevice(_ context.Context, d block.Device) (block.Device, bool, error) {
	return d, true, nil
}

// A custom manager that panics or hangs at the start is not used, and the log names it. If it selects disks, no disks
// are listed.
func TestCustomManagerFailsAtStart(t *testing.T) {
	testenv.ExpectPanics(t)
	disks := func() ([]block.Device, error) { return []block.Device{{Path: "/dev/sda"}}, nil }
	builtIn := &fake{
		class: "Generic", level: 1, disks: disks, keep: func(block.Device) (bool, error) { return true, nil },
		steps: stepsBy("Generic", "erase_devices"),
	}
	for _, tt := range []struct{ panics, hangs, log string }{
		{"", "", `msg="custom hardware manager loaded" manager=name_of_Site`},
		{"Version", "", `err="internal error: panic: broken Version"`},
		{"Support", "", `manager=name_of_Site err="evaluate support: internal error: panic: broken Support"`},
		{"Initialize", "", `manager=name_of_Site err="initialise: internal error: panic: broken Initialize"`},
		{"", "Version", `err="not done within 1m0s"`},
		{"", "Support", `manager=name_of_Site err="evaluate support: not done within 1m0s"`},
		{"", "Initialize", `manager=name_of_Site err="initialise: not done within 1m0s"`},
	} {
		t.Run(tt.panics+tt.hangs, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				site := broken{&fake{class: "Site", level: 2}, tt.panics, tt.hangs, make(chan struct{})}
				defer close(site.release)
				for _, manager := range []Manager{site, selecting{site}} {
					var log bytes.Buffer
					m, err := Load(t.Context(), []Manager{builtIn, Custom{Manager: manager}},
						slog.New(slog.NewTextHandler(&log, nil)))
					if err != nil {
						t.Fatal(err)
					}
					if !strings.Contains(log.String(), tt.log) {
						t.Errorf("log lacks %s:\n%s", tt.log, log.String())
					}
					usable := tt.panics+tt.hangs == ""
					want := map[string][]string{"Generic": {"erase_devices"}}
					if usable {
						want["Site"] = []string{"own"}
					}
					if diff := cmp.Diff(want, stepsOf(m)); diff != "" || len(m.List()) != len(want) {
						t.Errorf("got managers %v, and steps differ (-want +got):\n%s", m.List(), diff)
					}
					_, selects := manager.(DeviceFilter)
					if found, err := m.Disks(t.Context()); (len(found) == 1) == (selects && !usable) ||
						err != nil && !strings.Contains(err.Error(), "selects disks, but is not usable: ") {
						t.Errorf("selects %v: got disks %v and %v", selects, found, err)
					}
				}
			})
		})
	}
}

// unrated is a manager that cannot determine its support level.
type unrated struct {
	*fake
	err error
}

func (u unrated) Evaluate(context.Context) (Level, error) { return Mainline, u.err }

// bareUnrated is one that neither lists nor filters disks.
type bareUnrated struct{ unrated }

func (bareUnrated) Disks()        {} // not DiskLister's
func (bareUnrated) FilterDevice() {} // not DeviceFilter's

// Without a manager that selects disks and cannot be evaluated, or that could not be loaded at all, no disks are
// listed. The error names all such managers, with their reasons. The steps of the others are listed.
func TestManagersThatCannotBeEvaluated(t *testing.T) {
	disks := func() ([]block.Device, error) { return []block.Device{{Path: "/dev/sda"}}, nil }
	builtIn := &fake{
		class: "Generic", level: 1, disks: disks, keep: func(block.Device) (bool, error) { return true, nil },
		steps: stepsBy("Generic", "erase_devices"),
	}
	broken := errors.New("broken adapter")
	site := unrated{&fake{class: "Site"}, broken}
	absent := Unusable("/managers/absent", broken)
	const (
		siteError = "hardware manager name_of_Site selects disks, but is not usable: evaluate support: broken adapter"
		absentErr = "hardware manager /managers/absent could select disks, but is not usable: broken adapter"
		advice    = "; no disk is used: correct the manager, or build the image without it"
	)
	for _, tt := range []struct {
		name   string
		custom []Manager
		want   string
	}{
		{"no opinion on disks", []Manager{bareUnrated{site}}, ""},
		{"selects disks", []Manager{site}, siteError + advice},
		{"not loaded", []Manager{absent}, absentErr + advice},
		{"both", []Manager{site, absent}, siteError + "; " + absentErr + advice},
	} {
		t.Run(tt.name, func(t *testing.T) {
			list := []Manager{builtIn}
			for _, m := range tt.custom {
				list = append(list, Custom{Manager: m})
			}
			m := load(t, list...)
			want := map[string][]string{"Generic": {"erase_devices"}}
			if diff := cmp.Diff(want, stepsOf(m)); diff != "" || len(m.List()) != 1 {
				t.Errorf("got managers %v, and steps differ (-want +got):\n%s", m.List(), diff)
			}
			got, err := m.Disks(t.Context())
			switch {
			case tt.want == "" && (err != nil || len(got) != 1):
				t.Errorf("got %v and %v, want the disk", got, err)
			case tt.want != "" && (err == nil || err.Error() != tt.want || len(got) != 0):
				t.Errorf("got %v and %v, want %s", got, err, tt.want)
			}
		})
	}
	m := load(t, builtIn, Custom{Manager: unrated{&fake{class: "Site", level: None}, nil}})
	if got := m.List(); len(got) != 2 || got[0].Name != "name_of_Site" {
		t.Errorf("got managers %v, want the level of Evaluate", got)
	}
}

// A panic of a custom manager in a call is an error that names the manager.
func TestCustomManagerPanics(t *testing.T) {
	testenv.ExpectPanics(t)
	builtIn := &fake{class: "Generic", level: 1, steps: stepsBy("Generic", "erase_devices")}
	for _, tt := range []struct {
		panics string
		call   func(*Managers) error
	}{
		{"Steps", func(m *Managers) error { _, err := m.Steps(Clean, nil, nil); return err }},
		{"Steps", func(m *Managers) error {
			_, err := m.Execute(t.Context(), Clean, "erase_devices", Call{})
			return err
		}},
		{"Run", func(m *Managers) error { _, err := m.Execute(t.Context(), Clean, "own", Call{}); return err }},
		{"Sync", func(m *Managers) error { return m.Sync(t.Context()) }},
		{"WaitDisks", func(m *Managers) error { return m.WaitDisks(t.Context(), nil) }},
	} {
		site := broken{Manager: &fake{class: "Site", level: 2}, panics: tt.panics}
		m := load(t, builtIn, Custom{Manager: site})
		want := "hardware manager name_of_Site: internal error: panic: broken " + tt.panics
		if err := tt.call(m); err == nil || !strings.HasSuffix(err.Error(), want) {
			t.Errorf("%s: got %v, want %q", tt.panics, err, want)
		}
	}
}

func panicking(Machine) Manager { panic("broken New") }

// In place of a manager that cannot be created there is one that says why, and names the function.
func TestCreate(t *testing.T) {
	testenv.ExpectPanics(t)
	const function = "of ironroot/agent/hardware."
	for _, tt := range []struct {
		create New
		want   unusable
	}{
		{panicking, unusable{function + "panicking", errors.New("internal error: panic: broken New")}},
		{
			func(Machine) Manager { return nil },
			unusable{function + "TestCreate.func1", errors.New("got nil, want a manager")},
		},
	} {
		got, isUnusable := tt.create.Create(t.Context(), Machine{}).(*unusable)
		if !isUnusable || got.name != tt.want.name || got.err.Error() != tt.want.err.Error() {
			t.Errorf("got %+v, want %+v", got, tt.want)
		}
	}
}

// kinds is a manager with other steps for each kind.
type kinds struct {
	Manager
	steps map[Kind][]Step
}

func (k kinds) Steps(kind Kind, _ *node.Node, _ []map[string]any) []Step { return k.steps[kind] }
