package imaging

import (
	"errors"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
)

// Proxies are the proxies of an image. The zero value is none.
//
// They follow the rules of http.ProxyFromEnvironment for http_proxy, https_proxy and no_proxy, except that a name in
// no_proxy may end with a dot. golang.org/x/net/http/httpproxy does the same, but contains a second copy of the tables
// for international domain names: 200 KiB of the program in the ramdisk, less than 20 KiB of them compressed.
type Proxies struct {
	schemes map[string]proxy
	direct  direct
}

// proxy is the proxy for the URLs of a scheme.
type proxy struct {
	text string // as Ironic sent it
	url  *url.URL
}

func (p *Proxies) set(scheme string, one proxy) {
	if p.schemes == nil {
		p.schemes = map[string]proxy{}
	}
	p.schemes[scheme] = one
}

// choose returns the proxy of a request, nil for none. It is a function for http.Transport.Proxy.
func (p Proxies) choose(r *http.Request) (*url.URL, error) {
	one, ok := p.schemes[r.URL.Scheme]
	if !ok || p.direct.covers(r.URL) {
		return nil, nil //nolint:nilnil // http.Transport's value for no proxy
	}
	return one.url, nil
}

// parseProxy parses a proxy's URL, whose scheme is optional. The error does not contain it: it may include a password.
func parseProxy(text string) (*url.URL, error) {
	if !strings.Contains(text, "://") {
		text = "http://" + text
	}
	u, err := url.Parse(text)
	if err != nil || u.Host == "" {
		return nil, errors.New("invalid proxy URL")
	}
	return u, nil
}

// direct is a parsed no_proxy list: the hosts that are contacted without a proxy.
type direct struct {
	all   bool
	rules []directRule
}

type directRule struct {
	prefix netip.Prefix // of addresses
	suffix string       // of names, with the leading dot
	exact  string       // a name; "" matches none
	port   string       // "" matches every port
}

// parseNoProxy parses a comma-separated list of names (which include their subdomains), ".name" (subdomains only),
// addresses, subnets, and "*". Names and addresses may have a port. The dot of the root domain at the end of a name is
// ignored.
func parseNoProxy(text string) direct {
	var d direct
	for _, entry := range strings.Split(text, ",") {
		entry = strings.ToLower(strings.TrimSpace(entry))
		if entry == "" {
			continue
		}
		if entry == "*" {
			return direct{all: true}
		}
		var rule directRule
		host := strings.Trim(entry, "[]")
		if name, port, err := net.SplitHostPort(entry); err == nil {
			host, rule.port = name, port
		}
		if prefix, err := netip.ParsePrefix(entry); err == nil {
			rule.prefix = prefix.Masked()
		} else if address, err := netip.ParseAddr(host); err == nil {
			rule.prefix = netip.PrefixFrom(address.Unmap(), address.Unmap().BitLen())
		} else if name := strings.TrimSuffix(host, "."); name == "" {
			continue
		} else if below, found := strings.CutPrefix(strings.TrimPrefix(name, "*"), "."); found {
			rule.suffix = "." + below
		} else {
			rule.suffix, rule.exact = "."+name, name
		}
		d.rules = append(d.rules, rule)
	}
	return d
}

// covers reports whether the host of u is contacted directly. Loopback addresses always are.
func (d direct) covers(u *url.URL) bool {
	host, port := strings.ToLower(strings.TrimSuffix(u.Hostname(), ".")), u.Port()
	if port == "" {
		port = map[string]string{"http": "80", "https": "443"}[u.Scheme]
	}
	address, err := netip.ParseAddr(host)
	address = address.Unmap().WithZone("")
	if d.all || host == "localhost" || err == nil && address.IsLoopback() {
		return true
	}
	for _, rule := range d.rules {
		if rule.port != "" && rule.port != port {
			continue
		}
		if err == nil && rule.prefix.IsValid() && rule.prefix.Contains(address) {
			return true
		}
		if err != nil && rule.suffix != "" && (host == rule.exact || strings.HasSuffix(host, rule.suffix)) {
			return true
		}
	}
	return false
}
