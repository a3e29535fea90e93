package config

import (
	"cmp"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"regexp"
	"slices"
	"strings"
)

var (
	ntpServer  = regexp.MustCompile(`^[A-Za-z0-9.:_-]{1,253}$`)
	apiVersion = regexp.MustCompile(`^[0-9]{1,6}\.[0-9]{1,6}$`)
)

// checkString checks a text against the option's choices and form.
func (o option) checkString(text string) error {
	if len(o.choices) > 0 && !slices.Contains(o.choices, text) {
		return fmt.Errorf("got %q, want one of %s", text, strings.Join(o.choices, ", "))
	}
	if text == "" {
		return nil
	}
	switch o.check {
	case "urls":
		return checkURLs(text)
	case "ntp":
		// The name comes from the network, and is logged and resolved.
		if _, err := netip.ParseAddr(text); err != nil && !ntpServer.MatchString(text) {
			return fmt.Errorf("got %q, want a host name or an IP address", text)
		}
	case "syslog":
		if _, _, ok := splitSyslog(text); !ok {
			return fmt.Errorf("got %q, want udp://HOST:PORT, tcp://HOST:PORT or tls://HOST:PORT", text)
		}
	case "version":
		if !apiVersion.MatchString(text) {
			return fmt.Errorf("got %q, want MAJOR.MINOR", text)
		}
	}
	return nil
}

// checkURLs accepts "mdns" or a list of http and https URLs.
func checkURLs(text string) error {
	if text == "mdns" {
		return nil
	}
	for _, url := range splitList(text) {
		if !strings.HasPrefix(url, "http://") && !strings.HasPrefix(url, "https://") {
			return fmt.Errorf("got %q, want mdns or URLs that start with http:// or https://", text)
		}
	}
	return nil
}

// APIURLs returns the URLs of the option api_url without trailing slashes, and nil for "mdns".
func (c *Config) APIURLs() []string { return urls(c.APIURL, true) }

// InspectionCallbackURLs returns the URLs of the option inspection_callback_url, and nil for "mdns".
func (c *Config) InspectionCallbackURLs() []string { return urls(c.InspectionCallbackURL, false) }

func urls(text string, trim bool) []string {
	if text == "mdns" {
		return nil
	}
	list := splitList(text)
	if trim {
		for i, url := range list {
			list[i] = strings.TrimRight(url, "/")
		}
	}
	return list
}

// syslogPorts are the transports of syslog with the ports of their servers: those of RFC 5426, of RFC 6587 as
// registered for syslog-conn, and of RFC 5425.
var syslogPorts = map[string]string{"udp": "514", "tcp": "601", "tls": "6514"}

// splitSyslog splits a value of syslog_server.
func splitSyslog(text string) (transport, address string, ok bool) {
	u, err := url.Parse(text)
	if err != nil || u.User != nil || u.Hostname() == "" || strings.Trim(u.Path, "/")+u.RawQuery+u.Fragment != "" {
		return "", "", false
	}
	port, ok := syslogPorts[u.Scheme]
	return u.Scheme, net.JoinHostPort(u.Hostname(), cmp.Or(u.Port(), port)), ok
}

// Syslog returns the transport ("udp", "tcp" or "tls") and the address of syslog_server, "" if it is not set.
func (c *Config) Syslog() (transport, address string) {
	transport, address, ok := splitSyslog(c.SyslogServer)
	if !ok {
		return "", ""
	}
	return transport, address
}
