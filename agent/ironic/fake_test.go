package ironic

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"ironroot/agent/config"
	"ironroot/agent/token"
	"ironroot/internal/test/testenv"
)

const (
	nodeUUID = "b77a8c26-f785-4c57-91f5-b6ad41a2e08d"
	secret   = "gdt9B6gPWZk2jYcAkz4tZK2B9xqXDXAhUuYwWfs5Nq0"
)

// network provides connections in memory, for tests in a synctest bubble. Hosts that are
// not in it refuse connections.
type network struct {
	mu     sync.Mutex
	hosts  map[string]*pipes
	dials  []string
	refuse int // first connections that even its hosts refuse
}

func newNetwork(t *testing.T) *network {
	n := &network{hosts: map[string]*pipes{}}
	t.Cleanup(func() {
		n.mu.Lock()
		defer n.mu.Unlock()
		for _, p := range n.hosts {
			_ = p.server.Close()
		}
	})
	return n
}

// pipes is a listener of net.Pipe connections.
type pipes struct {
	server *http.Server
	conns  chan net.Conn
	closed chan struct{}
	once   sync.Once
}

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.conns:
		return c, nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}

func (p *pipes) Close() error {
	p.once.Do(func() { close(p.closed) })
	return nil
}

func (p *pipes) Addr() net.Addr { return &net.TCPAddr{} }

func (n *network) serve(host string, handler http.Handler) {
	p := &pipes{conns: make(chan net.Conn), closed: make(chan struct{})}
	p.server = &http.Server{Handler: handler}
	n.mu.Lock()
	n.hosts[host] = p
	n.mu.Unlock()
	go func() { _ = p.server.Serve(p) }()
}

// dialFunc is a [Dialer] of a test.
type dialFunc func(ctx context.Context, network, address string) (net.Conn, error)

// DialContext implements [Dialer].
func (f dialFunc) DialContext(ctx context.Context, network, address string) (net.Conn, error) {
	return f(ctx, network, address)
}

func (n *network) DialContext(ctx context.Context, _, address string) (net.Conn, error) {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return nil, err
	}
	n.mu.Lock()
	n.dials = append(n.dials, host)
	p, refused := n.hosts[host], len(n.dials) <= n.refuse
	n.mu.Unlock()
	if p == nil || refused {
		return nil, fmt.Errorf("dial %s: connection refused", address)
	}
	here, there := net.Pipe()
	select {
	case p.conns <- there:
		return here, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// fake is a scripted Ironic that records its requests.
type fake struct {
	mu    sync.Mutex
	calls []call
	start time.Time
	// version is the API version of the root document; "" answers 503.
	version string
	// newest is the API version in the header of other responses, "" for none.
	newest string
	// lookup, heartbeat and inspection are handlers; nil responds with success.
	lookup, heartbeat, inspection func(n int) (status int, body string)
	counts                        map[string]int
}

// call is one recorded request.
type call struct {
	At           time.Duration // since the fake was made
	Method, Path string
	Query        string
	Version      string // the header
	Header       http.Header
	Body         map[string]any
}

func newFake(version string) *fake {
	return &fake{version: version, start: time.Now(), counts: map[string]int{}}
}

func lookupAnswer(config string) string {
	return `{"node":{"uuid":"` + nodeUUID + `","properties":{},"instance_info":{}},"config":` + config + `}`
}

func (f *fake) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	data, _ := io.ReadAll(r.Body)
	var body map[string]any
	_ = json.Unmarshal(data, &body)
	f.mu.Lock()
	f.calls = append(f.calls, call{
		time.Since(f.start), r.Method, r.URL.Path, r.URL.RawQuery, r.Header.Get("X-OpenStack-Ironic-API-Version"),
		r.Header, body,
	})
	kind, script, status, text := "root", (func(int) (int, string))(nil), 200, `{"default_version":{"version":"`+
		f.version+`"}}`
	switch {
	case r.URL.Path == "/v1/lookup":
		kind, script, text = "lookup", f.lookup, lookupAnswer(`{"heartbeat_timeout":300,"agent_token":"`+secret+`"}`)
	case strings.HasPrefix(r.URL.Path, "/v1/heartbeat/"):
		kind, script, status, text = "heartbeat", f.heartbeat, 202, ""
	case r.Method == http.MethodPost:
		kind, script, status, text = "inspection", f.inspection, 202, `{"uuid":"`+nodeUUID+`"}`
	case f.version == "":
		status, text = 503, "not yet"
	}
	f.counts[kind]++
	n := f.counts[kind]
	f.mu.Unlock() // a handler can sleep, and no lock must be held during a sleep in a bubble
	if script != nil {
		status, text = script(n)
	}
	if f.newest != "" && kind != "root" {
		w.Header().Set("X-OpenStack-Ironic-API-Maximum-Version", f.newest)
	}
	w.WriteHeader(status)
	_, _ = io.WriteString(w, text)
}

// got returns the recorded calls of one path.
func (f *fake) got(prefix string) []call {
	f.mu.Lock()
	defer f.mu.Unlock()
	var list []call
	for _, c := range f.calls {
		if c.Path == prefix || prefix != "/" && strings.HasPrefix(c.Path, prefix) {
			list = append(list, c)
		}
	}
	return list
}

// settings is a configuration made of flags.
func settings(t *testing.T, args ...string) *config.Live {
	t.Helper()
	c, err := config.Load(config.Sources{Args: args})
	if err != nil {
		t.Fatal(err)
	}
	return config.NewLive(c)
}

// newClient makes a client on a network, whose log goes into the returned builder.
func newClient(t *testing.T, n *network, args ...string) (*Client, *testenv.Log) {
	t.Helper()
	log := &testenv.Log{}
	tok := &token.Token{}
	tok.Set(secret)
	c, err := New(Options{
		Config: settings(t, args...), Token: tok, Version: "1.2.3", Dialer: n,
		Log: slog.New(slog.NewTextHandler(log, &slog.HandlerOptions{Level: slog.LevelDebug})),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		c.http.CloseIdleConnections()
		c.probe.CloseIdleConnections()
		if strings.Contains(log.String(), secret) {
			t.Errorf("the token is in the log:\n%s", log)
		}
	})
	return c, log
}

// fakeHost is a host whose functions are replaced unless they are nil.
type fakeHost struct {
	host
	sourceFor func(ctx context.Context, dst netip.Addr) (netip.Addr, error)
	resolve   func(name string) ([]netip.Addr, error)
}

func (f fakeHost) SourceFor(ctx context.Context, dst netip.Addr) (netip.Addr, error) {
	if f.sourceFor == nil {
		return f.host.SourceFor(ctx, dst)
	}
	return f.sourceFor(ctx, dst)
}

func (f fakeHost) Resolve(ctx context.Context, name string) ([]netip.Addr, error) {
	if f.resolve == nil {
		return f.host.Resolve(ctx, name)
	}
	return f.resolve(name)
}

// fixed is a jitter without chance.
type fixed float64

func (f fixed) Float64() float64 { return float64(f) }

// fakeAgent is an agent that calls done, unless it is nil, with the results of heartbeats.
type fakeAgent struct {
	url, pem string
	done     func(err error)
}

func (a fakeAgent) CallbackURL() string    { return a.url }
func (a fakeAgent) CertificatePEM() string { return a.pem }

func (a fakeAgent) HeartbeatDone(_ context.Context, err error) {
	if a.done != nil {
		a.done(err)
	}
}

// fakeBoard calls the functions that are not nil.
type fakeBoard struct {
	tried    func(url string, err error)
	lookedUp func(err error)
}

func (b fakeBoard) Tried(url string, err error) {
	if b.tried != nil {
		b.tried(url, err)
	}
}

func (b fakeBoard) Problem(source string, err error) {
	if b.lookedUp != nil && source == "lookup" {
		b.lookedUp(err)
	}
}

// statusOf returns the HTTP status of an error, 0 without one.
func statusOf(err error) int {
	if status := (*StatusError)(nil); errors.As(err, &status) {
		return status.Status
	}
	return 0
}
