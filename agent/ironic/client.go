// Package ironic is the agent's client of the Ironic API: version discovery, lookup, heartbeat, the inspection
// callback, and the choice of the address that is advertised for Ironic's calls back.
//
// It follows the protocol of ironic-python-agent from API version 1.31 on (/v1/lookup and /v1/heartbeat); the older
// vendor_passthru protocol and multicast DNS discovery are not implemented. Answers of Ironic are bounded in size.
package ironic

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"sync"
	"time"

	"ironroot/agent/config"
	"ironroot/agent/token"
)

// Options are what a Client needs.
type Options struct {
	// Config is read at each call, except for the TLS options, which hold for the client's whole life.
	Config *config.Live
	// Token goes into heartbeats.
	Token *token.Token
	Log   *slog.Logger
	// Version is the agent's version that heartbeats carry. Ironic refuses heartbeats without one.
	Version string

	// Rand returns a number in [0,1) for the jitter of retries and heartbeats; nil takes a random one.
	Rand func() float64
	// Dial connects to Ironic; nil is a net.Dialer.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
	// SourceFor returns the machine's own address on the route to dst; needed by Advertise only.
	SourceFor func(ctx context.Context, dst netip.Addr) (netip.Addr, error)
	// Resolve returns the addresses of a host name; nil is the system's resolver.
	Resolve func(ctx context.Context, host string) ([]netip.Addr, error)
}

// Client talks to Ironic. It is safe for concurrent use.
type Client struct {
	config    *config.Live
	token     *token.Token
	log       *slog.Logger
	version   string
	rand      func() float64
	sourceFor func(ctx context.Context, dst netip.Addr) (netip.Addr, error)
	resolve   func(ctx context.Context, host string) ([]netip.Addr, error)
	http      *http.Client

	mu   sync.Mutex
	urls []string // in the order they are tried
	api  *Version // nil until a discovery succeeded
}

// New builds a client. The error names a certificate or key file that cannot be used.
func New(o Options) (*Client, error) { return nil, errors.New("not implemented") }

// APIVersion returns the newest API version Ironic speaks: the option ironic_api_version, or what its root document
// says. Where that cannot be read it is 1.31, and the next call asks again.
func (c *Client) APIVersion(ctx context.Context) Version { return Version{} }

// Endpoint is where Ironic reaches the agent.
type Endpoint struct {
	Host string // address or name, an IPv6 address without brackets
	Port int
}

// Advertise finds the address to advertise.
func (c *Client) Advertise(ctx context.Context) (Endpoint, error) {
	return Endpoint{}, errors.New("not implemented")
}

// PostInspection sends the inspection's data and returns the uuid of the node Ironic found by it.
func (c *Client) PostInspection(ctx context.Context, data any) (nodeUUID string, err error) {
	return "", errors.New("not implemented")
}

// HeartbeatOptions describe a node's heartbeat.
type HeartbeatOptions struct {
	NodeUUID string
	// Interval is the answer's HeartbeatInterval; heartbeats come after 0.3 to 0.6 of it.
	Interval time.Duration
	// CallbackURL returns where Ironic reaches the agent. Ironic refuses an URL that changes.
	CallbackURL func() string
	// CertificatePEM returns the generated certificate of the agent's API, "" without one; nil is the same.
	CertificatePEM func() string
}

// Heartbeater sends one node's heartbeats.
type Heartbeater struct{}

// NewHeartbeater prepares the heartbeats; Run sends them.
func (c *Client) NewHeartbeater(o HeartbeatOptions) *Heartbeater { return &Heartbeater{} }

// Run sends heartbeats, the first at once, until ctx ends, and returns ctx's error.
func (h *Heartbeater) Run(ctx context.Context) error { return errors.New("not implemented") }

// Force asks for a heartbeat soon: as soon as five seconds passed since the previous one. It never blocks.
func (h *Heartbeater) Force() {}
