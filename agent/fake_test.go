package agent

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"ironroot/agent/api"
	"ironroot/agent/config"
	"ironroot/agent/journal"
	"ironroot/agent/status"
	"ironroot/internal/test/testenv"
	"ironroot/storage/sysfs"
)

const (
	nodeUUID = "8f3b1a3e-2a4d-4f0e-9a57-2c3d1f9b7a11"
	// testToken is the token of a lookup response: 43 characters, like Ironic's.
	testToken = "qL9Zr0vYc1mK4tXw8sBn2dHf6gJp3aQe5uTi7oRyVzA"
)

// fakeIronic serves lookup and heartbeat over TLS. On every heartbeat it calls the agent back.
type fakeIronic struct {
	*httptest.Server
	config map[string]any // of the lookup's answer
	// properties of the node for each lookup in turn; the last ones repeat.
	properties []map[string]any
	callBack   func(beat) error // calls the agent back
	version    string           // of the API, "" for 1.115
	inspected  int              // status of the inspection's answer; 0 is 202
	api        *pipes           // to the agent in a bubble; otherwise nil

	mu       sync.Mutex
	hidden   bool   // the root document contains no version
	status   int    // of the lookup's answer; 0 is 200
	forgot   string // a token that heartbeats are refused for
	requests []string
	lookups  []url.Values // the queries
	beats    chan beat
}

// beat is a heartbeat and the result of calling back.
type beat struct {
	CallbackURL string `json:"callback_url"`
	Token       string `json:"agent_token"`
	Version     string `json:"agent_version"`
	CA          string `json:"agent_verify_ca"`
	Progress    string `json:"agent_status_message"`
	called      error
}

func newIronic(t *testing.T) *fakeIronic {
	t.Helper()
	f := unstartedIronic()
	f.Server = httptest.NewTLSServer(f)
	t.Cleanup(f.Close)
	return f
}

func unstartedIronic() *fakeIronic {
	f := &fakeIronic{
		beats: make(chan beat, 100), config: map[string]any{"heartbeat_timeout": 300, "agent_token": testToken},
	}
	f.callBack = f.readStatus
	return f
}

// startFunc starts an agent like startAgent.
type startFunc func(change func(*Options), args ...string) *running

// inBubble runs a test in a bubble of testing/synctest, so that the pauses between heartbeats take no time. Ironic and
// the agent, which start starts, are connected by pipes.
func inBubble(
	t *testing.T, test func(t *testing.T, ironic *fakeIronic, start startFunc),
) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		ironic, port := unstartedIronic(), newPipes()
		ironic.api = newPipes()
		ironic.Server = httptest.NewUnstartedServer(ironic)
		_ = ironic.Listener.Close()
		ironic.Listener = port
		ironic.Start()
		t.Cleanup(func() {
			ironic.Close()
			time.Sleep(time.Minute) // both ends of a TLS connection that close it at the same time wait for 5 s
		})
		test(t, ironic, func(change func(*Options), args ...string) *running {
			return startAgent(t, func(o *Options) {
				o.Dialer = port
				o.Ports = listening(func(context.Context, string, int) (net.Listener, error) {
					return ironic.api.open(), nil
				})
				if change != nil {
					change(o)
				}
			}, append(args, "--api-url="+ironic.URL, "--tls-certificate-curve=p256")...)
		})
	})
}

func (f *fakeIronic) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	f.mu.Lock()
	f.requests = append(f.requests, r.Method+" "+r.URL.Path)
	f.mu.Unlock()
	w.Header().Set("Content-Type", "application/json")
	switch r.URL.Path {
	case "/":
		f.mu.Lock()
		hidden := f.hidden
		f.mu.Unlock()
		if hidden {
			_, _ = io.WriteString(w, "{}")
			return
		}
		_, _ = io.WriteString(w, `{"default_version":{"version":"`+cmp.Or(f.version, "1.115")+`"}}`)
	case "/v1/lookup":
		f.mu.Lock()
		status := f.status
		properties := map[string]any{}
		if n := len(f.properties); n > 0 {
			properties = f.properties[min(len(f.lookups), n-1)]
		}
		f.lookups = append(f.lookups, r.URL.Query())
		f.mu.Unlock()
		if status != 0 {
			w.WriteHeader(status)
		}
		_ = json.NewEncoder(w).Encode(map[string]any{
			"node": map[string]any{"uuid": nodeUUID, "properties": properties}, "config": f.config,
		})
	case "/v1/continue_inspection":
		w.WriteHeader(cmp.Or(f.inspected, http.StatusAccepted))
		_, _ = io.WriteString(w, `{"uuid":"`+nodeUUID+`"}`)
	case "/v1/heartbeat/" + nodeUUID:
		var b beat
		err := json.NewDecoder(r.Body).Decode(&b)
		b.called = errors.Join(err, f.callBack(b))
		f.mu.Lock()
		refused := f.forgot != "" && b.Token == f.forgot
		f.mu.Unlock()
		if refused {
			w.WriteHeader(http.StatusBadRequest)
			_, _ = io.WriteString(w, `{"error_message":{"faultstring":"Invalid or missing agent token received."}}`)
		} else {
			w.WriteHeader(http.StatusAccepted)
		}
		f.beats <- b
	default:
		w.WriteHeader(http.StatusNotFound)
	}
}

// answer sets the status of later lookups.
func (f *fakeIronic) answer(status int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.status = status
}

// forget makes heartbeats with a token be refused.
func (f *fakeIronic) forget(token string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.forgot = token
}

// addresses returns the MAC addresses of each lookup.
func (f *fakeIronic) addresses() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	var sent []string
	for _, query := range f.lookups {
		sent = append(sent, query.Get("addresses"))
	}
	return sent
}

func (f *fakeIronic) seen() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return append([]string(nil), f.requests...)
}

// clear empties the list of requests.
func (f *fakeIronic) clear() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.requests = nil
}

// trusting returns a client that trusts only the certificate of a heartbeat.
func trusting(ca string) *http.Client {
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM([]byte(ca))
	return &http.Client{
		Timeout: time.Minute, Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool}},
	}
}

// client returns a client for the agent that trusts only the certificate of a heartbeat.
func (f *fakeIronic) client(ca string) *http.Client {
	if f.api != nil {
		return f.api.client(ca)
	}
	return trusting(ca)
}

func (f *fakeIronic) readStatus(b beat) error {
	answer, err := f.client(b.CA).Get(b.CallbackURL + "/v1/status")
	if err != nil {
		return err
	}
	if answer.StatusCode != http.StatusOK {
		err = fmt.Errorf("status %d", answer.StatusCode)
	}
	return errors.Join(err, answer.Body.Close())
}

// bareMachine is a machine without a disk and a network card.
func bareMachine(t *testing.T) sysfs.Root {
	t.Helper()
	sys := sysfs.Root{Path: t.TempDir()}
	for _, dir := range []string{
		sys.Sys("class/net"), sys.Sys("block"), sys.Sys("class/block"), sys.Dev(), sys.Proc(),
	} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return sys
}

// running is an agent of this test.
type running struct {
	t       *testing.T
	port    int
	journal *journal.Journal
	console *testenv.Log
	client  *http.Client
	base    string // URL of the API
	token   string
	done    chan error
	network *fakeNetwork
	phases  chan string // the latest ones that reach has not read
}

// fakeDrivers are drivers that are loaded when the channel is closed. They call resume when drivers are requested.
type fakeDrivers struct {
	settled <-chan struct{}
	resume  func()
}

func (d fakeDrivers) Settled() <-chan struct{} { return d.settled }
func (fakeDrivers) Enter(status.Phase)         {}
func (d fakeDrivers) Resume() {
	if d.resume != nil {
		d.resume()
	}
}

// loading is a machine whose drivers are loaded when a channel is closed.
func loading(settled <-chan struct{}) Machine { return Machine{Drivers: fakeDrivers{settled: settled}} }

// phaseDrivers calls a function when a phase begins.
type phaseDrivers struct {
	Drivers
	enter func(phase string)
}

func (d phaseDrivers) Enter(phase status.Phase) {
	d.enter(string(phase))
	d.Drivers.Enter(phase)
}

// onEnter returns drivers that call enter at each phase and otherwise behave like d; nil are loaded.
func onEnter(d Drivers, enter func(phase string)) Drivers {
	if d == nil {
		d = fakeDrivers{}
	}
	return phaseDrivers{d, enter}
}

// detachFunc is called to detach the disks of a network.
type detachFunc func(ctx context.Context)

func (f detachFunc) Detach(ctx context.Context) { f(ctx) }

// endLoginsFunc is called to end logins. A rescue is possible.
type endLoginsFunc func()

func (f endLoginsFunc) EndLogins()                        { f() }
func (endLoginsFunc) PrepareRescue(context.Context) error { return nil }

// prepareRescueFunc is called to prepare a rescue. There are no logins.
type prepareRescueFunc func() error

func (prepareRescueFunc) EndLogins()                            {}
func (f prepareRescueFunc) PrepareRescue(context.Context) error { return f() }

// reloadFunc is called to read virtual media again.
type reloadFunc func() *config.Config

func (f reloadFunc) Reload(context.Context) *config.Config { return f() }

type fakeNetwork struct {
	down     chan struct{}
	restored chan bool // receives whether only persistent settings were restored
}

func (*fakeNetwork) WaitAddress(context.Context) error { return nil }
func (*fakeNetwork) Changed() <-chan struct{}          { return nil }
func (n *fakeNetwork) RestoreFirmwareLLDP(persistent bool) error {
	n.restored <- persistent
	return errors.New("locked down")
}

func (n *fakeNetwork) Down(context.Context) error {
	close(n.down)
	return nil
}

// startAgent runs an agent with the flags until the test ends.
func startAgent(t *testing.T, change func(*Options), args ...string) *running {
	t.Helper()
	port := testenv.Port(t) // the agent can open it again
	l, err := api.Listen(context.Background(), "127.0.0.1", port)
	if err != nil {
		t.Fatal(err)
	}
	r := &running{
		t: t, console: &testenv.Log{}, client: http.DefaultClient, token: testToken, done: make(chan error, 1),
		network: &fakeNetwork{make(chan struct{}), make(chan bool, 100)}, phases: make(chan string, 100),
		port: port,
	}
	r.base = "http://127.0.0.1:" + strconv.Itoa(r.port)
	args = append([]string{"--advertise-host=127.0.0.1", "--advertise-port=" + strconv.Itoa(r.port), "--insecure"},
		args...)
	options, err := config.Load(config.Sources{Args: args})
	if err != nil {
		t.Fatal(err)
	}
	r.journal = journal.New(r.console, nil, 1<<20)
	var first sync.Once
	o := Options{
		Config: options, Journal: r.journal, Machine: Machine{Network: r.network}, Pause: time.Millisecond,
		Ports: listening(func(ctx context.Context, host string, port int) (net.Listener, error) {
			taken := l
			first.Do(func() { l = nil })
			if taken != nil {
				return taken, nil
			}
			return api.Listen(ctx, "127.0.0.1", r.port)
		}),
	}
	if change != nil {
		change(&o)
	}
	o.Machine.Drivers = onEnter(o.Machine.Drivers, r.enter)
	ctx, cancel := context.WithCancel(context.Background())
	go func() { r.done <- Run(ctx, o) }()
	t.Cleanup(func() {
		cancel()
		if err := <-r.done; err != nil {
			t.Errorf("agent ended with %v, want no error after the end of its context", err)
		}
		if l != nil {
			_ = l.Close()
		}
	})
	return r
}

// enter keeps a phase for reach. It drops the oldest one if there are too many: a test that waits for something else
// must not stop an agent that starts over again and again.
func (r *running) enter(phase string) {
	for {
		select {
		case r.phases <- phase:
			return
		default:
		}
		select {
		case <-r.phases:
		default:
		}
	}
}

// reach waits for a phase of the agent.
func (r *running) reach(phase string) {
	r.t.Helper()
	limit := time.After(time.Minute)
	for {
		select {
		case got := <-r.phases:
			if got == phase {
				return
			}
		case <-limit:
			r.t.Fatalf("phase %q did not come; log:\n%s", phase, r.console)
		}
	}
}

// beat waits for a heartbeat and uses its URL and certificate from now on.
func (r *running) beat(f *fakeIronic) beat {
	r.t.Helper()
	select {
	case b := <-f.beats:
		r.base, r.client = b.CallbackURL, f.client(b.CA)
		return b
	case <-time.After(time.Minute):
		r.t.Fatalf("no heartbeat; log:\n%s", r.console)
		return beat{}
	}
}

func (r *running) do(method, path, body string) (int, string) {
	r.t.Helper()
	request, err := http.NewRequest(method, r.base+path, strings.NewReader(body))
	if err != nil {
		r.t.Fatal(err)
	}
	answer, err := r.client.Do(request)
	if err != nil {
		r.t.Fatal(err)
	}
	data, err := io.ReadAll(answer.Body)
	if err := errors.Join(err, answer.Body.Close()); err != nil {
		r.t.Fatal(err)
	}
	return answer.StatusCode, string(data)
}

// record is a command as the API shows it.
type record struct {
	Name   string          `json:"command_name"`
	Status string          `json:"command_status"`
	Error  map[string]any  `json:"command_error"`
	Result json.RawMessage `json:"command_result"`
}

func (r *running) run(name, params string) record {
	r.t.Helper()
	code, body := r.post(name, params)
	var got record
	if err := json.Unmarshal([]byte(body), &got); err != nil || code != 200 {
		r.t.Fatalf("%s: got %d %s (%v), want 200 and a record", name, code, body, err)
	}
	return got
}

func (r *running) post(name, params string) (int, string) {
	r.t.Helper()
	return r.do("POST", "/v1/commands/?wait=true&agent_token="+r.token, `{"name":"`+name+`","params":`+params+`}`)
}

func (r *running) list() []record {
	r.t.Helper()
	_, body := r.do("GET", "/v1/commands/?agent_token="+r.token, "")
	var got struct{ Commands []record }
	if err := json.Unmarshal([]byte(body), &got); err != nil {
		r.t.Fatalf("list: %s: %v", body, err)
	}
	return got.Commands
}

// listening implements [Ports].
type listening func(ctx context.Context, host string, port int) (net.Listener, error)

func (l listening) Listen(ctx context.Context, host string, port int) (net.Listener, error) {
	return l(ctx, host, port)
}

// dialing implements [ironic.Dialer].
type dialing func(ctx context.Context, network, address string) (net.Conn, error)

func (d dialing) DialContext(ctx context.Context, network, address string) (net.Conn, error) {
	return d(ctx, network, address)
}
