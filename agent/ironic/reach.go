package ironic

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/netip"
	"net/url"
	"slices"
	"time"

	"ironroot/agent/clock"
	"ironroot/internal/goroutine"
	"ironroot/internal/hostname"
	"ironroot/netboot/alternatives"
)

const (
	// probeTimeout limits the check whether one of Ironic's URLs is reachable.
	probeTimeout = 30 * time.Second
	// attemptDelay is the delay between the probes of consecutive URLs, unless one fails earlier. It preserves the
	// operator's order among URLs that respond quickly (Connection Attempt Delay of RFC 8305).
	attemptDelay = 500 * time.Millisecond
	// maxDials limits the concurrent attempts for one connection.
	maxDials = 4
)

// ordered returns the URLs, rotated so that the first reachable one comes first. It probes them only if there are
// several, or if the system clock must be set from Ironic's time. asked returns the page of a URL to request.
func (c *Client) ordered(ctx context.Context, urls []string, asked func(string) string) ([]string, error) {
	wrong := c.clockWrong()
	if len(urls) == 0 || len(urls) == 1 && !wrong {
		return urls, nil
	}
	probing, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	answer, best, err := alternatives.First(probing, len(urls), attemptDelay,
		func(ctx context.Context, i int) (probeResult, error) {
			answer, err := c.ask(ctx, asked(urls[i]))
			if err != nil && !errors.Is(err, context.Canceled) {
				c.log.Warn("Ironic unreachable", "url", urls[i], "err", err)
			}
			return answer, err
		}, nil)
	if err != nil {
		return nil, err
	}
	if wrong {
		c.setClockFrom(urls[best], answer)
	}
	return slices.Concat(urls[best:], urls[:best]), nil
}

// probeResult is the response to a probe.
type probeResult struct {
	host string // of the request
	date string
	tls  *tls.ConnectionState // nil without TLS
}

// ask probes a URL without verification of its certificate. It sends no data and does not read the body.
func (c *Client) ask(ctx context.Context, target string) (probeResult, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, target, nil)
	if err != nil {
		return probeResult{}, err
	}
	resp, err := c.probe.Do(req)
	if err != nil {
		return probeResult{}, err
	}
	return probeResult{hostname.WithoutZone(req.URL.Hostname()), resp.Header.Get("Date"), resp.TLS}, resp.Body.Close()
}

// clockWrong reports whether the system clock is implausible and can be set.
func (c *Client) clockWrong() bool { return c.clock != nil && clock.Check(time.Now()) != nil }

// setClockFrom sets an implausible system clock from Ironic's time. Otherwise neither Ironic's certificate nor the
// agent's own one would be valid.
func (c *Client) setClockFrom(url string, answer probeResult) {
	now, err := c.timeOf(answer)
	if err == nil {
		err = c.clock.SetSystem(now)
	}
	if err != nil {
		c.log.Warn("system clock implausible, not set from Ironic's time; set ipa-ntp-server to correct it",
			"url", url, "err", err)
		return
	}
	c.log.Warn("system clock was implausible, set from Ironic's time; set ipa-ntp-server to verify it",
		"url", url, "now", now)
}

// timeOf returns the time of a response. If TLS must be verified, Ironic's certificate must be valid at that time: only
// the owner of its key can then choose the time.
func (c *Client) timeOf(answer probeResult) (time.Time, error) {
	now, err := http.ParseTime(answer.date)
	if err != nil {
		return time.Time{}, fmt.Errorf("parse header Date: %w", err)
	}
	if err := clock.Check(now); err != nil {
		return time.Time{}, err
	}
	settings := c.http.Transport.(*http.Transport).TLSClientConfig
	if answer.tls == nil || settings.InsecureSkipVerify {
		return now, nil
	}
	chain := answer.tls.PeerCertificates
	options := x509.VerifyOptions{
		Roots: settings.RootCAs, Intermediates: x509.NewCertPool(), DNSName: answer.host, CurrentTime: now,
	}
	for _, certificate := range chain[1:] {
		options.Intermediates.AddCert(certificate)
	}
	_, err = chain[0].Verify(options)
	return now, err
}

// root returns the URL of the root page of a URL's server.
func root(text string) string {
	u, err := url.Parse(text)
	if err != nil {
		return text // the request fails with the cause
	}
	return u.Scheme + "://" + u.Host + "/"
}

// redialer starts a further concurrent attempt to connect whenever the network changes. The right interface can come up
// after a wrong one whose route drops all packets.
type redialer struct {
	dialer  Dialer
	network Network
}

// DialContext implements [Dialer].
func (d redialer) DialContext(ctx context.Context, network, address string) (net.Conn, error) {
	type result struct {
		conn net.Conn
		err  error
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	results := make(chan result)
	var failed []error
	for started := 0; ; {
		change := d.network.Changed()
		if started < maxDials {
			started++
			var conn net.Conn
			goroutine.Go(func() (err error) {
				conn, err = d.dialer.DialContext(ctx, network, address)
				return err
			}, func(err error) {
				select {
				case results <- result{conn, err}:
				case <-ctx.Done():
					if err == nil {
						_ = conn.Close() // another attempt was faster
					}
				}
			})
		}
		for waiting := true; waiting; {
			select {
			case r := <-results:
				if r.err == nil {
					return r.conn, nil
				}
				if failed = append(failed, r.err); len(failed) == started {
					return nil, errors.Join(failed...)
				}
			case <-change:
				waiting = false
			case <-ctx.Done():
				return nil, errors.Join(append(failed, ctx.Err())...)
			}
		}
	}
}

// notePeer stores the remote address of the request's connection, unless it uses a proxy.
func (c *Client) notePeer(req *http.Request) *http.Request {
	if proxy, err := http.ProxyFromEnvironment(req); err != nil || proxy != nil {
		return req
	}
	return req.WithContext(httptrace.WithClientTrace(req.Context(), &httptrace.ClientTrace{
		GotConn: func(info httptrace.GotConnInfo) {
			if peer, err := netip.ParseAddrPort(info.Conn.RemoteAddr().String()); err == nil {
				address := peer.Addr().Unmap()
				c.peer.Store(&address)
			}
		},
	}))
}
