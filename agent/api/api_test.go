package api

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"ironroot/agent/command"
	"ironroot/agent/fault"
	"ironroot/agent/token"
	"ironroot/internal/test/testenv"
)

const secret = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFG"

// fixture is a served API with commands for these tests.
type fixture struct {
	*httptest.Server
	t       *testing.T
	token   *token.Token
	log     *testenv.Log
	release chan struct{} // lets test.slow end
	kind    string        // content type of requests
}

func start(t *testing.T) *fixture {
	t.Helper()
	f := &fixture{
		t: t, token: &token.Token{}, log: &testenv.Log{}, release: make(chan struct{}), kind: "application/json",
	}
	log := slog.New(slog.NewTextHandler(f.log, nil))
	registry := command.NewRegistry(f.extensions(), command.Options{Log: log})
	t.Cleanup(registry.Close)
	f.Server = httptest.NewServer(New(Options{
		Commands: registry, Token: f.token, Version: "1.2.3", Started: time.UnixMicro(1700000000123456), Log: log,
	}))
	t.Cleanup(f.Close)
	f.Client().CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	return f
}

func (f *fixture) extensions() []command.Extension {
	run := func(result any, err error) func(context.Context, command.Params) (any, error) {
		return func(context.Context, command.Params) (any, error) { return result, err }
	}
	strict := []command.Param{{Name: "needed", Required: true}, {Name: "other"}}
	return []command.Extension{{Name: "test", Commands: []command.Command{
		{Name: "text", Run: run("done", nil)},
		{Name: "caller", Run: func(ctx context.Context, _ command.Params) (any, error) {
			c, ok := command.CallerOf(ctx)
			if !ok {
				return nil, errors.New("unknown caller")
			}
			return []string{c.Remote.String(), c.Local.String()}, nil
		}},
		{Name: "object", Run: run(map[string]int{"n": 1}, nil)},
		{Name: "nothing", Run: run(nil, nil)},
		{Name: "fail", Run: run(nil, errors.New("broken disk"))},
		{Name: "lookup_fails", Run: run(nil, fault.NotFound("Key", "x"))},
		{Name: "panics", Run: func(context.Context, command.Params) (any, error) { panic("oops") }},
		{Name: "unserialisable", Run: run(make(chan int), nil)},
		{Name: "strict", Params: strict, Run: run(nil, nil)},
		{Name: "refuses", Run: run(nil, fault.InvalidCommandParams("not like this"))},
		{Name: "destroy", Destructive: true, Run: run(nil, nil)},
		{Name: "async_text", Async: true, Run: run("written", nil)},
		{Name: "async_fail", Async: true, Run: run(nil, errors.New("broken disk"))},
		{Name: "async_panics", Async: true, Run: func(context.Context, command.Params) (any, error) { panic("oops") }},
		{Name: "async_strict", Async: true, Params: strict, Run: run(nil, nil)},
		{
			Name: "mismatch", Async: true,
			Run: run(nil, fault.VersionMismatch(map[string]string{"a": "2"}, map[string]string{"a": "1"})),
		},
		{Name: "validated", Async: true, Validate: func(context.Context, command.Params) error {
			return fault.InvalidCommandParams("bad image")
		}, Run: run(nil, nil)},
		{Name: "slow", Async: true, Run: func(context.Context, command.Params) (any, error) {
			<-f.release
			return nil, nil
		}},
	}}}
}

// reply is the status and header of a response.
type reply struct {
	status int
	header http.Header
}

// do sends a request and returns the response with its body.
func (f *fixture) do(method, path, body string) (reply, string) {
	f.t.Helper()
	request, err := http.NewRequest(method, f.URL+path, strings.NewReader(body))
	if err != nil {
		f.t.Fatal(err)
	}
	request.Header.Set("Content-Type", f.kind)
	answer, err := f.Client().Do(request)
	if err != nil {
		f.t.Fatal(err)
	}
	data, err := io.ReadAll(answer.Body)
	if err != nil {
		f.t.Fatal(err)
	}
	if err := answer.Body.Close(); err != nil {
		f.t.Fatal(err)
	}
	return reply{answer.StatusCode, answer.Header}, strings.ReplaceAll(string(data), f.URL, "http://agent")
}

func (f *fixture) want(method, path, body string, status int, text string) {
	f.t.Helper()
	answer, got := f.do(method, path, body)
	if answer.status != status || (text != "" && got != text) {
		f.t.Errorf("%s %s %s: got %d %s, want %d %s", method, path, body, answer.status, got, status, text)
	}
	if kind := answer.header.Get("Content-Type"); kind != "application/json" {
		f.t.Errorf("%s %s: got content type %q, want application/json", method, path, kind)
	}
}

// post runs a command with the valid token and returns its record.
func (f *fixture) post(name, params, wait string) map[string]any {
	f.t.Helper()
	answer, body := f.do("POST", "/v1/commands/?agent_token="+secret+"&wait="+wait,
		`{"name":"`+name+`","params":`+params+`}`)
	if answer.status != 200 {
		f.t.Fatalf("%s: got status %d %s, want 200", name, answer.status, body)
	}
	return f.object(body)
}

func (f *fixture) object(body string) map[string]any {
	f.t.Helper()
	var record map[string]any
	if err := json.Unmarshal([]byte(body), &record); err != nil {
		f.t.Fatalf("%s: %v", body, err)
	}
	return record
}

func (f *fixture) list() []any {
	f.t.Helper()
	answer, body := f.do("GET", "/v1/commands/?agent_token="+secret, "")
	if answer.status != 200 {
		f.t.Fatalf("list: got status %d %s", answer.status, body)
	}
	return f.object(body)["commands"].([]any)
}

func fails(code, text string) string {
	return `{"faultcode":"` + code + `","faultstring":"` + text + `"}`
}

const (
	docV1 = `{"id":"v1","links":[{"href":"http://agent/v1","rel":"self"},` +
		`{"href":"https://docs.openstack.org/ironic-python-agent/","rel":"describedby","type":"text/html"}]}`
	docRoot = `{"name":"OpenStack Ironic Python Agent API","description":"Ironic Python Agent is a provisioning ` +
		`agent for OpenStack Ironic","versions":[` + docV1 + `],"default_version":` + docV1 + `}`
	docOne = `{"commands":[{"href":"http://agent/v1/commands","rel":"self"},{"href":"http://agent/commands",` +
		`"rel":"bookmark"}],` +
		`"status":[{"href":"http://agent/v1/status","rel":"self"},{"href":"http://agent/status","rel":"bookmark"}],` +
		`"media_types":[{"base":"application/json","type":"application/vnd.openstack.ironic-python-agent.v1+json"}],` +
		`"id":"v1","links":[{"href":"http://agent/v1","rel":"self"},` +
		`{"href":"https://docs.openstack.org/ironic-python-agent/","rel":"describedby","type":"text/html"}]}`
	docStatus = `{"started_at":1700000000.123456,"version":"1.2.3"}`
)

// Parity: A1
func TestDocuments(t *testing.T) {
	f := start(t)
	f.want("GET", "/", "", 200, docRoot)
	f.want("GET", "/v1/", "", 200, docOne)
	f.want("GET", "/v1/status", "", 200, docStatus)
	f.want("GET", "/status", "", 200, docStatus)
	f.token.Set(secret)
	f.want("GET", "/v1/commands/?agent_token="+secret, "", 200, `{"commands":[]}`)
	f.want("GET", "/commands/?agent_token="+secret, "", 200, `{"commands":[]}`)
}

// Parity: A2
func TestRouting(t *testing.T) {
	f := start(t)
	for path, target := range map[string]string{
		"/v1":                     "/v1/",
		"/commands?wait=true&x=1": "/commands/?wait=true&x=1",
		"/v1/commands?x=1":        "/v1/commands/?x=1",
	} {
		for _, method := range []string{"GET", "POST"} {
			answer, _ := f.do(method, path, "{}")
			if got := answer.header.Get("Location"); answer.status != 308 || got != f.URL+target {
				t.Errorf("%s %s: got %d to %q, want 308 to %q", method, path, answer.status, got, f.URL+target)
			}
			if got := answer.header.Get("Content-Type"); got != "text/html; charset=utf-8" {
				t.Errorf("%s %s: got content type %q", method, path, got)
			}
		}
	}
	lost := fails("Client", "404 Not Found: The requested URL was not found on the server.")
	for _, path := range []string{"/v1/status/", "/nowhere", "/v2/", "/v1/v1/status", "/v1/commands/a/b", "//"} {
		f.want("GET", path, "", 404, lost)
	}
	refused := fails("Client", "405 Method Not Allowed: The method is not allowed for the requested URL.")
	for path, allow := range map[string]string{
		"/": "HEAD, GET", "/v1/": "HEAD, GET", "/status": "HEAD, GET", "/v1/commands/": "HEAD, GET, POST",
		"/v1/commands/1": "HEAD, GET",
	} {
		for _, method := range []string{"DELETE", "OPTIONS", "PUT"} {
			f.want(method, path, "", 405, refused)
			answer, _ := f.do(method, path, "")
			if got := answer.header.Get("Allow"); got != allow {
				t.Errorf("%s %s: got Allow %q, want %q", method, path, got, allow)
			}
		}
	}
	f.want("POST", "/v1/commands/1", "", 405, refused)
	f.token.Set(secret)
	for _, path := range []string{"/", "/v1/", "/v1/status", "/v1/commands/?agent_token=" + secret} {
		head, body := f.do("HEAD", path, "")
		get, _ := f.do("GET", path, "")
		if head.status != 200 || body != "" || head.header.Get("Content-Length") != get.header.Get("Content-Length") ||
			head.header.Get("Content-Type") != "application/json" {
			t.Errorf("HEAD %s: got %d %q %v, want the headers of GET %v",
				path, head.status, body, head.header, get.header)
		}
	}
}

// Parity: A3
func TestToken(t *testing.T) {
	f := start(t)
	invalid := fails("Client", "401 Unauthorized: Token invalid.")
	body := `{"name":"test.nothing","params":{}}`
	each := func(query string, status int) {
		t.Helper()
		for _, prefix := range []string{"", "/v1"} {
			text := ""
			if status == 401 {
				text = invalid
			}
			f.want("GET", prefix+"/commands/"+query, "", status, text)
			f.want("HEAD", prefix+"/commands/"+query, "", status, "")
			f.want("POST", prefix+"/commands/"+query, body, status, text)
			missing := status
			if status == 200 {
				missing = 404
			}
			f.want("GET", prefix+"/commands/unknown"+query, "", missing, text)
		}
	}
	for _, query := range []string{"", "?agent_token=", "?agent_token=" + secret, "?agent_token=null"} {
		each(query, 401) // no token is known yet
	}
	f.token.Set(secret)
	for _, query := range []string{
		"", "?agent_token=", "?agent_token=wrong", "?agent_token=" + secret + "x", "?agent_token=" + secret[1:],
	} {
		each(query, 401)
	}
	f.want("POST", "/v1/commands/", "not even JSON", 401, invalid)
	if got := len(f.list()); got != 0 {
		t.Errorf("records after refused requests: got %d, want none", got)
	}
	each("?agent_token="+secret, 200)
}

// oldIronic implements [TokenRules].
type oldIronic struct{ old *atomic.Bool }

func (o *oldIronic) ReadsWithoutToken() bool { return o.old.Load() }

// alwaysOld implements [TokenRules].
type alwaysOld struct{}

func (alwaysOld) ReadsWithoutToken() bool { return true }

// timers implements [Timers].
type timers func(name string) (stop func())

func (t timers) Timer(name string) (stop func()) { return t(name) }

// An old Ironic sends the token with commands only. Its address can read records without one, until a request to read
// has contained it. Others can read only that there are none.
//
// Parity: A3 (Ironic before 29.0)
func TestReadsWithoutToken(t *testing.T) {
	l, err := Listen(t.Context(), "127.0.0.1", 0)
	if err != nil {
		t.Fatal(err)
	}
	f := &fixture{t: t, token: &token.Token{}}
	registry := command.NewRegistry(f.extensions(), command.Options{})
	t.Cleanup(registry.Close)
	var old atomic.Bool
	old.Store(true)
	s := Serve(l, New(Options{Commands: registry, Token: f.token, Ironic: &oldIronic{&old}}), nil)
	t.Cleanup(func() { shutdown(s) })
	conductor, other := clientFrom("127.0.0.1"), clientFrom("127.0.0.2")
	want := func(client *http.Client, method, path string, status int) string {
		t.Helper()
		request, err := http.NewRequest(method, "http://"+l.Addr().String()+path,
			strings.NewReader(`{"name":"test.nothing","params":{}}`))
		if err != nil {
			t.Fatal(err)
		}
		answer, err := client.Do(request)
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(answer.Body)
		if err := errors.Join(err, answer.Body.Close()); err != nil || answer.StatusCode != status {
			t.Errorf("%s %s: got %d %s and %v, want %d", method, path, answer.StatusCode, body, err, status)
		}
		return string(body)
	}
	const list, tokenQuery = "/v1/commands/", "?agent_token=" + secret
	want(conductor, "GET", list, 401) // no token is known yet
	f.token.Set(secret)
	want(conductor, "GET", list, 200)
	want(other, "GET", list, 200)
	want(conductor, "POST", list, 401)
	want(conductor, "GET", list+"?agent_token=wrong", 401)
	want(conductor, "GET", list+"?agent_token=", 401)
	var record struct{ ID string }
	if err := json.Unmarshal([]byte(want(conductor, "POST", list+tokenQuery, 200)), &record); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{list, list + record.ID} {
		want(conductor, "GET", path, 200)
		want(clientFrom("127.0.0.1"), "GET", path, 200) // on another connection
		want(other, "GET", path, 401)
	}
	want(conductor, "POST", list, 401)
	old.Store(false)
	want(conductor, "GET", list, 401)
	old.Store(true)
	want(conductor, "GET", list, 200)
	want(conductor, "GET", list+tokenQuery, 200)
	want(conductor, "GET", list, 401)
}

// Any host can learn from an old Ironic's agent that there are no records. One that begins while the request is being
// answered is not shown to it.
func TestReadsNoRecordsWithoutToken(t *testing.T) {
	known := &token.Token{}
	known.Set(secret)
	for path, want := range map[string]string{
		"/v1/commands/":    `{"commands":[]}`,
		"/v1/commands/123": `"Not found: Command Result with id 123 not found."`,
	} {
		registry := command.NewRegistry((&fixture{}).extensions(), command.Options{})
		defer registry.Close()
		a := New(Options{
			Commands: registry, Token: known, Ironic: alwaysOld{},
			Timers: timers(func(string) func() { // called between the check and the answer
				if _, err := registry.Execute(t.Context(), "test.object", nil); err != nil {
					t.Error(err)
				}
				return func() {}
			}),
		})
		read := func() *httptest.ResponseRecorder {
			w := httptest.NewRecorder()
			a.ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, http.NoBody))
			return w
		}
		if got := read().Body.String(); !strings.Contains(got, want) {
			t.Errorf("%s: got %s, want %s", path, got, want)
		}
		if got := read(); got.Code != http.StatusUnauthorized || len(registry.List()) != 1 {
			t.Errorf("%s with %d records: got %d %s, want 401 with one", path, len(registry.List()), got.Code, got.Body)
		}
	}
}

// clientFrom returns a client that connects from an address.
func clientFrom(address string) *http.Client {
	dialer := &net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(address)}}
	return &http.Client{Timeout: time.Minute, Transport: &http.Transport{DialContext: dialer.DialContext}}
}

// Parity: A4
func TestBody(t *testing.T) {
	f := start(t)
	f.token.Set(secret)
	path := "/v1/commands/?agent_token=" + secret
	missing := fails("Client", "400 Bad Request: Missing or invalid name or params")
	for _, body := range []string{
		`[]`, `null`, `"x"`, `1`, `{}`, `{"name":"test.nothing"}`, `{"params":{}}`,
		`{"name":"test.nothing","params":[]}`, `{"name":"test.nothing","params":null}`, `{"name":7,"params":{}}`,
		`{"name":null,"params":{}}`, `{"Name":"test.nothing","params":{}}`,
	} {
		f.want("POST", path, body, 400, missing)
	}
	for _, body := range []string{"", "{", "not JSON", `{"name":"test.nothing","params":{}} trailing`} {
		answer, got := f.do("POST", path, body)
		if answer.status != 400 || !strings.HasPrefix(got,
			`{"faultcode":"Client","faultstring":"400 Bad Request: Failed to decode JSON object: `) {
			t.Errorf("body %q: got %d %s, want 400 Failed to decode", body, answer.status, got)
		}
	}
	if got := len(f.list()); got != 0 {
		t.Errorf("records after bad bodies: got %d, want none", got)
	}
	f.kind = "text/plain"
	f.want("POST", path, `{"name":"test.object","params":{},"more":1}`, 200, "")
	if got := len(f.list()); got != 1 {
		t.Errorf("records after JSON sent as text/plain: got %d, want 1", got)
	}
}

// Parity: A5
func TestUnknown(t *testing.T) {
	f := start(t)
	f.token.Set(secret)
	path := "/v1/commands/?agent_token=" + secret
	for name, want := range map[string]struct {
		code int
		text string
	}{
		"nodot":         {400, "Invalid command: Command name must be of the form <extension>.<name>"},
		"none.text":     {404, "Not found: Extension with id none not found."},
		"test.unknown":  {400, "Invalid command: Unknown command: unknown"},
		"test.text.two": {400, "Invalid command: Unknown command: text.two"},
		"test.destroy":  {400, "Invalid command: test.destroy refused: started without --destructive"},
	} {
		f.want("POST", path, `{"name":"`+name+`","params":{}}`, want.code, fails("Client", want.text))
	}
	f.want("GET", "/v1/commands/123?agent_token="+secret, "", 404,
		fails("Client", "Not found: Command Result with id 123 not found."))
	if got := len(f.list()); got != 0 {
		t.Errorf("records after unknown commands: got %d, want none", got)
	}
}

// Parity: A6, A7
func TestBusyAndWait(t *testing.T) {
	f := start(t)
	f.token.Set(secret)
	path := "/v1/commands/?agent_token=" + secret
	started := f.post("test.slow", "{}", "1")
	if started["command_status"] != "RUNNING" {
		t.Fatalf("slow command with wait=1: got %v, want RUNNING", started["command_status"])
	}
	busy := fails("Client", "Agent is busy: executing command slow")
	f.want("POST", path, `{"name":"test.text","params":{}}`, 409, busy)
	f.want("POST", path, `{"name":"test.async_text","params":{}}`, 409, busy)
	if got := len(f.list()); got != 1 {
		t.Errorf("records: got %d, want 1", got)
	}
	id := started["id"].(string)
	waited := make(chan string, 3)
	for _, wait := range []string{"true", "True", "TRUE"} {
		go func() {
			_, body := f.do("GET", "/v1/commands/"+id+"?agent_token="+secret+"&wait="+wait, "")
			waited <- body
		}()
	}
	_, body := f.do("GET", "/v1/commands/"+id+"?agent_token="+secret+"&wait=yes", "")
	if f.object(body)["command_status"] != "RUNNING" {
		t.Errorf("wait=yes: got %s, want RUNNING at once", body)
	}
	select {
	case body := <-waited:
		t.Fatalf("wait=true answered before the command ended: %s", body)
	case <-time.After(50 * time.Millisecond): // the absence of a response has no event
	}
	close(f.release)
	for range 3 {
		if body := <-waited; f.object(body)["command_status"] != "SUCCEEDED" {
			t.Errorf("waited: got %s, want SUCCEEDED", body)
		}
	}
	if got := f.post("test.async_text", "{}", "true"); got["command_status"] != "SUCCEEDED" {
		t.Errorf("POST with wait=true: got %v, want SUCCEEDED", got)
	}
}

// A command knows the addresses of its connection, whatever a proxy's headers say. IPv4 addresses are not mapped.
func TestCaller(t *testing.T) {
	f := start(t)
	f.token.Set(secret)
	both := &http.Server{Handler: f.Config.Handler}
	listener, err := net.Listen("tcp", ":0") // also for IPv4, whose addresses are mapped
	if err != nil {
		t.Fatal(err)
	}
	go func() { _ = both.Serve(listener) }()
	t.Cleanup(func() { _ = both.Close() })
	client := &http.Client{Transport: &http.Transport{
		DialContext: (&net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 3)}}).DialContext,
	}}
	defer client.CloseIdleConnections()
	path := fmt.Sprintf("http://127.0.0.2:%d/v1/commands/?agent_token=%s", listener.Addr().(*net.TCPAddr).Port, secret)
	request, err := http.NewRequest(http.MethodPost, path, strings.NewReader(`{"name":"test.caller","params":{}}`))
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("X-Forwarded-For", "192.0.2.9")
	request.Header.Set("X-Real-Ip", "192.0.2.9")
	answer, err := client.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	var record struct {
		Result []string `json:"command_result"`
	}
	if err := json.NewDecoder(answer.Body).Decode(&record); err != nil {
		t.Fatal(err)
	}
	if want := []string{"127.0.0.3", "127.0.0.2"}; !slices.Equal(record.Result, want) {
		t.Errorf("got caller and own address %q, want %q", record.Result, want)
	}
}

// Parity: A8
func TestRecord(t *testing.T) {
	f := start(t)
	f.token.Set(secret)
	check := func(name, status string, want any) {
		t.Helper()
		wait := "true"
		if status == "RUNNING" {
			wait = "false"
		}
		got := f.post("test."+name, "{}", wait)
		id, _ := got["id"].(string)
		if len(id) != 36 || id[14] != '4' {
			t.Errorf("%s: got id %q, want a UUID of version 4", name, id)
		}
		delete(got, "id")
		record := map[string]any{
			"command_name": name, "command_status": status, "command_error": nil, "command_result": want,
		}
		if diff := cmp.Diff(record, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
	for name, want := range map[string]any{
		"text":       map[string]any{"result": "done"},
		"object":     map[string]any{"n": 1.0},
		"nothing":    nil,
		"async_text": map[string]any{"result": "async_text: written"},
	} {
		check(name, "SUCCEEDED", want)
	}
	check("slow", "RUNNING", nil)
	close(f.release)
}

func failed(name, kind string, code float64, message, details string) map[string]any {
	return map[string]any{
		"command_name": name, "command_status": "FAILED", "command_result": nil,
		"command_error": map[string]any{"type": kind, "code": code, "message": message, "details": details},
	}
}

// Parity: A9, A10
func TestFailures(t *testing.T) {
	f := start(t)
	f.token.Set(secret)
	const execution, internal = "CommandExecutionError", "Command execution failed"
	mismatch := failed("mismatch", "VersionMismatch", 409,
		"Hardware managers version mismatch, reload agent with correct version",
		"Current versions: map[a:2], versions used by ironic: map[a:1]")
	mismatch["command_status"] = "CLEAN_VERSION_MISMATCH"
	for _, c := range []struct {
		name, params string
		want         map[string]any
	}{
		{"fail", "{}", failed("test.fail", execution, 500, internal, "broken disk")},
		{
			"lookup_fails", "{}",
			failed("test.lookup_fails", "RequestedObjectNotFoundError", 404, "Not found", "Key with id x not found."),
		},
		{"panics", "{}", failed("test.panics", execution, 500, internal, "internal error: panic: oops")},
		{"async_fail", "{}", failed("async_fail", execution, 500, internal, "broken disk")},
		{"async_panics", "{}", failed("async_panics", execution, 500, internal, "internal error: panic: oops")},
		{"strict", `{"needed":1,"b":1}`, failed("test.strict", "TypeError", 500, "Wrong parameters",
			"strict() got an unexpected keyword argument 'b'")},
		{"strict", `{}`, failed("test.strict", "TypeError", 500, "Wrong parameters",
			"strict() is missing the required argument 'needed'")},
		{"async_strict", `{"needed":1,"b":1}`, failed("async_strict", execution, 500, internal,
			"TypeError: async_strict() got an unexpected keyword argument 'b'")},
		{"mismatch", "{}", mismatch},
	} {
		got := f.post("test."+c.name, c.params, "true")
		delete(got, "id")
		if diff := cmp.Diff(c.want, got); diff != "" {
			t.Errorf("%s %s (-want +got):\n%s", c.name, c.params, diff)
		}
	}
	if got := f.post("test.unserialisable", "{}", "true"); got["command_status"] != "FAILED" {
		t.Errorf("result that cannot be encoded: got %v, want FAILED", got)
	}
	path := "/v1/commands/?agent_token=" + secret
	f.want("POST", path, `{"name":"test.refuses","params":{}}`, 400,
		fails("Client", "Invalid command parameters: not like this"))
	f.want("POST", path, `{"name":"test.validated","params":{}}`, 400,
		fails("Client", "Invalid command parameters: bad image"))
	if got := len(f.list()); got != 10 {
		t.Errorf("records: got %d, want 10: rejected requests leave none", got)
	}
	if !strings.Contains(f.log.String(), "api_test.go") {
		t.Error("the stack of a panic is not in the log")
	}
}

// The list has the records of all commands since the agent started, in order.
func TestListHasAllCommandsInOrder(t *testing.T) {
	f := start(t)
	f.token.Set(secret)
	if got := f.list(); len(got) != 0 {
		t.Fatalf("records of a fresh agent: got %v, want none", got)
	}
	var want []any
	for i := range 20 {
		name := []string{"test.text", "test.async_text", "test.fail"}[i%3]
		want = append(want, f.post(name, "{}", "true"))
		if diff := cmp.Diff(want, f.list()); diff != "" {
			t.Fatalf("records after %d commands (-want +got):\n%s", i+1, diff)
		}
	}
	// Another process starts without records.
	again := start(t)
	again.token.Set(secret)
	if got := again.list(); len(got) != 0 {
		t.Errorf("records after a restart: got %v, want none", got)
	}
}

// Parity: A16
func TestRequestLog(t *testing.T) {
	f := start(t)
	f.token.Set(secret)
	wrong := "somebodyelsestokenthatisasecretaswell0000"
	f.do("GET", "/v1/commands/?wait=true&agent_token="+secret+"&x=1", "")
	f.do("GET", "/v1/commands/?agent_token="+wrong, "")
	f.do("GET", "/v1/commands/?agent%5Ftoken="+wrong, "")
	f.do("POST", "/v1/commands?agent_token="+secret, "{}")
	f.do("POST", "/v1/commands/?agent_token="+secret, `{"name":"test.fail","params":{}}`)
	forwarded, err := http.NewRequest(http.MethodGet, f.URL+"/v1/status", http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	forwarded.Header.Set("X-Forwarded-For", "192.0.2.9, 127.0.0.1")
	answer, err := http.DefaultClient.Do(forwarded)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	f.Close() // the last lines are written after the responses
	log := f.log.String()
	for _, text := range []string{secret, wrong} {
		if strings.Contains(log, text) {
			t.Errorf("token %s in the log:\n%s", text, log)
		}
	}
	for _, want := range []string{
		`path="/v1/commands/?wait=true&agent_token=***&x=1" status=200`, "status=401",
		"client=127.0.0.1 peer=127.0.0.1 method=POST",
		"client=192.0.2.9 peer=127.0.0.1 method=GET", // what a client claims never hides its address
	} {
		if !strings.Contains(log, want) {
			t.Errorf("no %q in the request log:\n%s", want, log)
		}
	}
}

// A request that panics is answered, and the server continues.
func TestRequestPanic(t *testing.T) {
	f := start(t)
	f.Config.Handler.(*API).Commands = nil
	f.token.Set(secret)
	f.want("GET", "/v1/commands/?agent_token="+secret, "", 500,
		fails("Server", "500 Internal Server Error: The server encountered an internal error."))
	f.want("GET", "/v1/status", "", 200, docStatus)
}

func FuzzParseCommand(f *testing.F) {
	for _, seed := range []string{`{"name":"a.b","params":{}}`, `[]`, `{"name":null}`, `{`, ``} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		name, params, err := parseCommand(bytes.NewReader(data))
		if err == nil && params == nil {
			t.Errorf("%q: got name %q without parameters and no error", data, name)
		}
		if code, text := errorCode(orNil(err)); err != nil && (code != 400 || text == "") {
			t.Errorf("%q: got %d %q, want 400 and a text", data, code, text)
		}
	})
}

func orNil(err error) error {
	if err == nil {
		return errors.New("none")
	}
	return err
}
