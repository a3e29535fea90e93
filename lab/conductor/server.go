package conductor

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"
)

const (
	versionHeader = "X-OpenStack-Ironic-API-Version"
	bodyLimit     = 64 << 20 // of a request; inspection data can contain logs
)

var (
	tokenVersion  = version{1, 62} // lookups return tokens, heartbeats contain them
	verifyVersion = version{1, 68} // heartbeats contain a certificate
	statusVersion = version{1, 72} // heartbeats may carry a status message
	lookupVersion = version{1, 22} // lookup exists
)

func (c *Conductor) routes() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /{$}", c.root)
	mux.HandleFunc("GET /v1/lookup", c.lookup)
	mux.HandleFunc("POST /v1/heartbeat/{uuid}", c.heartbeat)
	mux.HandleFunc("POST /v1/continue_inspection", c.continueInspection)
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		c.refuse(w, http.StatusNotFound, "%s %s: no such resource", r.Method, r.URL.Path)
	})
	return mux
}

func writeJSON(w http.ResponseWriter, status int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(body) // the client may have disconnected
}

// refuse replies with an error in Ironic's form and records a violation of the protocol.
func (c *Conductor) refuse(w http.ResponseWriter, status int, format string, args ...any) {
	c.fail(w, status, c.violation(format, args...))
}

func (c *Conductor) fail(w http.ResponseWriter, status int, text string) {
	writeJSON(w, status, map[string]any{"error_message": map[string]any{
		"faultcode": "Client", "faultstring": text, "debuginfo": nil,
	}})
}

func (c *Conductor) root(w http.ResponseWriter, r *http.Request) {
	v1 := map[string]any{
		"id": "v1", "links": []map[string]any{{"href": c.scheme + "://" + r.Host + "/v1/", "rel": "self"}},
		"status": "CURRENT", "min_version": "1.1", "version": c.options.APIVersion,
	}
	writeJSON(w, http.StatusOK, map[string]any{
		"name": "OpenStack Ironic API",
		"description": "Ironic is an OpenStack project which enables the provision and management of " +
			"baremetal machines.",
		"default_version": v1, "versions": []any{v1},
	})
}

// requestVersion returns the requested microversion, or the oldest if the header is missing. It sets the reply's
// header with the highest version.
func (c *Conductor) requestVersion(w http.ResponseWriter, r *http.Request) (version, bool) {
	w.Header().Set("X-OpenStack-Ironic-API-Maximum-Version", c.options.APIVersion)
	text := r.Header.Get(versionHeader)
	if text == "" {
		return version{1, 1}, true
	}
	v, err := parseVersion(text)
	if err != nil {
		c.refuse(w, http.StatusNotAcceptable, "%s: %v", r.URL.Path, err)
		return version{}, false
	}
	if c.max.less(v) {
		c.refuse(w, http.StatusNotAcceptable, "%s: version %s was requested but the highest is %s",
			r.URL.Path, text, c.options.APIVersion)
		return version{}, false
	}
	return v, true
}

var (
	lookupStates = []string{
		"deploying", DeployWait, "cleaning", CleanWait, "inspecting", InspectWait, "rescuing", "rescue wait",
		"service wait",
	}
	fastStates = []string{Enroll, Manageable, Available, "servicing", "service hold"}
)

func (c *Conductor) lookup(w http.ResponseWriter, r *http.Request) {
	v, ok := c.requestVersion(w, r)
	if !ok {
		return
	}
	if v.less(lookupVersion) {
		c.refuse(w, http.StatusNotFound, "lookup needs version 1.22, the request has %q", r.Header.Get(versionHeader))
		return
	}
	query := r.URL.Query()
	for key := range query {
		if key != "addresses" && key != "node_uuid" {
			c.refuse(w, http.StatusBadRequest, "lookup: parameter %q is unknown", key)
			return
		}
	}
	macs := slices.DeleteFunc(strings.Split(query.Get("addresses"), ","), func(s string) bool { return s == "" })
	uuid := query.Get("node_uuid")
	if len(macs) == 0 && uuid == "" {
		c.refuse(w, http.StatusBadRequest, "lookup: neither addresses nor node_uuid are given")
		return
	}
	n := c.byUUID(uuid)
	if n == nil {
		n = c.byMACs(macs)
	}
	if n == nil || !c.mayLookup(n.State()) {
		c.fail(w, http.StatusNotFound, "Node with provided addresses or uuid could not be found.")
		return
	}
	writeJSON(w, http.StatusOK, map[string]any{"node": n.lookupNode(r), "config": c.lookupConfig(n, v)})
	n.event(EventLookup, "addresses %s", strings.Join(macs, ","))
}

func (c *Conductor) mayLookup(state string) bool {
	return slices.Contains(lookupStates, state) || (c.options.FastTrack && slices.Contains(fastStates, state))
}

func (n *Node) lookupNode(r *http.Request) map[string]any {
	doc := n.document()
	answer := map[string]any{"links": []map[string]any{
		{"href": "http://" + r.Host + "/v1/nodes/" + n.spec.UUID, "rel": "self"},
		{"href": "http://" + r.Host + "/nodes/" + n.spec.UUID, "rel": "bookmark"},
	}}
	for _, key := range []string{"uuid", "properties", "instance_info", "driver_internal_info"} {
		answer[key] = doc[key]
	}
	return answer
}

// takeToken returns the token for a lookup reply: a generated token once, a mask otherwise.
func (n *Node) takeToken() string {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.tokenGiven || n.spec.Token != "" {
		return "******"
	}
	n.token, n.tokenGiven = NewToken(), true
	return n.token
}

// LookupConfig returns the configuration in the reply of Ironic 39 to a lookup, without a token.
func LookupConfig(heartbeatTimeout time.Duration) map[string]any {
	return map[string]any{
		"metrics": map[string]any{
			"backend": "noop", "prepend_host": false, "prepend_uuid": false, "prepend_host_reverse": true,
			"global_prefix": nil,
		},
		"metrics_statsd":    map[string]any{"statsd_host": "localhost", "statsd_port": 8125},
		"heartbeat_timeout": int(heartbeatTimeout.Seconds()),
		"agent_containers": map[string]any{
			"allow_arbitrary_containers": false,
			"allowed_containers":         []string{}, "container_steps_file": "/etc/ironic-python-agent.d/mysteps.yaml",
			"runner": "podman", "pull_options": []string{}, "run_options": []string{"--rm", "--network=host"},
		},
		"agent_token_required": true, "agent_md5_checksum_enable": true, "disable_deep_image_inspection": false,
		"permitted_image_formats": []string{"raw", "gpt", "qcow2", "iso"}, "agent_skip_bmc_detect": true,
		"enable_bios_bootloader_install": false, "tls_min_version": "1.3", "tls_cipher_suites": nil,
	}
}

func (c *Conductor) lookupConfig(n *Node, v version) map[string]any {
	config := LookupConfig(c.options.HeartbeatTimeout)
	if !v.less(tokenVersion) {
		config["agent_token"] = n.takeToken()
	}
	maps.Copy(config, c.options.Config)
	maps.DeleteFunc(config, func(key string, value any) bool {
		override, overridden := c.options.Config[key]
		return overridden && override == nil
	})
	return config
}

type heartbeatBody struct {
	CallbackURL        string `json:"callback_url"`
	AgentToken         string `json:"agent_token"`
	AgentVersion       string `json:"agent_version"`
	AgentVerifyCA      string `json:"agent_verify_ca"`
	AgentStatus        string `json:"agent_status"`
	AgentStatusMessage string `json:"agent_status_message"`
}

func (c *Conductor) heartbeat(w http.ResponseWriter, r *http.Request) {
	v, ok := c.requestVersion(w, r)
	if !ok {
		return
	}
	n := c.byUUID(r.PathValue("uuid"))
	if n == nil {
		c.refuse(w, http.StatusNotFound, "heartbeat: node %s could not be found", r.PathValue("uuid"))
		return
	}
	var body heartbeatBody
	decoder := json.NewDecoder(io.LimitReader(r.Body, bodyLimit))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&body); err != nil {
		c.refuse(w, http.StatusBadRequest, "heartbeat: %v", err)
		return
	}
	if text := n.checkHeartbeat(v, body); text != "" {
		c.refuse(w, http.StatusBadRequest, "heartbeat: %s", text)
		return
	}
	first := false
	n.update(func() {
		n.callback, n.ca, n.agentVersion = body.CallbackURL, body.AgentVerifyCA, body.AgentVersion
		first = n.heartbeats == 0
		if text := body.AgentStatusMessage; text != "" {
			n.progress = slices.Compact(append(n.progress, text))
		}
	})
	w.WriteHeader(http.StatusAccepted)
	if first {
		n.event(EventFirstHeartbeat, "agent %s at %s", body.AgentVersion, body.CallbackURL)
	} else {
		n.event(EventHeartbeat, "%s", body.AgentStatusMessage)
	}
	n.update(func() { n.heartbeats++ })
}

// checkHeartbeat applies Ironic's rules. It returns the reason to reject the heartbeat, or "".
func (n *Node) checkHeartbeat(v version, body heartbeatBody) string {
	n.mu.Lock()
	defer n.mu.Unlock()
	switch {
	case v.less(tokenVersion):
		return fmt.Sprintf("version 1.%d carries no agent token", v.minor)
	case body.AgentToken == "" || n.token == "" || body.AgentToken != n.token:
		return "the agent token is missing or wrong" // the token must not be in the message
	case body.AgentVersion == "":
		return "agent_version is missing"
	case !strings.HasPrefix(body.CallbackURL, "https://") && !n.conductor.options.PlainAgents:
		return fmt.Sprintf("callback_url %q does not use TLS", body.CallbackURL)
	case n.callback != "" && n.callback != body.CallbackURL:
		return fmt.Sprintf("callback_url changed from %q to %q", n.callback, body.CallbackURL)
	case body.AgentVerifyCA != "" && v.less(verifyVersion):
		return fmt.Sprintf("version 1.%d knows no agent_verify_ca", v.minor)
	case body.AgentStatus != "":
		return "agent_status is for kickstart deployments only"
	case body.AgentStatusMessage != "" && v.less(statusVersion):
		return fmt.Sprintf("version 1.%d knows no agent_status_message", v.minor)
	case strings.Contains(body.AgentStatusMessage, n.token):
		return "the agent token is in agent_status_message"
	case len([]rune(body.AgentStatusMessage)) > 250 || strings.ContainsAny(body.AgentStatusMessage, "\r\n\x1b"):
		return fmt.Sprintf("agent_status_message is not one short line: %q", body.AgentStatusMessage)
	}
	return ""
}

type inspectionBody struct {
	Inventory *struct {
		Interfaces []struct {
			Name string `json:"name"`
			MAC  string `json:"mac_address"`
		} `json:"interfaces"`
	} `json:"inventory"`
	Error *string `json:"error"`
}

func (c *Conductor) continueInspection(w http.ResponseWriter, r *http.Request) {
	if v := r.Header.Get(versionHeader); v != "" {
		c.refuse(w, http.StatusBadRequest, "inspection data came with a version header %q, which changes the answer", v)
		return
	}
	data, err := io.ReadAll(io.LimitReader(r.Body, bodyLimit))
	if err != nil {
		c.refuse(w, http.StatusBadRequest, "inspection data: %v", err)
		return
	}
	var body inspectionBody
	if err := json.Unmarshal(data, &body); err != nil {
		c.refuse(w, http.StatusBadRequest, "inspection data: %v", err)
		return
	}
	if body.Inventory == nil || len(body.Inventory.Interfaces) == 0 {
		c.refuse(w, http.StatusBadRequest, "inspection data: inventory.interfaces is missing or empty")
		return
	}
	var macs []string
	for _, i := range body.Inventory.Interfaces {
		if i.MAC == "" {
			c.refuse(w, http.StatusBadRequest, "inspection data: interface %s has no mac_address", i.Name)
			return
		}
		macs = append(macs, i.MAC)
	}
	n := c.byMACs(macs)
	if n == nil || n.State() != InspectWait {
		c.fail(w, http.StatusNotFound,
			"no node in state inspect wait has one of the addresses "+strings.Join(macs, ", "))
		return
	}
	n.update(func() {
		n.inventory = data
		if body.Error != nil {
			n.inspectError = *body.Error
		}
		if n.inspectError == "" {
			n.state = Manageable
		}
	})
	writeJSON(w, http.StatusAccepted, map[string]string{"uuid": n.spec.UUID})
	n.event(EventInspection, "%d bytes", len(data))
}
