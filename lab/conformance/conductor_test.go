//go:build linux

package conformance

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"ironroot/lab/conductor"
)

// ironicRequest is a request of an agent to Ironic, and the status of the reply.
type ironicRequest struct {
	Method  string              `json:"method"`
	Path    string              `json:"path"`
	Query   map[string][]string `json:"query,omitempty"`
	Version string              `json:"version,omitempty"`
	ID      string              `json:"request_id,omitempty"`
	Body    any                 `json:"body,omitempty"`
	Status  int                 `json:"status"`
	// Reply is the number of the reply if the scenario has several, from 1.
	Reply int `json:"reply,omitempty"`
}

// scriptedIronic is an Ironic whose replies a scenario prescribes.
type scriptedIronic struct {
	mu       sync.Mutex
	replies  replies
	node     object
	counts   map[string]int
	requests []ironicRequest
	until    until
	reached  chan struct{}
	open     map[string]bool // remote addresses of open connections; connections of a former agent are false
}

// connection is called when the state of a connection to Ironic changes.
func (c *scriptedIronic) connection(conn net.Conn, state http.ConnState) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch state {
	case http.StateNew:
		if c.open == nil {
			c.open = map[string]bool{}
		}
		c.open[conn.RemoteAddr().String()] = true
	case http.StateClosed, http.StateHijacked:
		delete(c.open, conn.RemoteAddr().String())
	}
}

// forget makes the conductor ignore requests on the connections that are open, the connections of an agent that was
// stopped.
func (c *scriptedIronic) forget() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for address := range c.open {
		c.open[address] = false
	}
}

// play begins a scenario. reached is closed with the reply to the request that the scenario waits for.
func (c *scriptedIronic) play(s scenario) (reached <-chan struct{}) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.replies, c.node, c.counts, c.requests = s.ironic, nodeWith(s.node), map[string]int{}, nil
	c.until, c.reached = s.until, make(chan struct{})
	if c.until.kind == "" {
		c.until = until{heartbeatRequest, 1}
	}
	return c.reached
}

// await continues a scenario until another request.
func (c *scriptedIronic) await(u until) (reached <-chan struct{}) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.until, c.reached = u, make(chan struct{})
	return c.reached
}

// received returns the requests up to the one that the scenario waits for.
func (c *scriptedIronic) received() []ironicRequest {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.requests
}

// ServeHTTP replies to a request of the agent.
func (c *scriptedIronic) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return // the agent's connection is lost
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.reached == nil || !c.open[r.RemoteAddr] {
		http.Error(w, "no scenario", http.StatusServiceUnavailable)
		return
	}
	kind, scripted, usual := c.usual(r)
	answer, number := reply{}, 0
	if n := c.counts[kind]; len(scripted) > 0 {
		n = min(n, len(scripted)-1)
		if answer = scripted[n]; len(scripted) > 1 {
			number = n + 1
		}
	}
	c.counts[kind]++
	if answer.status == 0 {
		answer.status = usual.status
	}
	switch {
	case answer.body != nil:
	case answer.status >= http.StatusBadRequest:
		answer.body = object{"error_message": object{
			"faultcode": "Client", "faultstring": http.StatusText(answer.status), "debuginfo": nil,
		}}
	default:
		answer.body = usual.body
		if config, ok := answer.body.(object)["config"].(object); ok {
			maps.Copy(config, answer.config)
			maps.DeleteFunc(config, func(key string, _ any) bool {
				value, replaced := answer.config[key]
				return replaced && value == nil
			})
		}
	}
	if answer.kind == "" {
		answer.kind = "application/json"
	}
	select {
	case <-c.reached:
	default:
		request := describe(r, body, answer.status)
		request.Reply = number
		c.requests = append(c.requests, request)
		if c.until.kind == kind && c.counts[kind] == c.until.n {
			close(c.reached)
		}
	}
	if answer.status == hangUp {
		panic(http.ErrAbortHandler)
	}
	if location, ok := answer.body.(string); ok && answer.status/100 == 3 {
		w.Header().Set("Location", location)
	}
	w.Header().Set("Content-Type", answer.kind)
	w.Header().Set("X-OpenStack-Ironic-API-Minimum-Version", "1.1")
	w.Header().Set("X-OpenStack-Ironic-API-Maximum-Version", "1.115")
	w.WriteHeader(answer.status)
	if text, ok := answer.body.(string); ok {
		_, _ = io.WriteString(w, text)
		return
	}
	_ = json.NewEncoder(w).Encode(answer.body) // the agent may have disconnected
}

// usual returns the kind of a request, the scenario's replies to it and the usual one.
func (c *scriptedIronic) usual(r *http.Request) (kind string, scripted []reply, usual reply) {
	// A scenario can give Ironic's API this prefix.
	switch path := strings.TrimPrefix(r.URL.Path, "/baremetal"); {
	case path == "" || path == "/" || path == "/v1" || path == "/v1/":
		v1 := object{
			"id": "v1", "links": []object{{"href": "http://" + r.Host + "/v1/", "rel": "self"}}, "status": "CURRENT",
			"min_version": "1.1", "version": "1.115",
		}
		return rootRequest, c.replies.root, reply{status: http.StatusOK, body: object{
			"name": "OpenStack Ironic API", "description": "", "default_version": v1, "versions": []object{v1},
		}}
	case path == "/v1/lookup":
		return lookupRequest, c.replies.lookup, reply{status: http.StatusOK, body: object{
			"node": c.node, "config": lookupConfig(),
		}}
	case strings.HasPrefix(path, "/v1/heartbeat/"):
		return heartbeatRequest, c.replies.heartbeat, reply{status: http.StatusAccepted, body: object{}}
	case path == "/v1/continue_inspection":
		return inspectionRequest, c.replies.inspection, reply{
			status: http.StatusAccepted,
			body:   object{"uuid": nodeUUID},
		}
	}
	return otherRequest, nil, reply{status: http.StatusNotFound}
}

// lookupConfig returns the configuration in the usual reply to a lookup.
func lookupConfig() object {
	config := conductor.LookupConfig(5 * time.Minute)
	config["agent_token"], config["agent_md5_checksum_enable"] = token, false
	delete(config, "tls_min_version") // scenarios that are about it set it
	delete(config, "tls_cipher_suites")
	return config
}

func describe(r *http.Request, body []byte, status int) ironicRequest {
	request := ironicRequest{
		Method: r.Method, Path: r.URL.Path, Query: r.URL.Query(), Status: status,
		Version: r.Header.Get("X-OpenStack-Ironic-API-Version"), ID: r.Header.Get("X-OpenStack-Request-ID"),
	}
	if len(body) > 0 {
		if err := json.Unmarshal(body, &request.Body); err != nil {
			request.Body = string(body)
		}
	}
	return request
}

// exchange is a request to the agent and its reply.
type exchange struct {
	Request string            `json:"request"`
	Status  int               `json:"status"`
	Header  map[string]string `json:"header,omitempty"`
	Body    any               `json:"body"`
}

// failed reports whether a command was rejected or failed.
func (x exchange) failed() bool {
	fields, _ := x.Body.(object)
	return x.Status >= http.StatusBadRequest || fields["command_status"] == "FAILED"
}

// send sends a request to the agent, by TLS unless its path is a URL. {id} in its path is the id of the last command.
// It returns the id of a command in the reply, or id.
func send(ctx context.Context, client *http.Client, r request, id string) (exchange, string, error) {
	target, err := url.Parse(strings.ReplaceAll(r.path, "{id}", id))
	if err != nil {
		return exchange{}, "", err
	}
	query := target.Query()
	switch r.token {
	case "-":
	case "":
		query.Set("agent_token", token)
	default:
		query.Set("agent_token", r.token)
	}
	if r.wait {
		query.Set("wait", "true")
	}
	target.RawQuery = query.Encode()
	if target.Scheme == "" {
		target.Scheme = "https"
	}
	target.Host = fmt.Sprintf("%s:%d", agentAddress, agentPort)
	q, err := http.NewRequestWithContext(ctx, r.method, target.String(), strings.NewReader(r.body))
	if err != nil {
		return exchange{}, "", err
	}
	q.Header.Set("Content-Type", "application/json")
	if r.kind != "" {
		q.Header.Set("Content-Type", r.kind)
	}
	response, err := client.Do(q)
	if err != nil {
		return exchange{}, "", fmt.Errorf("%s %s: %w", r.method, r.path, err)
	}
	defer response.Body.Close() //nolint:errcheck // only read
	text, err := io.ReadAll(response.Body)
	if err != nil {
		return exchange{}, "", fmt.Errorf("%s %s: %w", r.method, r.path, err)
	}
	x := exchange{Request: describeRequest(r), Status: response.StatusCode, Header: map[string]string{}}
	for _, name := range []string{"Content-Type", "Location", "Allow"} {
		if value := response.Header.Get(name); value != "" {
			x.Header[name] = value
		}
	}
	if err := json.Unmarshal(text, &x.Body); err != nil {
		x.Body = string(text)
	}
	if fields, ok := x.Body.(object); ok {
		if given, ok := fields["id"].(string); ok && fields["command_status"] != nil {
			id = given
		}
	}
	return x, id, nil
}

// describeRequest returns a request in a line, for readers of recordings.
func describeRequest(r request) string {
	var body struct{ Name string }
	text := r.method + " " + r.path
	if json.Unmarshal([]byte(r.body), &body) == nil && body.Name != "" {
		text += " " + body.Name
	}
	return text
}
