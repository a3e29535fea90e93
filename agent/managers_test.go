package agent

import (
	"context"
	"encoding/json"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"ironroot/agent/config"
	"ironroot/agent/hardware"
	"ironroot/agent/node"
	"ironroot/internal/test/testenv"
)

// siteManager is a manager of the operator.
type siteManager struct{ hardware.Machine }

func (siteManager) Class() string                          { return "SiteHardwareManager" }
func (siteManager) Name() string                           { return "site" }
func (siteManager) Version() string                        { return "7" }
func (siteManager) Support(context.Context) hardware.Level { return hardware.ServiceProvider }

func (m siteManager) Steps(kind hardware.Kind, _ *node.Node, _ []map[string]any) []hardware.Step {
	if kind != hardware.Clean {
		return nil
	}
	return []hardware.Step{
		{Name: "count_disks", Interface: "deploy", Run: func(ctx context.Context, _ hardware.Call) (any, error) {
			disks, err := m.Disks.Disks(ctx)
			return map[string]bool{"listed": err == nil, "few": len(disks) < 1000}, err
		}},
		{Name: "erase_pstore", Interface: "deploy"},
		{Name: "explode", Interface: "deploy", Run: explode},
	}
}

func explode(context.Context, hardware.Call) (any, error) { panic("boom") }

// Every package below agent that declares a hardware manager is in the list of the built-in ones, except those for
// managers of the operator.
func TestBuiltinManagersAreListed(t *testing.T) {
	listed := map[string]bool{"hardware": true, "hardware/external": true}
	for _, m := range BuiltinManagers(&config.Config{}) {
		path := reflect.Indirect(reflect.ValueOf(m)).Type().PkgPath()
		listed[strings.TrimPrefix(path, "ironroot/agent/")] = true
	}
	declares := regexp.MustCompile(`(?m)^func \(.*\) Support\(.*context\.Context\) hardware\.Level `)
	err := fs.WalkDir(os.DirFS("."), ".", func(name string, _ fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go") {
			return err
		}
		text, err := os.ReadFile(name)
		if dir := path.Dir(name); declares.Match(text) && !listed[dir] {
			t.Errorf("builtinManagers in agent/state.go lists no manager of agent/%s", dir)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// A step of the steps file for containers cannot have the name of a built-in step, also of a manager that does not
// support this machine.
func TestBuiltinStepsAreReserved(t *testing.T) {
	file := filepath.Join(t.TempDir(), "mysteps.yaml")
	a := newAgent(Options{Config: &config.Config{Container: config.Container{ContainerStepsFile: file}}})
	builtin := a.builtinManagers()
	managers, err := hardware.Load(t.Context(), builtin, a.log)
	if err != nil {
		t.Fatal(err)
	}
	a.managers.Store(managers)
	names := map[string]bool{}
	for _, m := range builtin {
		for _, kind := range []hardware.Kind{hardware.Clean, hardware.Deploy, hardware.Service} {
			var steps []hardware.Step
			switch m := m.(type) {
			case hardware.Stepper:
				steps = m.Steps(kind, nil, nil)
			case hardware.StepLister:
				steps, _ = m.ListSteps(kind, nil, nil) // the steps file does not exist yet
			}
			for _, step := range steps {
				names[step.Name] = true
			}
		}
	}
	if !names["erase_devices"] || !names["generic_container_step"] {
		t.Fatalf("got steps %v, want those of all managers", names)
	}
	for name := range names {
		text := "steps: [{name: " + name + ", image: a, interface: deploy, reboot_requested: false, abortable: true, " +
			"priority: 0}]"
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		_, err := a.containerManager().(hardware.StepLister).ListSteps(hardware.Clean, nil, nil)
		if err == nil || !strings.Contains(err.Error(), "'"+name+"' has the name of a method or step") {
			t.Errorf("got error %v, want %s refused: add it to reserved in agent/hardware/containers/reserved.go",
				err, name)
		}
	}
}

// The steps of custom managers are listed and executed. Their erase steps need the option erase_managers. A step that
// panics fails.
//
// Parity: F5
func TestCustomManagers(t *testing.T) {
	testenv.ExpectPanics(t)
	site := func(m hardware.Machine) hardware.Manager {
		if disks, err := m.Disks.Disks(t.Context()); err == nil {
			t.Errorf("got disks %v before all managers are loaded, want an error", disks)
		}
		return siteManager{m}
	}
	for option, want := range map[string][]string{
		"":                               {"count_disks", "explode"},
		"--erase-managers=other,unknown": {"count_disks", "explode"},
		"--erase-managers=other,site":    {"count_disks", "erase_pstore", "explode"},
	} {
		t.Run(option, func(t *testing.T) {
			ironic := newIronic(t)
			args := []string{"--api-url=" + ironic.URL, "--disk-wait-attempts=0"}
			if option != "" {
				args = append(args, option)
			}
			r := startAgent(t, func(o *Options) {
				o.Destructive, o.Managers = true, []hardware.New{site}
			}, args...)
			r.beat(ironic)
			var listed struct {
				Steps map[string][]struct {
					Step string `json:"step"`
				} `json:"clean_steps"`
				Versions map[string]string `json:"hardware_manager_version"`
			}
			got := r.run("clean.get_clean_steps", `{"node":{"uuid":"`+nodeUUID+`"},"ports":[]}`)
			if err := json.Unmarshal(got.Result, &listed); err != nil {
				t.Fatalf("%v: %s", err, got.Result)
			}
			var names []string
			for _, step := range listed.Steps["SiteHardwareManager"] {
				names = append(names, step.Step)
			}
			if diff := cmp.Diff(want, names); diff != "" {
				t.Errorf("steps differ (-want +got):\n%s", diff)
			}
			delete(listed.Versions, "ContainerHardwareManager") // depends on the kernel
			managers := []string{"generic_hardware_manager", "selftest_hardware_manager", "site"}
			if diff := cmp.Diff(managers, slices.Sorted(maps.Keys(listed.Versions))); diff != "" {
				t.Errorf("managers differ (-want +got):\n%s", diff)
			}
			step := func(name string) record {
				return r.run("clean.execute_clean_step", `{"step":{"step":"`+name+`","interface":"deploy"},`+
					`"node":{"uuid":"`+nodeUUID+`"},"ports":[]}`)
			}
			got = step("explode")
			const failure = "hardware manager site: internal error: panic: boom"
			if got.Status != "FAILED" || !strings.Contains(fmt.Sprint(got.Error["details"]), failure) {
				t.Errorf("step that panics: got %s %v, want FAILED with %q", got.Status, got.Error, failure)
			}
			if got := step("count_disks"); got.Status != "SUCCEEDED" {
				t.Errorf("step: got %s %v, want SUCCEEDED", got.Status, got.Error)
			}
		})
	}
}

// Steps that choose disks fail if a Go package cannot create its manager, or an executable or a manager root is not
// usable: it could protect a disk.
func TestManagerNotUsable(t *testing.T) {
	testenv.ExpectPanics(t)
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "acme"), 0o755); err != nil { // nothing that is started
		t.Fatal(err)
	}
	for name, tt := range map[string]struct {
		change func(*Options)
		want   string // "" is a step that succeeds
	}{
		"none": {func(*Options) {}, ""},
		"executable": {
			func(o *Options) { o.ManagersDir = dir },
			"hardware manager " + dir + "/acme could select disks, but is not usable: not a regular file; " +
				"no disk is used: correct the manager, or build the image without it",
		},
		"Go package": {
			func(o *Options) {
				o.Managers = append(o.Managers, func(hardware.Machine) hardware.Manager { panic("no manager") })
			},
			"could select disks, but is not usable: internal error: panic: no manager; no disk is used: ",
		},
		"root": {
			func(o *Options) { o.RootsDir = dir },
			"hardware manager in " + dir + "/acme could select disks, but is not usable: " +
				"want a name that ends with .squashfs; no disk is used: ",
		},
	} {
		t.Run(name, func(t *testing.T) {
			ironic := newIronic(t)
			r := startAgent(t, func(o *Options) {
				o.Destructive = true
				o.Managers = []hardware.New{func(m hardware.Machine) hardware.Manager { return siteManager{m} }}
				tt.change(o)
			}, "--api-url="+ironic.URL, "--disk-wait-attempts=0")
			r.beat(ironic)
			got := r.run("clean.execute_clean_step", `{"step":{"step":"count_disks","interface":"deploy"},`+
				`"node":{"uuid":"`+nodeUUID+`"},"ports":[]}`)
			details := fmt.Sprint(got.Error["details"])
			if want := tt.want == ""; want != (got.Status == "SUCCEEDED") || !strings.Contains(details, tt.want) {
				t.Errorf("got %s %v, want success %v and %q", got.Status, got.Error, want, tt.want)
			}
		})
	}
}

// lateManager supports machines whose drivers are loaded.
type lateManager struct {
	siteManager
	settled chan struct{}
}

func (m lateManager) Support(context.Context) hardware.Level {
	select {
	case <-m.settled:
		return hardware.Mainline
	default:
		return hardware.None
	}
}

// Custom managers return their support level after the drivers are loaded. The start waits for them a minute at most.
func TestCustomManagersAfterDrivers(t *testing.T) {
	for loaded, want := range map[time.Duration]time.Duration{
		30 * time.Second: 30 * time.Second, time.Hour: time.Minute,
	} {
		synctest.Test(t, func(t *testing.T) {
			settled := make(chan struct{})
			time.AfterFunc(loaded, func() { close(settled) })
			started := time.Now()
			a := startedAgent(t, Options{Machine: loading(settled), Managers: []hardware.New{
				func(m hardware.Machine) hardware.Manager { return lateManager{siteManager{m}, settled} },
			}})
			waited := time.Since(started)
			if _, found := a.managers.Load().Versions()["site"]; waited != want || found != (loaded == want) {
				t.Errorf("drivers after %v: got manager %v after %v, want after %v", loaded, found, waited, want)
			}
			time.Sleep(time.Hour) // all timers end
		})
	}
	synctest.Test(t, func(t *testing.T) {
		started := time.Now()
		startedAgent(t, Options{Machine: loading(make(chan struct{}))})
		if waited := time.Since(started); waited != 0 {
			t.Errorf("without custom managers: the start waited %v for drivers", waited)
		}
	})
}
