package containers

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"ironroot/agent/config"
	"ironroot/agent/fault"
	"ironroot/agent/hardware"
	"ironroot/agent/node"
)

// tool is a steps file with two steps.
const tool = `
# Steps of the site.
steps:
- name: update_firmware
  image: docker://registry.example/firmware:2
  interface: management
  reboot_requested: yes
  abortable: false
  priority: 30
- name: check_disks
  image: registry.example/check@sha256:` + digest + `
  interface: deploy
  reboot_requested: false
  abortable: true
  priority: 0
  pull_options: --tls-verify=false
  run_options: [--privileged, "-e MODE=long"]
`

const digest = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"

// rig is a manager in a set of managers, whose runtime records its jobs.
type rig struct {
	unavailable error
	container   config.Container
	managers    *hardware.Managers
	jobs        []Job
	err         error // of the next jobs
	log         bytes.Buffer
}

// newRig returns a rig with the default configuration and the steps file, "" for none.
func newRig(t *testing.T, file string, others ...hardware.Manager) *rig {
	t.Helper()
	r := &rig{}
	r.container.RunOptions = []string{"--rm", "--network=host"}
	r.container.ContainerStepsFile = filepath.Join(t.TempDir(), "mysteps.yaml")
	if file != "" {
		if err := os.WriteFile(r.container.ContainerStepsFile, []byte(file), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return r.load(t, others...)
}

// StepNames implements [StepNamer].
func (r *rig) StepNames(class string, n *node.Node, ports []map[string]any) (map[string]bool, error) {
	return r.managers.StepNames(class, n, ports)
}

// Available implements [Runtime].
func (r *rig) Available() error { return r.unavailable }

// Run implements [Runtime].
func (r *rig) Run(_ context.Context, job Job) error {
	r.jobs = append(r.jobs, job)
	return r.err
}

func (r *rig) load(t *testing.T, others ...hardware.Manager) *rig {
	t.Helper()
	log := slog.New(slog.NewTextHandler(&r.log, nil))
	manager := New(Options{
		Config: config.NewLive(&config.Config{Container: r.container}), Log: log,
		Managers: r, Runtime: r,
	})
	managers, err := hardware.Load(t.Context(), append(others, manager), log)
	if err != nil {
		t.Fatal(err)
	}
	r.managers = managers
	return r
}

// steps returns the steps of a kind as JSON.
func (r *rig) steps(t *testing.T, kind hardware.Kind) string {
	t.Helper()
	steps, err := r.managers.Steps(kind, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(steps[class])
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// execute runs a step with arguments in the form of a JSON object.
func (r *rig) execute(t *testing.T, name, arguments string) error {
	t.Helper()
	call := hardware.Call{}
	if err := json.Unmarshal([]byte(arguments), &call.Args); err != nil {
		t.Fatal(err)
	}
	result, err := r.managers.Execute(t.Context(), hardware.Clean, name, call)
	if result != nil {
		t.Errorf("%s: got result %v, want none", name, result)
	}
	return err
}

// kind returns the type of a fault, "" for nil.
func kind(t *testing.T, err error) string {
	t.Helper()
	if err == nil {
		return ""
	}
	var f *fault.Error
	if !errors.As(err, &f) {
		t.Errorf("got error %v, want a fault", err)
		return "none"
	}
	return f.Type
}

// The steps in the form of ironic-python-agent: the priorities of the file apply to cleaning.
//
// Parity: F9 (list of steps)
func TestSteps(t *testing.T) {
	r := newRig(t, tool)
	const argument = `"argsinfo":{"container_url":{"description":"DESC","required":true},` +
		`"pull_options":{"description":"DESC","required":false},"run_options":{"description":"DESC","required":false}}`
	const always = `{"step":"generic_container_step","priority":0,"interface":"deploy","reboot_requested":false,` +
		`"abortable":true,` + argument + `},{"step":"container_clean_step","priority":0,"interface":"deploy",` +
		`"reboot_requested":false,"abortable":true,` + argument + `}`
	const file = `[%s,{"step":"update_firmware","priority":%d,"interface":"management","reboot_requested":true,` +
		`"abortable":false},{"step":"check_disks","priority":0,"interface":"deploy","reboot_requested":false,` +
		`"abortable":true}]`
	for kind, priority := range map[hardware.Kind]int{hardware.Clean: 30, hardware.Deploy: 0, hardware.Service: 0} {
		want := fmt.Sprintf(file, always, priority)
		if diff := cmp.Diff(want, withoutDescriptions(t, r.steps(t, kind))); diff != "" {
			t.Errorf("%s steps (-want +got):\n%s", kind, diff)
		}
	}
	want := "[" + always + "]"
	if got := withoutDescriptions(t, newRig(t, "").steps(t, hardware.Clean)); got != want {
		t.Errorf("without a file: got %s, want %s", got, want)
	}
	if diff := cmp.Diff(map[string]string{class: "2"}, r.managers.Versions()); diff != "" {
		t.Errorf("versions (-want +got):\n%s", diff)
	}
}

// withoutDescriptions replaces the descriptions of arguments.
func withoutDescriptions(t *testing.T, text string) string {
	t.Helper()
	for {
		before, after, found := strings.Cut(text, `"description":"R`)
		if !found {
			before, after, found = strings.Cut(text, `"description":"O`)
		}
		if !found {
			return text
		}
		_, after, _ = strings.Cut(after, `"`)
		text = before + `"description":"DESC"` + after
	}
}

// Steps of the file run without permission, with their options or the configuration's.
//
// Parity: F9 (steps of the file)
func TestFileSteps(t *testing.T) {
	r := newRig(t, tool)
	r.container.RunOptions = []string{"--env A=1 --rm", "--env=B=2"}
	r.load(t)
	for _, name := range []string{"update_firmware", "check_disks"} {
		if err := r.execute(t, name, `{}`); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	want := []Job{
		{Image: "registry.example/firmware:2", Run: RunOptions{Env: []string{"A=1", "B=2"}}},
		{
			Image: "registry.example/check@sha256:" + digest, Pull: PullOptions{SkipTLSVerify: true},
			Run: RunOptions{Privileged: true, AllDisks: true, Env: []string{"MODE=long"}},
		},
	}
	if diff := cmp.Diff(want, r.jobs, cmpopts.EquateEmpty()); diff != "" {
		t.Errorf("jobs (-want +got):\n%s", diff)
	}
	if err := r.execute(t, "check_disks", `{"container_url": "registry.example/other"}`); kind(t, err) !=
		"InvalidCommandParamsError" || !strings.Contains(err.Error(), "container_url") {
		t.Errorf("got %v, want an error that names the argument", err)
	}
	r.err = errors.New("exit status 3")
	if err := r.execute(t, "check_disks", `{}`); !errors.Is(err, r.err) {
		t.Errorf("got %v, want %v", err, r.err)
	}
}

// A file that is not valid fails the lists of steps. All steps that are not in the file can be executed.
//
// Parity: F9 (errors of the file)
func TestInvalidFile(t *testing.T) {
	step := func(change string) string {
		key, value, _ := strings.Cut(change, ":")
		lines := strings.Split("name: a\nimage: b/c\ninterface: deploy\nreboot_requested: false\nabortable: true\n"+
			"priority: 5", "\n")
		text := "steps:\n- x: y\n"
		for _, line := range lines {
			if name, _, _ := strings.Cut(line, ":"); name == key {
				if value == "" {
					continue
				}
				line = change
			}
			text += "  " + line + "\n"
		}
		return text
	}
	if r := newRig(t, step("priority: 7")); !strings.Contains(r.steps(t, hardware.Clean), `"priority":7`) {
		t.Fatal("a valid file has no step")
	}
	long := strings.Repeat("x", maxOptionBytes+1)
	bomb := "a: &a [x,x,x,x,x,x,x,x]\nsteps: [" + strings.Repeat("*a,", maxFileAliases+1) + "]\n"
	for name, tt := range map[string]struct{ file, want string }{
		"not YAML":            {"steps: [", "line"},
		"a list":              {"- a\n", "cannot unmarshal"},
		"a text":              {"steps\n", "cannot unmarshal"},
		"steps are an object": {"steps: {name: a}\n", "cannot unmarshal"},
		"a step is a text":    {"steps: [a]\n", "cannot unmarshal"},
		"two documents":       {"steps: []\n---\nsteps: []\n", "more than one document"},
		"no name":             {step("name:"), "'name' missing"},
		"empty name":          {step(`name: ""`), "'name' missing"},
		"no image":            {step("image:"), `"a": key 'image' missing`},
		"empty image":         {step("image: null"), `"a": key 'image' missing`},
		"no interface":        {step("interface:"), `"a": key 'interface' missing`},
		"no reboot_requested": {step("reboot_requested:"), `"a": key 'reboot_requested' missing`},
		"no abortable":        {step("abortable:"), `"a": key 'abortable' missing`},
		"no priority":         {step("priority:"), `"a": key 'priority' missing`},
		"priority as text":    {step("priority: high"), "cannot unmarshal"},
		"negative priority":   {step("priority: -1"), "priority -1"},
		"abortable as text":   {step("abortable: perhaps"), "cannot unmarshal"},
		"method":              {step("name: list_block_devices"), "'list_block_devices'"},
		"own step":            {step("name: generic_container_step"), "'generic_container_step'"},
		"step of another":     {step("name: vendor_reset"), "'vendor_reset'"},
		"private name":        {step("name: _run_container"), "'_run_container'"},
		"two of a name":       {step("name: a") + strings.TrimPrefix(step("name: a"), "steps:\n"), "two steps"},
		"too large":           {"# " + strings.Repeat("x", maxFileBytes), "bytes"},
		"too many steps":      {"steps: [" + strings.Repeat("{},", maxFileSteps+1) + "]", "201 steps"},
		"too many aliases":    {bomb, "aliases"},
		"too long an option":  {step("x: y") + "  run_options: " + long, "option of"},
		"too many options":    {step("x: y") + "  pull_options: " + strings.Repeat("x ", maxOptions+1), "options"},
		"option of pull": {
			step("x: y") + "  pull_options: --all-tags", `step 'a': pull options: --all-tags: not supported`,
		},
		"option of run": {
			step("x: y") + "  run_options: --rm --cap-add=ALL", `step 'a': run options: --cap-add: not supported`,
		},
		"options are an object": {step("x: y") + "  pull_options: {a: b}", "cannot unmarshal"},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, tt.file, vendor{})
			r.container.AllowArbitraryContainers = true
			r.load(t, vendor{})
			for _, k := range []hardware.Kind{hardware.Clean, hardware.Deploy, hardware.Service} {
				_, err := r.managers.Steps(k, nil, nil)
				if kind(t, err) != "HardwareManagerConfigurationError" || !strings.Contains(err.Error(), tt.want) ||
					!strings.Contains(err.Error(), "mysteps.yaml") {
					t.Errorf("%s: got %v, want a HardwareManagerConfigurationError about %q", k, err, tt.want)
				}
			}
			if err := r.execute(t, "vendor_reset", `{}`); err != nil {
				t.Errorf("step of another manager: %v", err)
			}
			if err := r.execute(t, genericStep, `{"container_url": "b/c"}`); err != nil || len(r.jobs) != 1 {
				t.Errorf("%s: %v, %d jobs", genericStep, err, len(r.jobs))
			}
			if err := r.execute(t, "unknown", `{}`); kind(t, err) != "HardwareManagerConfigurationError" {
				t.Errorf("a step that may be in the file: got %v, want a HardwareManagerConfigurationError", err)
			}
		})
	}
}

// vendor is another manager with a step.
type vendor struct{}

func (vendor) Class() string                          { return "Vendor" }
func (vendor) Name() string                           { return "vendor" }
func (vendor) Version() string                        { return "1" }
func (vendor) Support(context.Context) hardware.Level { return hardware.Generic }
func (vendor) Steps(kind hardware.Kind, _ *node.Node, _ []map[string]any) []hardware.Step {
	if kind != hardware.Clean {
		return nil
	}
	return []hardware.Step{{
		Name: "vendor_reset", Interface: "deploy",
		Run: func(context.Context, hardware.Call) (any, error) { return nil, nil }, //nolint:nilnil // no result
	}}
}

func TestUnreadableFile(t *testing.T) {
	r := newRig(t, "")
	r.container.ContainerStepsFile = t.TempDir()
	r.load(t)
	if _, err := r.managers.Steps(hardware.Clean, nil, nil); kind(t, err) != "HardwareManagerConfigurationError" {
		t.Errorf("a directory: got %v, want a HardwareManagerConfigurationError", err)
	}
	r.container.ContainerStepsFile = ""
	r.load(t)
	if _, err := r.managers.Steps(hardware.Clean, nil, nil); err != nil {
		t.Errorf("no file configured: %v", err)
	}
}

// Images of arguments are refused unless the configuration allows them. Who may not choose the image may not choose the
// options.
//
// Parity: F9 (permission)
func TestPermission(t *testing.T) {
	const refused = "ContainerNotPermittedError"
	image, pinned := "registry.example/tool:1", "registry.example/tool@sha256:"+digest
	allowed := []string{"docker://" + image, pinned}
	for name, tt := range map[string]struct {
		arbitrary bool
		allowed   []string
		arguments string
		want      string // fault
		job       Job    // without a fault
	}{
		"nothing allowed": {arguments: `{"container_url": "` + image + `"}`, want: refused},
		"listed":          {allowed: allowed, arguments: `{"container_url": "` + image + `"}`, job: Job{Image: image}},
		"listed by digest": {
			allowed: allowed, arguments: `{"container_url": "` + pinned + `"}`, job: Job{Image: pinned},
		},
		"docker transport": {
			allowed: []string{image}, arguments: `{"container_url": "docker://` + image + `"}`, job: Job{Image: image},
		},
		"oci transport": {
			allowed: allowed, arguments: `{"container_url": "oci://` + image + `"}`, job: Job{Image: image},
		},
		"other transport": {
			allowed: allowed, arguments: `{"container_url": "containers-storage:` + image + `"}`, want: refused,
		},
		"other tag":   {allowed: allowed, arguments: `{"container_url": "registry.example/tool:2"}`, want: refused},
		"without tag": {allowed: allowed, arguments: `{"container_url": "registry.example/tool"}`, want: refused},
		"longer":      {allowed: allowed, arguments: `{"container_url": "` + image + `0"}`, want: refused},
		"other case":  {allowed: allowed, arguments: `{"container_url": "Registry.example/tool:1"}`, want: refused},
		"space":       {allowed: allowed, arguments: `{"container_url": "` + image + ` "}`, want: refused},
		"twice docker:": {
			allowed: allowed, arguments: `{"container_url": "docker://docker://` + image + `"}`, want: refused,
		},
		"options ignored": {
			allowed: allowed,
			arguments: `{"container_url": "` + image + `", "run_options": "--privileged -v /:/host",
				"pull_options": ["--tls-verify=false"]}`,
			job: Job{Image: image},
		},
		"options of any type ignored": {
			allowed: allowed, arguments: `{"container_url": "` + image + `", "run_options": 7}`, job: Job{Image: image},
		},
		"anything": {arbitrary: true, arguments: `{"container_url": "a.example/b"}`, job: Job{Image: "a.example/b"}},
		"anything with options": {
			arbitrary: true,
			arguments: `{"container_url": "docker://a.example/b", "run_options": "--privileged --device /dev/sda",
				"pull_options": ["--tls-verify=false", "--retry 3"]}`,
			job: Job{
				Image: "a.example/b", Pull: PullOptions{SkipTLSVerify: true, Retries: new(3)},
				Run: RunOptions{Privileged: true, Disks: []string{"/dev/sda"}},
			},
		},
		"null options": {
			arbitrary: true, arguments: `{"container_url": "a.example/b", "run_options": null, "pull_options": null}`,
			job: Job{Image: "a.example/b"},
		},
		"options as number": {
			arbitrary: true, arguments: `{"container_url": "a.example/b", "run_options": 7}`,
			want: "InvalidCommandParamsError",
		},
		"unsupported option": {
			arbitrary: true, arguments: `{"container_url": "a.example/b", "run_options": "--cgroupns=host"}`,
			want: "InvalidCommandParamsError",
		},
		"no image":        {arbitrary: true, arguments: `{}`, want: "InvalidCommandParamsError"},
		"empty image":     {arbitrary: true, arguments: `{"container_url": ""}`, want: "InvalidCommandParamsError"},
		"image as list":   {arbitrary: true, arguments: `{"container_url": ["a"]}`, want: "InvalidCommandParamsError"},
		"asserted trust":  {arguments: `{"container_url": "a", "trusted": true}`, want: "InvalidCommandParamsError"},
		"null as image":   {arbitrary: true, arguments: `{"container_url": null}`, want: "InvalidCommandParamsError"},
		"number as image": {allowed: allowed, arguments: `{"container_url": 1}`, want: "InvalidCommandParamsError"},
	} {
		t.Run(name, func(t *testing.T) {
			for _, step := range []string{genericStep, formerStep} {
				r := newRig(t, "")
				r.container.AllowArbitraryContainers, r.container.AllowedContainers = tt.arbitrary, tt.allowed
				r.load(t)
				err := r.execute(t, step, tt.arguments)
				if got := kind(t, err); got != tt.want {
					t.Errorf("%s: got %v, want %q", step, err, tt.want)
				}
				var want []Job
				if tt.want == "" {
					want = []Job{tt.job}
				}
				if diff := cmp.Diff(want, r.jobs, cmpopts.EquateEmpty()); diff != "" {
					t.Errorf("%s: jobs (-want +got):\n%s", step, diff)
				}
			}
		})
	}
}

// The configuration can allow or forbid images while the agent runs, because Ironic sends it with the lookup.
func TestConfigurationChanges(t *testing.T) {
	live := config.NewLive(&config.Config{})
	r := &rig{}
	m := New(Options{Config: live, Runtime: r})
	call := hardware.Call{Args: map[string]json.RawMessage{urlArgument: json.RawMessage(`"a.example/b"`)}}
	for _, allowed := range []bool{false, true, false} {
		live.Update(func(c *config.Config) { c.Container.AllowArbitraryContainers = allowed })
		if _, err := m.runArguments(t.Context(), call); (err == nil) != allowed {
			t.Errorf("allowed %v: got %v", allowed, err)
		}
	}
	if len(r.jobs) != 1 {
		t.Errorf("got %d runs, want 1", len(r.jobs))
	}
	live.Update(func(c *config.Config) {
		c.Container.AllowArbitraryContainers = true
		c.Container.PullOptions = []string{strings.Repeat("x", maxOptionBytes+1)}
	})
	if _, err := m.runArguments(t.Context(), call); kind(t, err) != "HardwareManagerConfigurationError" {
		t.Errorf("got %v, want an error about the configured options", err)
	}
}

func TestSupport(t *testing.T) {
	if got := New(Options{Runtime: &rig{}}).Support(t.Context()); got != hardware.Mainline {
		t.Errorf("got level %d, want %d", got, hardware.Mainline)
	}
	m := New(Options{Runtime: &rig{unavailable: errors.New("no namespaces")}})
	if got := m.Support(t.Context()); got != hardware.None {
		t.Errorf("without support of the kernel: got level %d, want %d", got, hardware.None)
	}
}
