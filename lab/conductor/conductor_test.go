package conductor_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"ironroot/lab/conductor"
)

const mac = "52:54:00:00:00:01"

type lab struct {
	conductor *conductor.Conductor
	node      *conductor.Node
	agent     *fakeAgent
	log       *bytes.Buffer
}

func newLab(t *testing.T, o conductor.Options) *lab {
	t.Helper()
	l := &lab{log: &bytes.Buffer{}}
	o.Log = slog.New(slog.NewTextHandler(l.log, nil))
	o.PollInterval = time.Millisecond
	c, err := conductor.New(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	l.conductor = c
	l.node = c.AddNode(conductor.NodeSpec{MACs: []string{mac}})
	l.agent = newFakeAgent(t, c.URL())
	return l
}

// booted returns a lab whose agent has done its lookup and sent its first heartbeat.
func booted(t *testing.T) (*lab, context.Context) {
	t.Helper()
	l := newLab(t, conductor.Options{})
	l.node.SetState(conductor.CleanWait)
	if status, _ := l.agent.lookup(mac); status != http.StatusOK {
		t.Fatalf("lookup: got %d, want 200", status)
	}
	if status := l.agent.heartbeat(nil); status != http.StatusAccepted {
		t.Fatalf("heartbeat: got %d, want 202", status)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	t.Cleanup(cancel)
	return l, ctx
}

func TestVersionDocument(t *testing.T) {
	l := newLab(t, conductor.Options{APIVersion: "1.99"})
	status, answer := l.agent.request(http.MethodGet, "/", "", nil)
	if status != http.StatusOK || answer["default_version"].(map[string]any)["version"] != "1.99" {
		t.Errorf("got %d %v, want default version 1.99", status, answer)
	}
}

func TestLookupGivesTheTokenOnce(t *testing.T) {
	l := newLab(t, conductor.Options{Config: map[string]any{"tls_min_version": "1.2", "metrics": nil}})
	if status, _ := l.agent.lookup(mac); status != http.StatusNotFound {
		t.Errorf("lookup in state enroll: got %d, want 404", status)
	}
	l.node.SetState(conductor.DeployWait)
	status, answer := l.agent.lookup(strings.ToUpper(mac))
	config := answer["config"].(map[string]any)
	if token := config["agent_token"].(string); status != http.StatusOK || len(token) != 43 || token != l.node.Token() {
		t.Errorf("first lookup: got %d and a token of %d characters, want 43", status, len(token))
	}
	if _, there := config["metrics"]; there || config["tls_min_version"] != "1.2" {
		t.Errorf("overrides: got metrics %v and tls_min_version %v", there, config["tls_min_version"])
	}
	if _, answer = l.agent.lookup(mac); answer["config"].(map[string]any)["agent_token"] != "******" {
		t.Error("second lookup: the token is not masked")
	}
	l.node.Rebooted()
	if _, answer = l.agent.lookup(mac); len(answer["config"].(map[string]any)["agent_token"].(string)) != 43 {
		t.Error("lookup after a reboot: no new token")
	}
	if strings.Contains(l.log.String(), l.node.Token()) {
		t.Error("the token is in the log")
	}
}

// Ironic discards an agent's token only when the machine is off: until then the agent can send heartbeats.
func TestHeartbeatOfLeavingAgent(t *testing.T) {
	l, ctx := booted(t)
	for name, leave := range map[string]func(context.Context) error{
		"power_off": l.node.PowerOff, "run_image": l.node.Reboot,
	} {
		if err := leave(ctx); err != nil {
			t.Fatal(err)
		}
		if got := l.agent.heartbeat(nil); got != http.StatusAccepted {
			t.Errorf("after %s: got %d, want 202", name, got)
		}
	}
	if got := l.conductor.Violations(); len(got) != 0 {
		t.Errorf("got violations %q, want none", got)
	}
	l.agent.forced.Wait() // a forced heartbeat that arrived later would be a violation
	l.node.Rebooted()
	if got := l.agent.heartbeat(nil); got != http.StatusBadRequest {
		t.Errorf("after the restart: got %d, want 400", got)
	}
	if got := l.conductor.Violations(); len(got) != 1 {
		t.Errorf("after the restart: got violations %q, want one", got)
	}
}

func TestLookupRefusals(t *testing.T) {
	l := newLab(t, conductor.Options{FastTrack: true})
	for _, tt := range []struct {
		query, version string
		want           int
	}{
		{"addresses=" + mac, "1.62", 200},
		{"addresses=52:54:00:00:00:99", "1.62", 404},
		{"addresses=", "1.62", 400},
		{"addresses=" + mac + "&agent=x", "1.62", 400},
		{"addresses=" + mac, "", 404},
		{"addresses=" + mac, "1.200", 406},
		{"node_uuid=" + l.node.UUID(), "1.62", 200},
	} {
		if got, _ := l.agent.request(http.MethodGet, "/v1/lookup?"+tt.query, tt.version, nil); got != tt.want {
			t.Errorf("lookup %s, version %q: got %d, want %d", tt.query, tt.version, got, tt.want)
		}
	}
}

func TestHeartbeatRefusals(t *testing.T) {
	l, _ := booted(t)
	for name, change := range map[string]map[string]any{
		"no token":      {"agent_token": nil},
		"wrong token":   {"agent_token": strings.Repeat("x", 43)},
		"no version":    {"agent_version": ""},
		"no TLS":        {"callback_url": strings.Replace(l.agent.url, "https", "http", 1)},
		"other address": {"callback_url": "https://192.0.2.1:9999"},
		"unknown key":   {"agent_mood": "good"},
	} {
		if got := l.agent.heartbeat(change); got != http.StatusBadRequest {
			t.Errorf("%s: got %d, want 400", name, got)
		}
	}
	if got := len(l.conductor.Violations()); got != 6 {
		t.Errorf("got %d violations, want 6: %q", got, l.conductor.Violations())
	}
	if strings.Contains(l.log.String(), l.agent.token) {
		t.Error("the token is in the log")
	}
}

// Progress is stored from version 1.72 on. A message with the token, with more than one line, or with an agent_status
// is refused.
func TestProgress(t *testing.T) {
	l, _ := booted(t)
	for _, c := range []struct {
		version string
		body    map[string]any
		want    int
	}{
		{"1.72", map[string]any{"agent_status_message": "write_image: 1%"}, http.StatusAccepted},
		{"1.72", map[string]any{"agent_status_message": "write_image: 1%"}, http.StatusAccepted},
		{"1.72", nil, http.StatusAccepted},
		{"1.72", map[string]any{"agent_status_message": "write_image: done"}, http.StatusAccepted},
		{"1.71", map[string]any{"agent_status_message": "write_image: 2%"}, http.StatusBadRequest},
		{"1.72", map[string]any{"agent_status": "start", "agent_status_message": "x"}, http.StatusBadRequest},
		{"1.72", map[string]any{"agent_status_message": "token " + l.node.Token()}, http.StatusBadRequest},
		{"1.72", map[string]any{"agent_status_message": "two\nlines"}, http.StatusBadRequest},
		{"1.72", map[string]any{"agent_status_message": strings.Repeat("x", 251)}, http.StatusBadRequest},
	} {
		if got := l.agent.heartbeatAt(c.version, c.body); got != c.want {
			t.Errorf("%s, %.40v: got %d, want %d", c.version, c.body, got, c.want)
		}
	}
	if diff := cmp.Diff([]string{"write_image: 1%", "write_image: done"}, l.node.Progress()); diff != "" {
		t.Errorf("progress (-want +got):\n%s", diff)
	}
	if strings.Contains(l.log.String(), l.agent.token) {
		t.Error("the token is in the log")
	}
}

func TestInspection(t *testing.T) {
	l := newLab(t, conductor.Options{})
	l.node.SetState(conductor.InspectWait)
	data := map[string]any{
		"inventory": map[string]any{"interfaces": []any{map[string]any{"name": "eth0", "mac_address": mac}}},
		"error":     nil,
	}
	const inspected = "/v1/continue_inspection"
	if got, _ := l.agent.request(http.MethodPost, inspected, "1.68", data); got != http.StatusBadRequest {
		t.Errorf("with a version header: got %d, want 400", got)
	}
	empty := map[string]any{"inventory": nil}
	if got, _ := l.agent.request(http.MethodPost, inspected, "", empty); got != http.StatusBadRequest {
		t.Errorf("without interfaces: got %d, want 400", got)
	}
	status, answer := l.agent.request(http.MethodPost, inspected, "", data)
	if status != http.StatusAccepted || answer["uuid"] != l.node.UUID() {
		t.Errorf("got %d %v, want 202 and the node's uuid", status, answer)
	}
	if err := l.node.WaitInspection(t.Context()); err != nil || l.node.State() != conductor.Manageable {
		t.Errorf("got %v, state %q, want manageable", err, l.node.State())
	}
}

func TestInspectionWithAnErrorFails(t *testing.T) {
	l := newLab(t, conductor.Options{})
	l.node.SetState(conductor.InspectWait)
	data := map[string]any{
		"inventory": map[string]any{"interfaces": []any{map[string]any{"mac_address": mac}}},
		"error":     "collector broke",
	}
	l.agent.request(http.MethodPost, "/v1/continue_inspection", "", data)
	if err := l.node.WaitInspection(t.Context()); err == nil || !strings.Contains(err.Error(), "collector broke") {
		t.Errorf("got %v, want the collector's error", err)
	}
}

// recordSteps appends the names of the clean steps that the agent executes to steps.
func (a *fakeAgent) recordSteps(t *testing.T, steps *[]string) {
	answer := a.answer
	a.answer = func(name string, params map[string]json.RawMessage) (any, map[string]any) {
		if name == "clean.execute_clean_step" {
			var step map[string]any
			if err := json.Unmarshal(params["step"], &step); err != nil {
				t.Error(err)
			}
			*steps = append(*steps, step["step"].(string))
		}
		return answer(name, params)
	}
}

func TestCleanRunsStepsByPriority(t *testing.T) {
	l, ctx := booted(t)
	var steps []string
	l.agent.recordSteps(t, &steps)
	if err := l.node.Clean(ctx); err != nil {
		t.Fatal(err)
	}
	// In Ironic's default configuration erase_devices is disabled and erase_devices_metadata has priority 10.
	if diff := cmp.Diff([]string{"erase_devices_metadata", "erase_pstore"}, steps); diff != "" {
		t.Errorf("steps (-want +got):\n%s", diff)
	}
	if l.node.State() != conductor.Available || len(l.node.Logs()) == 0 {
		t.Errorf("got state %q and %d bytes of logs", l.node.State(), len(l.node.Logs()))
	}
	steps = nil
	if err := l.node.Clean(ctx, "deploy.erase_devices"); err != nil || !slices.Equal(steps, []string{"erase_devices"}) {
		t.Errorf("manual cleaning: got %v, %v, want erase_devices", steps, err)
	}
	if err := l.node.Clean(ctx, "deploy.polish"); err == nil || !strings.Contains(err.Error(), "deploy.polish") {
		t.Errorf("a step that is not offered: got %v", err)
	}
}

// Of steps with equal priorities, Ironic's rank of the interfaces decides, then the order of the agent's answer, in
// which managers are sorted by name.
func TestCleanOrdersStepsOfEqualPriority(t *testing.T) {
	l, ctx := booted(t)
	step := func(name, of string) map[string]any {
		return map[string]any{"step": name, "interface": of, "priority": 50}
	}
	l.agent.answer = func(name string, params map[string]json.RawMessage) (any, map[string]any) {
		if name == "clean.get_clean_steps" {
			return map[string]any{"hardware_manager_version": map[string]string{}, "clean_steps": map[string]any{
				"A": []any{step("raid", "raid"), step("z", "deploy"), step("y", "deploy")},
				"B": []any{step("x", "deploy")},
				"C": []any{step("w", "deploy"), step("bios", "bios"), step("power", "power")},
			}}, nil
		}
		return l.agent.standard(name, params)
	}
	var steps []string
	l.agent.recordSteps(t, &steps)
	if err := l.node.Clean(ctx); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"power", "z", "y", "x", "w", "bios", "raid"}, steps); diff != "" {
		t.Errorf("steps (-want +got):\n%s", diff)
	}
}

func TestDeploySendsTheCommandsOfIronicInOrder(t *testing.T) {
	l, ctx := booted(t)
	var args map[string]any
	l.agent.answer = func(name string, params map[string]json.RawMessage) (any, map[string]any) {
		if name == "deploy.execute_deploy_step" {
			var step map[string]any
			if err := json.Unmarshal(params["step"], &step); err != nil {
				t.Error(err)
			}
			args = step["args"].(map[string]any)
		}
		return l.agent.standard(name, params)
	}
	image := conductor.Image{URL: "http://h/disk.raw", Format: "raw", Checksum: "abc"}
	if err := l.node.Deploy(ctx, image, "ZHJpdmU="); err != nil {
		t.Fatal(err)
	}
	want := []string{
		"deploy.get_deploy_steps", "deploy.execute_deploy_step", "standby.get_partition_uuids",
		"image.install_bootloader", "log.collect_system_logs", "standby.power_off",
	}
	if diff := cmp.Diff(want, l.agent.names); diff != "" {
		t.Errorf("commands (-want +got):\n%s", diff)
	}
	wantArgs := map[string]any{"configdrive": "ZHJpdmU=", "image_info": map[string]any{
		"id": "disk.raw", "urls": []any{"http://h/disk.raw"}, "disk_format": "raw", "container_format": nil,
		"stream_raw_images": true,
		"os_hash_algo":      "sha256", "os_hash_value": "abc", "node_uuid": l.node.UUID(), "configdrive": "ZHJpdmU=",
	}}
	if diff := cmp.Diff(wantArgs, args); diff != "" {
		t.Errorf("arguments of write_image (-want +got):\n%s", diff)
	}
	if l.node.State() != conductor.Active {
		t.Errorf("got state %q, want active", l.node.State())
	}
}

func TestFailuresOfTheAgentAreTold(t *testing.T) {
	for name, tt := range map[string]struct {
		answer func(a *fakeAgent, name string, params map[string]json.RawMessage) (any, map[string]any)
		want   string
	}{
		"failed step": {func(a *fakeAgent, name string, params map[string]json.RawMessage) (any, map[string]any) {
			if name == "clean.execute_clean_step" {
				return nil, map[string]any{
					"type": "CleaningError", "code": 500, "message": "Clean step failed", "details": "sda is on fire",
				}
			}
			return a.standard(name, params)
		}, "CleaningError: sda is on fire"},
		"result without the step": {
			func(a *fakeAgent, name string, params map[string]json.RawMessage) (any, map[string]any) {
				if name == "clean.execute_clean_step" {
					return map[string]any{
						"clean_result": nil, "clean_step": map[string]any{"step": "other", "interface": "deploy"},
					}, nil
				}
				return a.standard(name, params)
			}, "echoes another step",
		},
		"step without a priority": {
			func(a *fakeAgent, name string, _ map[string]json.RawMessage) (any, map[string]any) {
				return map[string]any{"hardware_manager_version": map[string]string{}, "clean_steps": map[string]any{
					"M": []any{map[string]any{"step": "x", "interface": "deploy"}},
				}}, nil
			}, "has no priority",
		},
		"unknown key in a result": {
			func(a *fakeAgent, name string, params map[string]json.RawMessage) (any, map[string]any) {
				return map[string]any{
					"clean_steps": map[string]any{}, "hardware_manager_version": map[string]any{}, "mood": "good",
				}, nil
			}, `key "mood" is unknown`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			l, ctx := booted(t)
			l.agent.answer = func(name string, params map[string]json.RawMessage) (any, map[string]any) {
				return tt.answer(l.agent, name, params)
			}
			err := l.node.Clean(ctx)
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got %v, want an error with %q", err, tt.want)
			}
		})
	}
}

func TestErrorsOfRequestsAreTypedAndWithoutToken(t *testing.T) {
	l, ctx := booted(t)
	l.agent.token = strings.Repeat("y", 43) // differs from the conductor's token
	_, err := l.node.Command(ctx, "standby.sync", nil, true)
	var fault *conductor.FaultError
	if !errors.As(err, &fault) || fault.Status != http.StatusUnauthorized {
		t.Errorf("got %v, want a fault with status 401", err)
	}
	l, ctx = booted(t)
	l.node.Rebooted()
	if _, err := l.node.Command(ctx, "standby.sync", nil, true); err == nil ||
		!strings.Contains(err.Error(), "no heartbeat") {
		t.Errorf("without an agent: got %v", err)
	}
}

func TestOnlyTheAgentsCertificateIsTrusted(t *testing.T) {
	l, ctx := booted(t)
	other := newFakeAgent(t, l.conductor.URL())
	if got := l.agent.heartbeat(map[string]any{"agent_verify_ca": other.pem}); got != http.StatusAccepted {
		t.Fatalf("heartbeat: got %d, want 202", got)
	}
	_, err := l.node.Command(ctx, "standby.sync", nil, true)
	if err == nil || !strings.Contains(err.Error(), "certificate") {
		t.Errorf("got %v, want a certificate error", err)
	}
	if err != nil && strings.Contains(err.Error(), l.agent.token) {
		t.Errorf("the token is in the error %q", err)
	}
}
