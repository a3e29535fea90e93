package config

import (
	"fmt"
	"net"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"ironroot/internal/hostname"
)

var apiVersion = regexp.MustCompile(`^[0-9]{1,6}\.[0-9]{1,6}$`)

// parseString checks a text against the option's choices and form, and returns it with its host in canonical form.
func (o option) parseString(text string) (string, error) {
	if len(o.choices) > 0 && !slices.Contains(o.choices, text) {
		return "", fmt.Errorf("got %q, want one of %s", text, strings.Join(o.choices, ", "))
	}
	if text == "" {
		return "", nil
	}
	switch o.check {
	case "urls":
		return text, checkURLs(text)
	case "host":
		return hostname.Parse(text)
	case "hostport":
		host, port, err := hostname.ParsePort(text, "")
		if err != nil || port == "" {
			return host, err
		}
		return net.JoinHostPort(host, port), nil
	case "syslog":
		_, _, err := splitSyslog(text)
		return text, err
	case "version":
		if !apiVersion.MatchString(text) {
			return "", fmt.Errorf("got %q, want MAJOR.MINOR", text)
		}
	}
	return text, nil
}

// checkURLs accepts "mdns" or a list of http and https URLs with usable hosts.
func checkURLs(text string) error {
	if text == "mdns" {
		return nil
	}
	for _, item := range splitList(text) {
		if !strings.HasPrefix(item, "http://") && !strings.HasPrefix(item, "https://") {
			return fmt.Errorf("got %s, want mdns or URLs that start with http:// or https://", shown(text))
		}
		u, err := url.Parse(item)
		if err == nil && isASCII(u.Host) { // net/http converts other names
			_, _, err = hostname.ParsePort(strings.TrimSuffix(u.Host, ":"), "")
		}
		if err != nil {
			return fmt.Errorf("got %s, want URLs with a host, and brackets around an IPv6 address", shown(item))
		}
	}
	return nil
}

// shown returns text for an error. Text before an @ can be a password.
func shown(text string) string {
	if strings.Contains(text, "@") {
		return "a URL with a user"
	}
	return strconv.Quote(text)
}

func isASCII(text string) bool {
	return !strings.ContainsFunc(text, func(r rune) bool { return r > unicode.MaxASCII })
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

// syslogPorts are the transports of syslog with the ports of their servers: RFC 5426, RFC 6587 as registered for
// syslog-conn, and RFC 5425.
var syslogPorts = map[string]string{"udp": "514", "tcp": "601", "tls": "6514"}

// splitSyslog splits a value of syslog_server.
func splitSyslog(text string) (transport, address string, err error) {
	u, err := url.Parse(text)
	if err != nil || syslogPorts[u.Scheme] == "" || u.User != nil ||
		strings.Trim(u.Path, "/")+u.RawQuery+u.Fragment != "" {
		return "", "", fmt.Errorf("got %s, want udp://HOST:PORT, tcp://HOST:PORT or tls://HOST:PORT", shown(text))
	}
	host, port, err := hostname.ParsePort(u.Host, syslogPorts[u.Scheme])
	if err != nil {
		return "", "", fmt.Errorf("host of %s: %w", text, err)
	}
	return u.Scheme, net.JoinHostPort(host, port), nil
}

// Syslog returns the transport ("udp", "tcp" or "tls") and the address of syslog_server, "" if it is not set.
func (c *Config) Syslog() (transport, address string) {
	transport, address, err := splitSyslog(c.SyslogServer)
	if err != nil {
		return "", "" // not set: another value is an error of Load
	}
	return transport, address
}
