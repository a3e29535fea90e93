package ironic

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"ironroot/agent/config"
	"ironroot/agent/token"
	"ironroot/internal/pause"
	"ironroot/netboot/route"
)

// Options configure a Client.
type Options struct {
	// Config is read at each call, except for the TLS options and api_url, which are read once.
	Config *config.Live
	// Token is sent in heartbeats.
	Token *token.Token
	// Log receives attempts and results; nil discards them.
	Log *slog.Logger
	// Version is the agent's version in heartbeats. Ironic rejects heartbeats without one.
	Version string

	// Board shows the results of requests; nil shows nothing.
	Board Board
	// Dialer connects to Ironic; nil is a net.Dialer.
	Dialer Dialer
	// Network notifies of changes. Requests that failed because of the network are then retried. Nil means that the
	// network does not change.
	Network Network
	// Clock is set from Ironic's time if it is implausible; nil never sets it.
	Clock Clock
}

// Board shows the results of requests. *status.Board implements it.
type Board interface {
	// Tried is called after each request with the error of the connection, nil for a response with any status.
	Tried(url string, err error)
	// Problem is called with the source "lookup" after each attempt of a lookup, with its result.
	Problem(source string, err error)
}

// Dialer connects to servers: see [net.Dialer].
type Dialer interface {
	DialContext(ctx context.Context, network, address string) (net.Conn, error)
}

// Network is the machine's network.
type Network interface {
	// Changed returns a channel that is closed at the next change.
	Changed() <-chan struct{}
}

// Clock is the system clock.
type Clock interface {
	SetSystem(now time.Time) error
}

// host is this machine among others.
type host interface {
	// SourceFor returns the machine's own address on the route to dst.
	SourceFor(ctx context.Context, dst netip.Addr) (netip.Addr, error)
	// Resolve returns the addresses of a host name.
	Resolve(ctx context.Context, name string) ([]netip.Addr, error)
	// AskService queries a service by multicast DNS for at most wait.
	AskService(ctx context.Context, wait time.Duration, instance string, interfaces []string, network Network) (
		service, error)
}

// machine is the host that this process runs on.
type machine struct{}

func (machine) SourceFor(ctx context.Context, dst netip.Addr) (netip.Addr, error) {
	return route.SourceFor(ctx, dst)
}

func (machine) Resolve(ctx context.Context, name string) ([]netip.Addr, error) {
	return net.DefaultResolver.LookupNetIP(ctx, "ip", name)
}

func (machine) AskService(
	ctx context.Context, wait time.Duration, instance string, interfaces []string, network Network,
) (service, error) {
	return askService(ctx, wait, instance, interfaces, network.Changed)
}

// nothing shows nothing, and never changes.
type nothing struct{}

func (nothing) Tried(string, error)      {}
func (nothing) Problem(string, error)    {}
func (nothing) Changed() <-chan struct{} { return nil }
func (nothing) Summary() string          { return "" }

// jitter returns numbers in [0,1) for the pauses of retries and heartbeats.
type jitter interface{ Float64() float64 }

// random is the jitter of a Client.
type random struct{}

func (random) Float64() float64 { return rand.Float64() }

// Client talks to Ironic. It is safe for concurrent use.
type Client struct {
	config     *config.Live
	configured *config.Config // the operator's configuration, before discovery
	token      *token.Token
	log        *slog.Logger
	version    string
	board      Board
	jitter     jitter
	host       host
	network    Network
	clock      Clock        // nil if it must not be set
	http       *http.Client // verifies Ironic according to the options
	probe      *http.Client // checks reachability without verification

	passthru atomic.Bool // the last successful lookup used vendor_passthru

	date atomic.Pointer[verifiedDate] // of the last response that TLS has verified

	peer atomic.Pointer[netip.Addr] // at which Ironic was reached last

	mu      sync.Mutex
	urls    []string // in the order they are tried
	reached bool     // one of them has responded
	api     *Version // nil until discovered
}

// idleConnections is the number of connections kept open for the next call.
const idleConnections = 2

// New returns a client. It fails if a certificate or key file is invalid.
func New(o Options) (*Client, error) {
	c := &Client{
		config: o.Config, configured: o.Config.Get(), token: o.Token, log: o.Log, version: o.Version,
		board: o.Board, network: o.Network, clock: o.Clock, host: machine{}, jitter: random{},
		urls: o.Config.Get().APIURLs(),
	}
	if c.log == nil {
		c.log = slog.New(slog.DiscardHandler)
	}
	if c.token == nil {
		c.token = &token.Token{}
	}
	if c.board == nil {
		c.board = nothing{}
	}
	if c.network == nil {
		c.network = nothing{}
	}
	if o.Dialer == nil {
		o.Dialer = new(net.Dialer)
	}
	settings, err := o.Config.Get().ClientTLS(c.log)
	if err != nil {
		return nil, err
	}
	transport := &http.Transport{
		Proxy: http.ProxyFromEnvironment, DialContext: redialer{o.Dialer, c.network}.DialContext,
		TLSClientConfig: settings,
		MaxIdleConns:    idleConnections, MaxIdleConnsPerHost: idleConnections, IdleConnTimeout: 90 * time.Second,
	}
	config.VerifyWithoutZone(transport)
	c.http = &http.Client{Transport: transport, CheckRedirect: checkRedirect}
	unverified := transport.Clone()
	unverified.TLSClientConfig.InsecureSkipVerify = true
	unverified.DisableKeepAlives = true
	config.VerifyWithoutZone(unverified)
	c.probe = &http.Client{
		Transport:     unverified,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	return c, nil
}

// checkRedirect follows redirects that stay on the host, and repeats a POST with its body.
func checkRedirect(req *http.Request, via []*http.Request) error {
	if len(via) > 3 {
		return errors.New("more than 3 redirects")
	}
	if err := sameHost(req.URL, via[0].URL); err != nil {
		return err
	}
	return repeat(req, via[0])
}

// sameHost allows only redirects to the same host, and none from https to http: a heartbeat contains the token.
func sameHost(to, from *url.URL) error {
	if !strings.EqualFold(to.Hostname(), from.Hostname()) || from.Scheme == "https" && to.Scheme != "https" {
		return fmt.Errorf("redirect from %s://%s to %s://%s rejected", from.Scheme, from.Host, to.Scheme, to.Host)
	}
	return nil
}

// repeat makes a redirected POST a POST with the body of the first one. After the status codes 301 and 302, net/http
// sends a GET, and no body from then on; the caller would take the reply for the POST's. 303 is an error, because it
// names another resource.
func repeat(req, first *http.Request) error {
	if first.Method != http.MethodPost {
		return nil
	}
	if req.Response.StatusCode == http.StatusSeeOther {
		return fmt.Errorf("%s redirected to %s://%s by status 303: the configured URL must not redirect",
			first.Method, req.URL.Scheme, req.URL.Host)
	}
	body, err := first.GetBody() // set by http.NewRequest for a reader of bytes
	if err != nil {
		return err
	}
	req.Method, req.Body, req.GetBody, req.ContentLength = first.Method, body, first.GetBody, first.ContentLength
	req.Header = first.Header.Clone() // net/http removes the type of a body that it does not send
	return nil
}

// between returns a random time between low and high.
func (c *Client) between(low, high time.Duration) time.Duration {
	return low + time.Duration(c.jitter.Float64()*float64(high-low))
}

// sleep waits for d before a retry. If the failure is one of the network, it returns early when change is closed. The
// caller must obtain change before the attempt.
func (c *Client) sleep(ctx context.Context, d time.Duration, failure error, change <-chan struct{}) error {
	if status := (*StatusError)(nil); errors.As(failure, &status) {
		return pause.For(ctx, d)
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-change:
	case <-ctx.Done():
		return ctx.Err()
	}
	return nil
}
