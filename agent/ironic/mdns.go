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
	"strings"
	"time"

	"ironroot/agent/config"
	"ironroot/internal/pause"
)

// mdnsKeyword is the value of api_url and inspection_callback_url that selects multicast DNS.
const mdnsKeyword = "mdns"

const (
	mdnsDomain      = "_openstack._tcp.local."
	mdnsFirstPause  = 100 * time.Millisecond // before the second attempt; doubled each time
	mdnsPort        = 5353
	mdnsHTTP        = 80
	introspectPath  = "/v1/continue"
	overridesPrefix = "ipa_"
)

// service is a service found by multicast DNS (DNS-SD, RFC 6763).
type service struct {
	host      string // target of the SRV record, with a trailing dot
	port      int
	addresses []netip.Addr
	text      map[string]string
}

// WantsDiscovery reports whether the configuration enables multicast DNS: by the keyword mdns in place of a URL, or by
// use_mdns if no URL is set. It is never enabled otherwise, because any host on the network can send responses.
func WantsDiscovery(c *config.Config) bool {
	return c.APIURL == mdnsKeyword || c.InspectionCallbackURL == mdnsKeyword || implicitDiscovery(c)
}

func implicitDiscovery(c *config.Config) bool {
	return c.MDNS.UseMDNS && c.APIURL == "" && c.InspectionCallbackURL == ""
}

// Discover finds Ironic by multicast DNS if the operator's configuration enables it, and stores the result in the
// configuration: the URL, and the options of the response that allowed_overrides contains. Each call queries again,
// because Ironic can have moved. If nothing is found, Discover fails if a URL is mdns, and logs a warning if only
// use_mdns is set; the result of an earlier call is then kept.
func (c *Client) Discover(ctx context.Context) error {
	if !WantsDiscovery(c.configured) {
		return nil
	}
	if c.configured.APIURL == mdnsKeyword || implicitDiscovery(c.configured) {
		found, overrides, err := c.findService(ctx, "baremetal")
		if err != nil && implicitDiscovery(c.configured) && ctx.Err() == nil {
			c.log.Warn("Ironic not found by multicast DNS", "err", err)
			return nil
		}
		if err != nil {
			return err
		}
		if err := c.configured.CheckURL(found); err != nil {
			return fmt.Errorf("discover Ironic by multicast DNS: %w", err)
		}
		c.useURL(found)
		c.override(overrides)
	}
	if c.configured.InspectionCallbackURL != mdnsKeyword && c.config.Get().InspectionCallbackURL != mdnsKeyword {
		return nil
	}
	found, overrides, err := c.findService(ctx, "baremetal-introspection")
	if err != nil {
		return err
	}
	if err := c.configured.CheckURL(found); err != nil {
		return fmt.Errorf("discover inspection by multicast DNS: %w", err)
	}
	c.override(overrides)
	c.config.Update(func(c *config.Config) {
		c.InspectionCallbackURL = strings.TrimSuffix(found, "/") + introspectPath
	})
	return nil
}

// useURL sets a discovered URL of Ironic and resets the inspection callback of an earlier response.
func (c *Client) useURL(found string) {
	c.config.Update(func(live *config.Config) {
		live.APIURL, live.InspectionCallbackURL = found, c.configured.InspectionCallbackURL
	})
	c.mu.Lock()
	defer c.mu.Unlock()
	c.urls, c.reached, c.api = c.config.Get().APIURLs(), false, nil
}

// findService returns the URL of a service and its TXT record.
func (c *Client) findService(ctx context.Context, name string) (endpoint string, text map[string]string, err error) {
	instance := name + "." + mdnsDomain
	settings := c.config.Get().MDNS
	wait := mdnsFirstPause
	for try := 1; ; try++ {
		found, err := c.host.AskService(ctx, mdnsTimeout, instance, settings.Interfaces, c.network)
		if err == nil {
			if endpoint, err = c.serviceURL(ctx, found); err == nil {
				c.log.Info("service found by multicast DNS", "service", instance, "url", endpoint)
				return endpoint, found.text, nil
			}
		}
		if ctx.Err() != nil {
			return "", nil, ctx.Err()
		}
		if try >= settings.LookupAttempts {
			return "", nil, fmt.Errorf("find service %s by multicast DNS: %d attempts: %w", instance, try, err)
		}
		if err := pause.For(ctx, wait); err != nil {
			return "", nil, err
		}
		wait *= 2
	}
}

// serviceURL returns the URL of a service. A host name in .local is replaced by its address.
func (c *Client) serviceURL(ctx context.Context, s service) (string, error) {
	host := strings.TrimSuffix(s.host, ".")
	if strings.HasSuffix(strings.ToLower(host), ".local") || host == "" {
		address, err := c.chooseAddress(ctx, s.addresses)
		if err != nil {
			return "", err
		}
		host = address.String()
	} else if strings.Trim(strings.ToLower(host), "abcdefghijklmnopqrstuvwxyz0123456789-.") != "" {
		return "", fmt.Errorf("host of the service: got %q, want a host name", host)
	}
	protocol := s.text["protocol"]
	switch protocol {
	case "http", "https":
	case "":
		protocol = "https"
		if s.port == mdnsHTTP {
			protocol = "http"
		}
	default:
		return "", fmt.Errorf("protocol of the service: got %q, want http or https", protocol)
	}
	path := s.text["path"]
	if strings.Contains(path, ",") { // commas separate URLs
		return "", fmt.Errorf("path of the service: got %q", path)
	}
	// String adds a "/" before a path without one.
	u := url.URL{Scheme: protocol, Host: net.JoinHostPort(host, strconv.Itoa(s.port)), Path: path}
	return u.String(), nil
}

// chooseAddress returns the first address with a route, otherwise the first one.
func (c *Client) chooseAddress(ctx context.Context, addresses []netip.Addr) (netip.Addr, error) {
	usable := slices.DeleteFunc(slices.Clone(addresses), func(a netip.Addr) bool {
		return !a.IsValid() || a.IsLoopback() || a.IsUnspecified() || a.IsMulticast()
	})
	if len(usable) == 0 {
		return netip.Addr{}, errors.New("service has no usable address")
	}
	for _, address := range usable {
		if _, err := c.host.SourceFor(ctx, address); err == nil {
			return address, nil
		}
	}
	c.log.Warn("no route to any address of the service", "address", usable)
	return usable[0], nil
}

// override sets the options of a response that the operator allows, because any host on the network can send one.
func (c *Client) override(text map[string]string) {
	allowed := c.config.Get().MDNS.AllowedOverrides
	for key, value := range text {
		name, ok := strings.CutPrefix(key, overridesPrefix)
		if !ok {
			continue
		}
		if !slices.Contains(allowed, name) {
			c.log.Warn("option of multicast DNS response not allowed (allowed_overrides)", "option", name)
			continue
		}
		if err := c.configured.Accept(config.FromMDNS, name, value); err != nil {
			c.log.Warn("option of multicast DNS response ignored", "option", name, "err", err)
			continue
		}
		c.config.Update(func(live *config.Config) {
			if err := live.Set(name, value); err != nil {
				c.log.Warn("option of multicast DNS response ignored", "err", err)
			}
		})
	}
}
