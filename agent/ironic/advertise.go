package ironic

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"time"

	"ironroot/internal/goroutine"
)

// Endpoint is the address and port at which Ironic reaches the agent.
type Endpoint struct {
	Host string // address or name, an IPv6 address without brackets
	Port int
}

// URL returns the callback URL with a protocol, for example "https".
func (e Endpoint) URL(protocol string) string {
	return protocol + "://" + net.JoinHostPort(e.Host, strconv.Itoa(e.Port))
}

// Advertise returns the callback address: advertise_host if it is set, otherwise the first address of
// network_interface, IPv4 before IPv6, if that is set, otherwise the machine's address on the route to the reachable
// Ironic. It makes ip_lookup_attempts attempts, ip_lookup_sleep apart, and additional ones whenever the network
// changes.
func (c *Client) Advertise(ctx context.Context) (Endpoint, error) {
	cfg := c.config.Get()
	endpoint := Endpoint{Host: cfg.AdvertiseHost, Port: cfg.AdvertisePort}
	if endpoint.Host != "" {
		return endpoint, nil
	}
	find := func() (netip.Addr, error) { return interfaceAddress(cfg.NetworkInterface) }
	if cfg.NetworkInterface == "" {
		if len(cfg.APIURLs()) == 0 {
			return Endpoint{}, errors.New("find callback address: no URL of Ironic (option api_url)")
		}
		find = func() (netip.Addr, error) { return c.sourceAddress(ctx) }
	}
	timer := time.NewTimer(cfg.IPLookupSleep)
	defer timer.Stop()
	for try := 1; ; {
		change := c.network.Changed()
		address, err := find()
		if err == nil {
			endpoint.Host = address.String()
			return endpoint, nil
		}
		if try >= cfg.IPLookupAttempts {
			return Endpoint{}, fmt.Errorf("find callback address: %d attempts: %w", try, err)
		}
		c.log.Warn("callback address not found, retrying", "attempt", try, "err", err)
		select {
		case <-change: // does not count as an attempt
		case <-timer.C:
			timer.Reset(cfg.IPLookupSleep)
			try++
		case <-ctx.Done():
			return Endpoint{}, ctx.Err()
		}
	}
}

// interfaceAddress returns an interface's first IPv4 address, or its first IPv6 address if it has no IPv4 address.
func interfaceAddress(name string) (netip.Addr, error) {
	link, err := net.InterfaceByName(name)
	if err != nil {
		return netip.Addr{}, fmt.Errorf("interface %s: %w", name, err)
	}
	addresses, err := link.Addrs()
	if err != nil {
		return netip.Addr{}, fmt.Errorf("interface %s: %w", name, err)
	}
	if address, ok := preferredAddress(addresses); ok {
		return address, nil
	}
	return netip.Addr{}, fmt.Errorf("interface %s: no address that Ironic can reach", name)
}

func preferredAddress(addresses []net.Addr) (netip.Addr, bool) {
	var ipv6 netip.Addr
	for _, address := range addresses {
		prefix, err := netip.ParsePrefix(address.String())
		switch {
		case err != nil:
		case prefix.Addr().Is4():
			return prefix.Addr(), true
		case !ipv6.IsValid() && prefix.Addr().IsGlobalUnicast():
			ipv6 = prefix.Addr()
		}
	}
	return ipv6, ipv6.IsValid()
}

// sourceAddress returns the machine's address on the route to the address at which Ironic answered last. Otherwise it
// takes the route to the first address of the reachable URLs, or of all URLs if none is reachable.
func (c *Client) sourceAddress(ctx context.Context) (netip.Addr, error) {
	var errs []error
	if peer := c.peer.Load(); peer != nil {
		source, err := c.routeAddress(ctx, []netip.Addr{*peer})
		if err == nil {
			return source, nil
		}
		errs = append(errs, err)
	}
	c.mu.Lock()
	urls := c.urls
	c.mu.Unlock()
	if len(urls) > 1 {
		if alive := c.reachable(ctx, urls); len(alive) > 0 {
			urls = alive
		}
	}
	var targets []netip.Addr
	for _, text := range urls {
		u, err := url.Parse(text)
		if err != nil {
			return netip.Addr{}, fmt.Errorf("parse URL of Ironic: %w", err)
		}
		targets = append(targets, c.addresses(ctx, u.Hostname())...)
	}
	if len(targets) == 0 {
		return netip.Addr{}, errors.Join(append(errs, fmt.Errorf("resolve hosts of %v: no address", urls))...)
	}
	source, err := c.routeAddress(ctx, targets)
	if err != nil {
		return netip.Addr{}, errors.Join(append(errs, err)...)
	}
	return source, nil
}

// reachable probes all URLs concurrently and returns those that respond, in their order.
func (c *Client) reachable(ctx context.Context, urls []string) []string {
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	answers := make([]bool, len(urls))
	all := goroutine.NewGroup()
	for i, target := range urls {
		all.Go(func() error {
			err := goroutine.Catch(func() error {
				_, err := c.ask(ctx, target)
				return err
			})
			answers[i] = err == nil
			if err != nil {
				c.log.Warn("Ironic unreachable", "url", target, "err", err)
			}
			return nil
		})
	}
	_ = all.Wait() // the functions return no errors
	return slices.DeleteFunc(slices.Clone(urls), func(u string) bool { return !answers[slices.Index(urls, u)] })
}

// addresses resolves a host. It logs a failure, because another URL can work.
func (c *Client) addresses(ctx context.Context, host string) []netip.Addr {
	if address, err := netip.ParseAddr(host); err == nil {
		return []netip.Addr{address}
	}
	list, err := c.host.Resolve(ctx, host)
	if err != nil {
		c.log.Warn("host of Ironic not resolved", "host", host, "err", err)
	}
	return list
}

// routeAddress returns the machine's address on the route to the first target that has a route. Link-local addresses
// are rejected, because Ironic can be behind a router.
func (c *Client) routeAddress(ctx context.Context, targets []netip.Addr) (netip.Addr, error) {
	var errs []error
	for _, target := range targets {
		source, err := c.host.SourceFor(ctx, target)
		if err == nil && source.IsLinkLocalUnicast() {
			err = fmt.Errorf("source address to %v: got %v, want one that is not link-local", target, source)
		}
		if err == nil {
			return source.Unmap(), nil
		}
		errs = append(errs, err)
	}
	return netip.Addr{}, errors.Join(errs...)
}
