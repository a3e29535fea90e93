package extension

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"ironroot/agent/api"
	"ironroot/agent/command"
	"ironroot/agent/config"
	"ironroot/agent/hardware"
	"ironroot/agent/hardware/generic"
	"ironroot/agent/imaging"
	"ironroot/agent/node"
	"ironroot/agent/power"
	"ironroot/agent/token"
	"ironroot/internal/test/disktest"
	"ironroot/storage/block"
	"ironroot/storage/sysfs"
)

// rig is the API with the extensions standby, image, iscsi, clean, deploy and service, over HTTP.
type rig struct {
	t       *testing.T
	url     string
	deps    Deps
	disks   []block.Device
	targets exports
}

const testToken = "0123456789abcdef0123456789abcdef"

func newRig(t *testing.T, extra ...hardware.Manager) *rig {
	t.Helper()
	r := &rig{t: t}
	live := config.NewLive(&config.Config{MD5Enabled: true, PermittedImageFormats: []string{"raw", "gpt", "qcow2"}})
	log := slog.New(slog.DiscardHandler)
	sys := sysfs.Root{Path: t.TempDir()}
	cache := &node.Cache{}
	disks := disktest.Lister(func(context.Context) ([]block.Device, error) { return r.disks, nil })
	imager := imaging.New(imaging.Options{
		Config: live, Node: cache, Disks: disks, System: sys, Log: log, Targets: &r.targets,
	})
	managers, err := hardware.Load(t.Context(), append([]hardware.Manager{
		generic.New(generic.Options{Config: live, System: sys, Disks: disks, Imager: imager, Log: log}),
	}, extra...), log)
	if err != nil {
		t.Fatal(err)
	}
	r.deps = Deps{
		Config: live, Node: cache, Managers: managers, Imager: imager, System: sys, Log: log,
		Power: power.Refused{}, Control: &control{}, Stop: &stopping{}, AllowDestructive: true,
	}
	tok := &token.Token{}
	tok.Set(testToken)
	registry := command.NewRegistry(
		[]command.Extension{
			standby(r.deps), image(r.deps), iscsiTarget(r.deps), clean(r.deps), deploy(r.deps), service(r.deps),
		},
		command.Options{AllowDestructive: true},
	)
	t.Cleanup(registry.Close)
	server := httptest.NewServer(api.New(api.Options{Commands: registry, Token: tok, Version: "test"}))
	t.Cleanup(server.Close)
	r.url = server.URL + "/v1/commands/?wait=true&agent_token=" + url.QueryEscape(testToken)
	return r
}

// answer is the response of a command route.
type answer struct {
	status      int
	Name        string          `json:"command_name"`
	Status      string          `json:"command_status"`
	Result      json.RawMessage `json:"command_result"`
	FaultString string          `json:"faultstring"`
	Error       *struct {
		Type    string `json:"type"`
		Code    int    `json:"code"`
		Message string `json:"message"`
		Details string `json:"details"`
	} `json:"command_error"`
}

// run posts a command, waits for it and returns the response.
func (r *rig) run(name string, params any) answer {
	r.t.Helper()
	body, err := json.Marshal(map[string]any{"name": name, "params": params})
	if err != nil {
		r.t.Fatal(err)
	}
	response, err := http.Post(r.url, "application/json", bytes.NewReader(body))
	if err != nil {
		r.t.Fatal(err)
	}
	defer response.Body.Close() //nolint:errcheck // only read
	data, err := io.ReadAll(response.Body)
	if err != nil {
		r.t.Fatal(err)
	}
	a := answer{status: response.StatusCode}
	if err := json.Unmarshal(data, &a); err != nil {
		r.t.Fatalf("%s: %v in %s", name, err, data)
	}
	return a
}

// count returns the number of command records.
func (r *rig) count() int {
	r.t.Helper()
	response, err := http.Get(r.url)
	if err != nil {
		r.t.Fatal(err)
	}
	defer response.Body.Close() //nolint:errcheck // only read
	var list struct {
		Commands []json.RawMessage `json:"commands"`
	}
	if err := json.NewDecoder(response.Body).Decode(&list); err != nil {
		r.t.Fatal(err)
	}
	return len(list.Commands)
}

func sameJSON(t *testing.T, what string, want, got []byte) {
	t.Helper()
	var w, g any
	if err := json.Unmarshal(want, &w); err != nil {
		t.Fatalf("%s: %v in %s", what, err, want)
	}
	if err := json.Unmarshal(got, &g); err != nil {
		t.Fatalf("%s: %v in %s", what, err, got)
	}
	if diff := cmp.Diff(w, g); diff != "" {
		t.Errorf("%s differs (-want +got):\n%s", what, diff)
	}
}

var testNode = map[string]any{"uuid": "b77a8c26-f785-4c57-91f5-b6ad41a2e08d", "properties": map[string]any{"cpus": 2}}

// genericVersion is the version of the generic manager.
var genericVersion = (&generic.Manager{}).Version()

// In the golden files GENERIC-VERSION stands for the version of the generic manager.
//
// Parity: E7
func TestGetSteps(t *testing.T) {
	r := newRig(t)
	for _, kind := range []string{"clean", "deploy", "service"} {
		want, err := os.ReadFile("testdata/" + kind + "_steps.json")
		if err != nil {
			t.Fatal(err)
		}
		a := r.run(kind+".get_"+kind+"_steps", map[string]any{"node": testNode, "ports": []any{}})
		if a.Status != "SUCCEEDED" || a.Name != "get_"+kind+"_steps" {
			t.Fatalf("%s: got %+v", kind, a)
		}
		sameJSON(t, kind+" steps", bytes.ReplaceAll(want, []byte("GENERIC-VERSION"), []byte(genericVersion)), a.Result)
	}
	if got, want := r.deps.Node.Get().UUID(), testNode["uuid"]; got != want {
		t.Errorf("known node: got %v, want %v", got, want)
	}
}

func TestGetStepsNeedsANode(t *testing.T) {
	a := newRig(t).run("clean.get_clean_steps", map[string]any{"node": nil, "ports": []any{}})
	if a.status != http.StatusBadRequest || !strings.Contains(a.FaultString, "node") {
		t.Errorf("got %d %q, want 400 and the parameter's name", a.status, a.FaultString)
	}
}

// recorder is a hardware manager with one step of each kind, which records its calls.
type recorder struct {
	calls  []hardware.Call
	result any
	err    error
}

func (*recorder) Class() string                          { return "RecordingManager" }
func (*recorder) Name() string                           { return "recorder" }
func (*recorder) Version() string                        { return "3" }
func (*recorder) Support(context.Context) hardware.Level { return hardware.Mainline }

func (m *recorder) Steps(hardware.Kind, *node.Node, []map[string]any) []hardware.Step {
	return []hardware.Step{{
		Name: "record", Interface: "deploy",
		Run: func(_ context.Context, call hardware.Call) (any, error) {
			m.calls = append(m.calls, call)
			return m.result, m.err
		},
	}}
}

// Parity: E8
func TestExecuteStep(t *testing.T) {
	for _, kind := range []string{"clean", "deploy", "service"} {
		m := &recorder{result: map[string]any{"done": true}}
		r := newRig(t, m)
		step := json.RawMessage(`{"interface": "deploy", "step": "record", "args": null, "priority": 10, ` +
			`"requires_ramdisk": true}`)
		params := map[string]any{
			"step": step, "node": testNode, "ports": []any{map[string]any{"address": "52:54:00:1a:15:d6"}},
			kind + "_version": nil, "raid_config": map[string]any{"level": 1},
		}
		a := r.run(kind+".execute_"+kind+"_step", params)
		if a.Status != "SUCCEEDED" {
			t.Fatalf("%s: got %+v", kind, a)
		}
		sameJSON(t, kind+" result",
			[]byte(`{"`+kind+`_result": {"done": true}, "`+kind+`_step": `+string(step)+`}`), a.Result)

		params["step"] = json.RawMessage(`{"interface": "deploy", "step": "record", "args": {"raid_config": 5, ` +
			`"own": "x"}}`)
		r.run(kind+".execute_"+kind+"_step", params)
		if len(m.calls) != 2 {
			t.Fatalf("%s: got %d calls, want 2", kind, len(m.calls))
		}
		want := []map[string]json.RawMessage{
			{"raid_config": json.RawMessage(`{"level":1}`)}, // the parameter of the command
			// The step's own argument takes precedence.
			{"raid_config": json.RawMessage(`5`), "own": json.RawMessage(`"x"`)},
		}
		if diff := cmp.Diff(want, []map[string]json.RawMessage{m.calls[0].Args, m.calls[1].Args}); diff != "" {
			t.Errorf("%s: arguments differ (-want +got):\n%s", kind, diff)
		}
		if got := m.calls[0].Ports[0]["address"]; got != "52:54:00:1a:15:d6" {
			t.Errorf("%s: got port address %v", kind, got)
		}

		params["step"] = map[string]any{"interface": "deploy", "step": "unknown"}
		a = r.run(kind+".execute_"+kind+"_step", params)
		if a.Status != "FAILED" || a.Error.Type != "HardwareManagerMethodNotFound" ||
			!strings.Contains(a.Error.Details, "unknown") {
			t.Errorf("%s, unknown step: got %+v, want HardwareManagerMethodNotFound", kind, a.Error)
		}
		params["step"] = map[string]any{"interface": "deploy"}
		if a = r.run(kind+".execute_"+kind+"_step", params); a.Status != "FAILED" ||
			!strings.Contains(a.Error.Details, "'step'") {
			t.Errorf("%s, step without a name: got %+v, want a failure", kind, a.Error)
		}
	}
}

func TestExecuteStepWrapsUnexpectedErrors(t *testing.T) {
	for kind, want := range map[string]string{
		"clean": "CleaningError", "deploy": "DeploymentError", "service": "ServicingError",
	} {
		r := newRig(t, &recorder{err: errors.New("the disk is on fire")})
		a := r.run(kind+".execute_"+kind+"_step", map[string]any{
			"step": map[string]any{"step": "record", "interface": "deploy"}, "node": testNode, "ports": []any{},
		})
		if a.Status != "FAILED" || a.Error.Type != want || a.Error.Code != 500 {
			t.Fatalf("%s: got %+v, want %s", kind, a.Error, want)
		}
		text := "Unexpected exception performing " + kind + " step record. Error: the disk is on fire"
		if a.Error.Details != text {
			t.Errorf("%s: got details %q, want %q", kind, a.Error.Details, text)
		}
	}
}

// Parity: F4, A12
func TestExecuteStepComparesVersions(t *testing.T) {
	for _, tt := range []struct {
		name     string
		versions any
		want     string
	}{
		{"null", nil, "SUCCEEDED"},
		{"equal", map[string]string{"generic_hardware_manager": genericVersion, "recorder": "3"}, "SUCCEEDED"},
		{
			"another version",
			map[string]string{"generic_hardware_manager": "1.1", "recorder": "3"},
			"CLEAN_VERSION_MISMATCH",
		},
		{"a manager less", map[string]string{"generic_hardware_manager": genericVersion}, "CLEAN_VERSION_MISMATCH"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			for _, kind := range []string{"clean", "deploy", "service"} {
				m := &recorder{}
				a := newRig(t, m).run(kind+".execute_"+kind+"_step", map[string]any{
					"step": map[string]any{"step": "record", "interface": "deploy"}, "node": testNode, "ports": []any{},
					kind + "_version": tt.versions,
				})
				if a.Status != tt.want {
					t.Errorf("%s: got %s (%+v), want %s", kind, a.Status, a.Error, tt.want)
				}
				if ran := len(m.calls) == 1; ran != (tt.want == "SUCCEEDED") {
					t.Errorf("%s: the step ran: %v", kind, ran)
				}
			}
		})
	}
}

func testDisk() block.Device {
	return block.Device{Name: "sda", Path: "/dev/there-is-no-such-disk", Type: "disk", Size: 8 << 30}
}

// The functional tests of ironic-python-agent send an object as ports and an empty one as node.
func TestStepCommandsAcceptAnyPortsAndNode(t *testing.T) {
	for _, kind := range []string{"clean", "deploy", "service"} {
		m := &recorder{}
		r := newRig(t, m)
		for _, ports := range []string{
			"{}", "null", "[]", `"x"`, "7", "true", `[1, null, {"address": "52:54:00:1a:15:d6"}]`,
		} {
			for _, object := range []string{
				`{"uuid": "n"}`, `{"uuid": 7}`, `{"uuid": ["x"], "properties": null}`, "{}", `{"uuid": null}`,
			} {
				params := map[string]any{"node": json.RawMessage(object), "ports": json.RawMessage(ports)}
				if a := r.run(kind+".get_"+kind+"_steps", params); a.Status != "SUCCEEDED" {
					t.Errorf("%s steps with node %s and ports %s: got %d %+v %s, want SUCCEEDED",
						kind, object, ports, a.status, a.Error, a.FaultString)
				}
				params["step"] = map[string]any{"step": "record", "interface": "deploy"}
				want := "SUCCEEDED"
				if object == "{}" || strings.Contains(object, `"uuid": null`) {
					want = "FAILED" // a step without a node
				}
				if a := r.run(kind+".execute_"+kind+"_step", params); a.Status != want {
					t.Errorf("%s step with node %s and ports %s: got %d %s %+v %s, want %s",
						kind, object, ports, a.status, a.Status, a.Error, a.FaultString, want)
				}
			}
		}
		if got := m.calls[len(m.calls)-1].Ports; len(got) != 1 || got[0]["address"] != "52:54:00:1a:15:d6" {
			t.Errorf("%s: got ports %v, want the object of the list", kind, got)
		}
		if got := r.deps.Node.Get().UUID(); got != `["x"]` {
			t.Errorf("%s: known node: got %s, want the last one with a uuid", kind, got)
		}
	}
}
