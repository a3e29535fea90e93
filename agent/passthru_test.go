package agent

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

// mitaka answers as Ironic 5.1, whose conductor knows no agent token, and returns the URLs of heartbeats.
func mitaka(t *testing.T) (url string, beats chan string) {
	beats = make(chan string, 100)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.Method + " " + r.URL.Path {
		case "GET /":
			_, _ = io.WriteString(w, `{"default_version":{"id":"v1","min_version":"1.1","version":"1.16"}}`)
		case "POST /v1/drivers/pxe_ipmitool/vendor_passthru/lookup":
			_, _ = io.WriteString(w, `{"heartbeat_timeout":300,"node":{"uuid":"`+nodeUUID+`","properties":{}}}`)
		case "POST /v1/nodes/" + nodeUUID + "/vendor_passthru/heartbeat":
			var body struct {
				URL string `json:"agent_url"`
			}
			if err := json.NewDecoder(r.Body).Decode(&body); err != nil {
				t.Errorf("heartbeat: %v", err)
			}
			w.WriteHeader(http.StatusAccepted)
			beats <- body.URL
		default:
			w.WriteHeader(http.StatusNotFound)
		}
	}))
	t.Cleanup(server.Close)
	return server.URL, beats
}

// An Ironic before API version 1.22 finds the node by ipa-driver-name, and its conductor runs commands without a token,
// over HTTP. With a token of the operator, commands still need it.
//
// Parity: B20 (commands)
func TestPassthruCommands(t *testing.T) {
	for name, preset := range map[string]string{"no token": "", "preset token": testToken} {
		t.Run(name, func(t *testing.T) {
			api, beats := mitaka(t)
			machine := bareMachine(t)
			addCard(t, machine, "eth0", "52:54:00:12:34:56")
			r := startAgent(t, func(o *Options) { o.System = machine }, "--api-url="+api,
				"--driver_name=pxe_ipmitool", "--agent_token="+preset)
			select {
			case got := <-beats:
				if got != r.base {
					t.Errorf("heartbeat: got agent_url %s, want %s", got, r.base)
				}
			case <-time.After(time.Minute):
				t.Fatalf("no heartbeat; log:\n%s", r.console)
			}
			r.token = ""
			code, body := r.post("standby.get_partition_uuids", "{}")
			if want := map[string]int{"": http.StatusOK, testToken: http.StatusUnauthorized}[preset]; code != want {
				t.Errorf("command without a token: got %d %s, want %d", code, body, want)
			}
			if r.token = "wrong"; r.token != preset {
				if code, _ := r.post("standby.get_partition_uuids", "{}"); code != http.StatusUnauthorized {
					t.Errorf("command with a wrong token: got %d, want 401", code)
				}
			}
			const warning = "the API accepts commands of any host"
			if got := strings.Contains(r.console.String(), warning); got != (preset == "") {
				t.Errorf("warning about commands without a token: got %v; log:\n%s", got, r.console)
			}
		})
	}
}

// A newer Ironic is not asked by the driver, and its conductor needs the token, even if Ironic has sent none.
func TestDriverNameWithNewerIronic(t *testing.T) {
	ironic := newIronic(t)
	ironic.config = map[string]any{"heartbeat_timeout": 300}
	machine := bareMachine(t)
	addCard(t, machine, "eth0", "52:54:00:12:34:56")
	r := startAgent(t, func(o *Options) { o.System = machine }, "--api-url="+ironic.URL, "--driver_name=pxe_ipmitool")
	r.beat(ironic)
	r.token = ""
	if code, body := r.post("standby.get_partition_uuids", "{}"); code != http.StatusUnauthorized {
		t.Errorf("command without a token: got %d %s, want 401", code, body)
	}
	for _, request := range ironic.seen() {
		if strings.Contains(request, "vendor_passthru") {
			t.Errorf("got request %s", request)
		}
	}
}
