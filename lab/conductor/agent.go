package conductor

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
)

// The statuses of a command.
const (
	Running         = "RUNNING"
	Succeeded       = "SUCCEEDED"
	Failed          = "FAILED"
	VersionMismatch = "CLEAN_VERSION_MISMATCH"
)

// Record is a command as reported by the agent.
type Record struct {
	ID     string
	Name   string // without the extension
	Status string
	Error  *CommandError
	Result json.RawMessage
}

// CommandError is the error of a failed command.
type CommandError struct {
	Type    string `json:"type"`
	Code    int    `json:"code"`
	Message string `json:"message"`
	Details string `json:"details"`
}

// Error returns the text that Ironic shows: the type with the details, or with the message if there are no details.
func (e *CommandError) Error() string {
	if e.Details != "" {
		return e.Type + ": " + e.Details
	}
	return e.Type + ": " + e.Message
}

// FaultError is an HTTP error returned by the agent.
type FaultError struct {
	Status int
	Fault  string // the faultstring
}

// Error returns the status and the agent's fault string.
func (e *FaultError) Error() string { return fmt.Sprintf("agent answered %d: %s", e.Status, e.Fault) }

// UnmarshalJSON accepts a command object only if it has exactly the keys of the protocol.
func (r *Record) UnmarshalJSON(data []byte) error {
	var keys map[string]json.RawMessage
	if err := json.Unmarshal(data, &keys); err != nil {
		return fmt.Errorf("command object: %w", err)
	}
	fields := map[string]any{
		"id": &r.ID, "command_name": &r.Name, "command_status": &r.Status, "command_error": nil, "command_result": nil,
	}
	for key := range keys {
		if _, known := fields[key]; !known {
			return fmt.Errorf("command object: key %q is unknown", key)
		}
	}
	for key, into := range fields {
		raw, there := keys[key]
		if !there {
			return fmt.Errorf("command object: key %q is missing", key)
		}
		if into == nil {
			continue
		}
		if err := json.Unmarshal(raw, into); err != nil {
			return fmt.Errorf("command object: key %q: %w", key, err)
		}
	}
	r.Result = keys["command_result"]
	if string(keys["command_error"]) != "null" {
		r.Error = &CommandError{}
		decoder := json.NewDecoder(bytes.NewReader(keys["command_error"]))
		decoder.DisallowUnknownFields()
		if err := decoder.Decode(r.Error); err != nil {
			return fmt.Errorf("command object: command_error: %w", err)
		}
	}
	return r.check()
}

func (r *Record) check() error {
	switch r.Status {
	case Running, Succeeded:
		if r.Error != nil {
			return fmt.Errorf("command %s is %s and has an error: %w", r.Name, r.Status, r.Error)
		}
	case Failed, VersionMismatch:
		if r.Error == nil {
			return fmt.Errorf("command %s is %s and has no error", r.Name, r.Status)
		}
	default:
		return fmt.Errorf("command %s: status %q is unknown", r.Name, r.Status)
	}
	return nil
}

// err returns the error of a failed command, or nil.
func (r *Record) err() error {
	if r.Error == nil {
		return nil
	}
	return fmt.Errorf("command %s %s: %w", r.Name, r.Status, r.Error)
}

// Command posts a command and returns the agent's reply. With wait, the agent replies when the command has ended. A
// rejected request is a *FaultError. A failed command is not an error here: see Record.
func (n *Node) Command(ctx context.Context, name string, params map[string]any, wait bool) (*Record, error) {
	if params == nil {
		params = map[string]any{}
	}
	body, err := json.Marshal(map[string]any{"name": name, "params": params})
	if err != nil {
		return nil, fmt.Errorf("command %s: %w", name, err)
	}
	n.event(EventCommand, "%s", name)
	var r Record
	if err := n.request(ctx, http.MethodPost, url.Values{"wait": {strconv.FormatBool(wait)}}, body, &r); err != nil {
		return nil, fmt.Errorf("command %s: %w", name, err)
	}
	if short := name[strings.LastIndex(name, ".")+1:]; r.Name != short && r.Status != Failed {
		return nil, fmt.Errorf("command %s: got a record of %q, want %q", name, r.Name, short)
	}
	return &r, nil
}

// Commands returns the agent's list of commands.
func (n *Node) Commands(ctx context.Context) ([]Record, error) {
	var list struct {
		Commands *[]Record `json:"commands"`
	}
	if err := n.request(ctx, http.MethodGet, url.Values{}, nil, &list); err != nil {
		return nil, fmt.Errorf("list of commands: %w", err)
	}
	if list.Commands == nil {
		return nil, errors.New("list of commands: key \"commands\" is missing")
	}
	return *list.Commands, nil
}

// request sends a request to the agent. It trusts only the certificate of the agent's heartbeat, or Options.AgentCA
// if the heartbeat has none.
func (n *Node) request(ctx context.Context, method string, query url.Values, body []byte, answer any) error {
	n.mu.Lock()
	callback, ca, token := n.callback, n.ca, n.token
	n.mu.Unlock()
	if callback == "" {
		return errors.New("no heartbeat yet, so no agent to talk to")
	}
	client, err := n.client(cmp.Or(ca, n.conductor.options.AgentCA))
	if err != nil {
		return err
	}
	defer client.CloseIdleConnections()
	ctx, cancel := context.WithTimeout(ctx, n.conductor.options.CommandTimeout)
	defer cancel()
	query.Set("agent_token", token)
	req, err := http.NewRequestWithContext(ctx, method, callback+"/v1/commands/?"+query.Encode(), bytes.NewReader(body))
	if err != nil {
		return fmt.Errorf("request to %s: %w", callback, hideURL(err))
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := client.Do(req)
	if err != nil {
		return fmt.Errorf("request to %s: %w", callback, hideURL(err))
	}
	defer resp.Body.Close() //nolint:errcheck // only read
	text, err := io.ReadAll(io.LimitReader(resp.Body, bodyLimit))
	if err != nil {
		return fmt.Errorf("answer of %s: %w", callback, hideURL(err))
	}
	return readAnswer(resp, text, answer)
}

// hideURL removes the URL, which contains the token, from an error of net/http.
func hideURL(err error) error {
	var withURL *url.Error
	if errors.As(err, &withURL) {
		return withURL.Err
	}
	return err
}

func readAnswer(resp *http.Response, text []byte, answer any) error {
	if kind := resp.Header.Get("Content-Type"); kind != "application/json" {
		return fmt.Errorf("answer %d: got content type %q, want application/json", resp.StatusCode, kind)
	}
	if resp.StatusCode >= http.StatusBadRequest {
		var fault struct {
			Code   string  `json:"faultcode"`
			String *string `json:"faultstring"`
		}
		if err := json.Unmarshal(text, &fault); err != nil || fault.String == nil {
			return fmt.Errorf("answer %d without a faultstring: %.200q", resp.StatusCode, text)
		}
		return &FaultError{Status: resp.StatusCode, Fault: *fault.String}
	}
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("got status %d, want 200", resp.StatusCode)
	}
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(answer); err != nil {
		return fmt.Errorf("answer: %w", err)
	}
	return nil
}

func (n *Node) client(ca string) (*http.Client, error) {
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM([]byte(ca)) && !n.conductor.options.PlainAgents {
		return nil, errors.New("the heartbeat's agent_verify_ca holds no certificate")
	}
	return &http.Client{Transport: &http.Transport{
		DialContext:     n.conductor.options.Dialer.DialContext,
		TLSClientConfig: &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS13},
	}}, nil
}
