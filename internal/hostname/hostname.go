// Package hostname parses names and addresses of hosts as people write them into options.
package hostname

import (
	"fmt"
	"net/netip"
	"regexp"
	"strconv"
	"strings"
)

var (
	// label matches a part of a name: RFC 1123, section 2.1, and the underscore, which some sites use.
	label = regexp.MustCompile(`^[A-Za-z0-9_]([A-Za-z0-9_-]{0,61}[A-Za-z0-9_])?$`)
	// number matches the last label of a mistyped IPv4 address. No top-level domain is one (RFC 3696, section 2).
	number = regexp.MustCompile(`^([0-9]+|0[xX][0-9A-Fa-f]*)$`)
	// zone matches the name or number of an interface.
	zone = regexp.MustCompile(`^[A-Za-z0-9._@-]{1,15}$`)
)

// maxName is the length of the longest name (RFC 1035, section 3.1, without the length bytes).
const maxName = 253

// Parse parses a DNS name, an IPv4 address, or an IPv6 address with or without brackets and zone. It returns the host
// without brackets, an address in its canonical form (RFC 5952).
func Parse(text string) (string, error) {
	inner, opened := strings.CutPrefix(text, "[")
	inner, closed := strings.CutSuffix(inner, "]")
	address, err := netip.ParseAddr(inner)
	isIPv6 := err == nil && address.Is6() && (address.Zone() == "" || zone.MatchString(address.Zone()))
	switch {
	case opened == closed && isIPv6:
		return address.String(), nil
	case opened || closed:
		return "", fmt.Errorf("got %q, want an IPv6 address in brackets", text)
	case err == nil && address.Is4():
		return address.String(), nil
	case !isName(text):
		return "", fmt.Errorf("got %q, want a host name or an IP address", text)
	}
	return text, nil
}

// WithoutZone returns a host without the zone of an IPv6 address, which names an interface of this machine.
func WithoutZone(host string) string {
	host, _, _ = strings.Cut(host, "%")
	return host
}

// isName reports whether text is a DNS name, and not a mistyped IPv4 address.
func isName(text string) bool {
	text = strings.TrimSuffix(text, ".")
	labels := strings.Split(text, ".")
	for _, l := range labels {
		if !label.MatchString(l) {
			return false
		}
	}
	return len(text) <= maxName && !number.MatchString(labels[len(labels)-1])
}

// ParsePort is like Parse for a host with an optional port: HOST, HOST:PORT or [ADDRESS]:PORT. An IPv6 address without
// brackets has no port. Without a port it returns defaultPort.
func ParsePort(text, defaultPort string) (host, port string, err error) {
	name, port, found := text, defaultPort, false
	if i := strings.LastIndexByte(text, ':'); i >= 0 && (strings.Count(text, ":") == 1 || text[i-1] == ']') {
		name, port, found = text[:i], text[i+1:], true
	}
	if host, err = Parse(name); err != nil {
		return "", "", err
	}
	if n, err := strconv.ParseUint(port, 10, 16); found && (err != nil || n == 0) {
		return "", "", fmt.Errorf("got port %q of %q, want a number from 1 to 65535", port, text)
	}
	return host, port, nil
}
