// Package conductor is a small substitute for Ironic's API and conductor, for demonstrations and tests. It answers a
// deploy ramdisk's lookup, heartbeats and inspection data, and cleans and deploys nodes through the ramdisk's agent,
// with the requests and reactions of Ironic's conductor, in the same order.
//
// It is as strict as Ironic: a heartbeat requires TLS, a token and a version, a lookup masks a token that an earlier
// lookup returned, and the callback address must not change. To find mistakes it is stricter than Ironic in one
// respect: unknown keys in replies are errors.
//
// Limits: nodes are kept in memory; there is no database, no power control (the caller controls the machines) and no
// RBAC.
package conductor

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"ironroot/internal/webserver"
	"ironroot/lab/selfsigned"
)

// Options configures a Conductor. The zero value serves HTTP on a free port of 127.0.0.1.
type Options struct {
	Addr  string   // "host:port" to listen on
	TLS   bool     // serve HTTPS with a generated certificate, see CertificatePEM
	Names []string // additional host names and addresses for the certificate

	APIVersion       string         // highest microversion, "" means 1.115
	HeartbeatTimeout time.Duration  // sent in the lookup's answer, 0 means 300 s
	Config           map[string]any // overrides keys of config in lookup replies; a nil value removes the key
	FastTrack        bool           // allow lookups also in the states that Ironic allows with fast track
	AgentCA          string         // PEM; used to verify agents whose heartbeats contain no certificate
	PlainAgents      bool           // accept callback URLs without TLS

	Dialer Dialer // nil means a net.Dialer
	// CommandTimeout limits one request to an agent, 0 means 60 s. PollInterval is the interval between two requests
	// for a command's status, 0 means 6 s.
	CommandTimeout, PollInterval time.Duration

	Events Events // may be nil
	Log    *slog.Logger
}

// Dialer connects to agents. Guests on QEMU's own network are reached through a forwarded port.
type Dialer interface {
	// DialContext connects to an agent at the address of its callback URL.
	DialContext(ctx context.Context, network, address string) (net.Conn, error)
}

// Events receives the events of nodes.
type Events interface {
	// Event is called with each event, in order.
	Event(n *Node, e Event)
}

// Conductor is a running conductor.
type Conductor struct {
	options  Options
	listener net.Listener
	server   *webserver.Server
	scheme   string
	pem      []byte
	max      version
	date     atomic.Pointer[func() time.Time]

	mu    sync.Mutex
	nodes []*Node
	wrong []string
}

// New starts a conductor. The caller must close it.
func New(o Options) (*Conductor, error) {
	if o.Addr == "" {
		o.Addr = "127.0.0.1:0"
	}
	if o.APIVersion == "" {
		o.APIVersion = "1.115"
	}
	if o.HeartbeatTimeout == 0 {
		o.HeartbeatTimeout = 300 * time.Second
	}
	if o.CommandTimeout == 0 {
		o.CommandTimeout = 60 * time.Second
	}
	if o.PollInterval == 0 {
		o.PollInterval = 6 * time.Second
	}
	if o.Dialer == nil {
		o.Dialer = &net.Dialer{}
	}
	if o.Log == nil {
		o.Log = slog.New(slog.NewTextHandler(io.Discard, nil))
	}
	highest, err := parseVersion(o.APIVersion)
	if err != nil {
		return nil, fmt.Errorf("conductor: %w", err)
	}
	listener, err := (&net.ListenConfig{}).Listen(context.Background(), "tcp", o.Addr)
	if err != nil {
		return nil, fmt.Errorf("conductor: %w", err)
	}
	listener = webserver.Listener(listener)
	c := &Conductor{options: o, listener: listener, scheme: "http", max: highest}
	if o.TLS {
		host, _, _ := net.SplitHostPort(listener.Addr().String()) // a listener's address always has both parts
		certificate, pem, err := selfsigned.Issue(append(o.Names, host)...)
		if err != nil {
			return nil, errors.Join(err, listener.Close())
		}
		listener = tls.NewListener(listener,
			&tls.Config{Certificates: []tls.Certificate{certificate}, MinVersion: tls.VersionTLS12})
		c.scheme, c.pem = "https", pem
	}
	server := &http.Server{Handler: c.dated(c.routes()), ReadHeaderTimeout: time.Minute}
	c.server = webserver.Serve(context.Background(), listener, server, nil)
	return c, nil
}

// Close stops the API, aborts its requests and waits until the port is free and Events has received theirs. Methods
// that wait for a node return only when their context ends.
func (c *Conductor) Close() error { return c.server.Close() }

// Port returns the API's TCP port.
func (c *Conductor) Port() int { return c.listener.Addr().(*net.TCPAddr).Port }

// URL returns the API's URL for clients on this machine.
func (c *Conductor) URL() string { return c.scheme + "://" + c.listener.Addr().String() }

// URLFrom returns the API's URL for clients that reach this machine as host.
func (c *Conductor) URLFrom(host string) string {
	return c.scheme + "://" + net.JoinHostPort(host, fmt.Sprint(c.Port()))
}

// CertificatePEM returns the certificate that HTTPS clients must trust.
func (c *Conductor) CertificatePEM() []byte { return c.pem }

// SetDate sets the clock for the Date header of all replies. now is called once per request.
func (c *Conductor) SetDate(now func() time.Time) { c.date.Store(&now) }

// dated sets the Date header from the clock of SetDate.
func (c *Conductor) dated(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if now := c.date.Load(); now != nil {
			w.Header().Set("Date", (*now)().UTC().Format(http.TimeFormat))
		}
		next.ServeHTTP(w, r)
	})
}

// Violations returns the clients' violations of the protocol so far, one sentence each.
func (c *Conductor) Violations() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return append([]string(nil), c.wrong...)
}

func (c *Conductor) violation(format string, args ...any) string {
	text := fmt.Sprintf(format, args...)
	c.mu.Lock()
	c.wrong = append(c.wrong, text)
	c.mu.Unlock()
	c.options.Log.Warn("protocol violated", "err", text)
	return text
}

// AddNode adds a node in the state "enroll".
func (c *Conductor) AddNode(spec NodeSpec) *Node {
	n := newNode(c, spec)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.nodes = append(c.nodes, n)
	return n
}

func (c *Conductor) byUUID(uuid string) *Node {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, n := range c.nodes {
		if n.spec.UUID == uuid {
			return n
		}
	}
	return nil
}

func (c *Conductor) byMACs(macs []string) *Node {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, n := range c.nodes {
		for _, mac := range n.spec.MACs {
			for _, asked := range macs {
				if strings.EqualFold(mac, asked) {
					return n
				}
			}
		}
	}
	return nil
}

// version is an API microversion.
type version struct{ major, minor int }

func parseVersion(text string) (version, error) {
	var v version
	if _, err := fmt.Sscanf(text, "%d.%d", &v.major, &v.minor); err != nil {
		return version{}, fmt.Errorf("API version %q is not of the form 1.2", text)
	}
	return v, nil
}

func (v version) less(w version) bool {
	return v.major < w.major || (v.major == w.major && v.minor < w.minor)
}
