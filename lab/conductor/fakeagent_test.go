package conductor_test

import (
	"bytes"
	"compress/gzip"
	"crypto/tls"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"ironroot/lab/selfsigned"
)

// fakeAgent implements the protocol of a ramdisk's agent: TLS, a token, and commands whose results come from
// answer.
type fakeAgent struct {
	t     *testing.T
	url   string
	pem   string
	api   string
	uuid  string
	token string

	forced sync.WaitGroup // heartbeats at the end of asynchronous commands

	mu      sync.Mutex
	records []map[string]any
	names   []string // names of the received commands, in order
	answer  func(name string, params map[string]json.RawMessage) (result any, failure map[string]any)
}

func newFakeAgent(t *testing.T, api string) *fakeAgent {
	t.Helper()
	certificate, pem, err := selfsigned.Issue("127.0.0.1")
	if err != nil {
		t.Fatal(err)
	}
	a := &fakeAgent{t: t, pem: string(pem), api: api}
	server := httptest.NewUnstartedServer(a)
	server.TLS = &tls.Config{Certificates: []tls.Certificate{certificate}, MinVersion: tls.VersionTLS13}
	server.StartTLS()
	t.Cleanup(server.Close)
	a.url = server.URL
	a.answer = a.standard
	return a
}

func (a *fakeAgent) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	if r.URL.Query().Get("agent_token") != a.token {
		w.WriteHeader(http.StatusUnauthorized)
		_, _ = fmt.Fprint(w, `{"faultcode": "Client", "faultstring": "401 Unauthorized: Token invalid."}`)
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if r.Method == http.MethodGet {
		_ = json.NewEncoder(w).Encode(map[string]any{"commands": a.records})
		return
	}
	var body struct {
		Name   string                     `json:"name"`
		Params map[string]json.RawMessage `json:"params"`
	}
	if err := json.NewDecoder(r.Body).Decode(&body); err != nil {
		a.t.Errorf("body of a command: %v", err)
	}
	_ = json.NewEncoder(w).Encode(a.execute(body.Name, body.Params, r.URL.Query().Get("wait") == "true"))
}

func (a *fakeAgent) execute(name string, params map[string]json.RawMessage, wait bool) map[string]any {
	a.names = append(a.names, name)
	_, short, _ := strings.Cut(name, ".")
	record := map[string]any{
		"id": fmt.Sprint(len(a.records)), "command_name": short, "command_status": "SUCCEEDED", "command_error": nil,
		"command_result": nil,
	}
	result, failure := a.answer(name, params)
	record["command_result"] = result
	if failure != nil {
		record["command_status"], record["command_error"], record["command_result"] = "FAILED", failure, nil
	}
	a.records = append(a.records, record)
	if wait {
		return record
	}
	running := map[string]any{}
	for k, v := range record {
		running[k] = v
	}
	running["command_status"], running["command_result"], running["command_error"] = "RUNNING", nil, nil
	a.forced.Go(func() { a.heartbeat(nil) }) // the end of an asynchronous command triggers a heartbeat
	return running
}

// standard answers every command with a valid reply.
func (a *fakeAgent) standard(name string, params map[string]json.RawMessage) (any, map[string]any) {
	versions := map[string]string{"generic_hardware_manager": "1"}
	step := func(name string, priority int) map[string]any {
		return map[string]any{
			"step": name, "interface": "deploy", "priority": priority, "reboot_requested": false, "abortable": true,
		}
	}
	switch name {
	case "clean.get_clean_steps":
		return map[string]any{"hardware_manager_version": versions, "clean_steps": map[string]any{
			"GenericHardwareManager": []any{
				step("erase_pstore", 5), step("erase_devices", 10), step("erase_devices_metadata", 99),
			},
		}}, nil
	case "deploy.get_deploy_steps":
		return map[string]any{"hardware_manager_version": versions, "deploy_steps": map[string]any{
			"GenericHardwareManager": []any{step("write_image", 0)},
		}}, nil
	case "clean.execute_clean_step":
		return map[string]any{"clean_result": nil, "clean_step": params["step"]}, nil
	case "deploy.execute_deploy_step":
		return map[string]any{"deploy_step": params["step"], "deploy_result": map[string]string{
			"result": "prepare_image: image (disk.raw) written to device /dev/vda root_uuid=0x00000000",
		}}, nil
	case "standby.get_partition_uuids":
		return map[string]string{"root uuid": "0x00000000"}, nil
	case "log.collect_system_logs":
		var archive bytes.Buffer
		w := gzip.NewWriter(&archive)
		_, _ = io.WriteString(w, "logs") // writes to memory
		_ = w.Close()
		return map[string]string{"system_logs": base64.StdEncoding.EncodeToString(archive.Bytes())}, nil
	}
	return nil, nil
}

func (a *fakeAgent) request(method, path, version string, body any) (int, map[string]any) {
	a.t.Helper()
	text, err := json.Marshal(body)
	if err != nil {
		a.t.Fatal(err)
	}
	req, err := http.NewRequestWithContext(a.t.Context(), method, a.api+path, bytes.NewReader(text))
	if err != nil {
		a.t.Fatal(err)
	}
	if version != "" {
		req.Header.Set("X-OpenStack-Ironic-API-Version", version)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, nil // the test has ended
	}
	defer resp.Body.Close() //nolint:errcheck // only read
	var answer map[string]any
	_ = json.NewDecoder(resp.Body).Decode(&answer)
	return resp.StatusCode, answer
}

// lookup requests and stores UUID and token.
func (a *fakeAgent) lookup(mac string) (int, map[string]any) {
	status, answer := a.request(http.MethodGet, "/v1/lookup?addresses="+mac, "1.62", nil)
	if status == http.StatusOK {
		a.uuid = answer["node"].(map[string]any)["uuid"].(string)
		if token := answer["config"].(map[string]any)["agent_token"].(string); len(token) >= 32 {
			a.token = token
		}
	}
	return status, answer
}

// heartbeat sends a heartbeat with some fields changed.
func (a *fakeAgent) heartbeat(change map[string]any) int { return a.heartbeatAt("1.68", change) }

// heartbeatAt sends a heartbeat with an API version.
func (a *fakeAgent) heartbeatAt(version string, change map[string]any) int {
	body := map[string]any{
		"callback_url": a.url, "agent_token": a.token, "agent_version": "1.0", "agent_verify_ca": a.pem,
	}
	for k, v := range change {
		body[k] = v
	}
	status, _ := a.request(http.MethodPost, "/v1/heartbeat/"+a.uuid, version, body)
	return status
}
