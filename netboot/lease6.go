package netboot

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"
)

// Lease6 is what a DHCPv6 server said, after validation: values that could not be used are left out.
type Lease6 struct {
	Addresses []netip.Addr // none where the server gives only information
	DNS       []netip.Addr
	Search    []string
	NTP       []netip.Addr
	Obtained  time.Time     // when it was asked for
	Renew     time.Duration // T1, counted from Obtained; of mere information, when it is asked for again
	Rebind    time.Duration // T2
	Preferred time.Duration // how long new connections use the addresses
	Duration  time.Duration // the whole lease; Forever when it does not end

	server    []byte       // its DUID
	committed bool         // by the first message already
	revoked   []netip.Addr // what the server takes back
}

const (
	defaultRefresh = 24 * time.Hour    // RFC 8415, section 7.6
	minRefresh     = 600 * time.Second // the same
)

// refusal6 says that a server has nothing for this client.
type refusal6 struct {
	code    uint16 // RFC 8415, section 21.13
	message string
}

func (e *refusal6) Error() string {
	return fmt.Sprintf("DHCPv6 server answers with status %d: %q", e.code, e.message)
}

// parseLease6 reads an advertisement or a reply. With addresses wanted, an answer without any is an error; a further
// value that cannot be used is left out and named in warnings.
func parseLease6(m *message6, iaid [4]byte, wanted bool, now time.Time, shortest time.Duration) (*Lease6, []string, error) {
	if err := statusError6(m.options); err != nil {
		return nil, nil, err
	}
	lease := &Lease6{Obtained: now, server: option(m.options, optServerID)}
	if len(lease.server) == 0 || len(lease.server) > maxDUID {
		return nil, nil, errors.New("answer without a server identifier")
	}
	var p parser
	lease.DNS = p.servers6("name server", addresses6(option(m.options, optDNS)))
	lease.NTP = p.servers6("time server", timeServers6(m.options))
	lease.Search = p.names(parseNames(option(m.options, optSearch)))
	if !wanted {
		refresh := defaultRefresh
		if value := option(m.options, optRefresh); len(value) == 4 {
			refresh = max(duration6(value), minRefresh)
		}
		lease.Renew, lease.Rebind, lease.Preferred, lease.Duration = refresh, Forever, Forever, Forever
		return lease, p.warnings, nil
	}
	for _, o := range m.options {
		if o.code == optIANA && len(o.value) >= 12 && [4]byte(o.value) == iaid {
			err := p.identity(lease, o.value, shortest)
			return lease, p.warnings, err
		}
	}
	return nil, p.warnings, errors.New("answer without an address")
}

// timeServers6 returns the addresses of time servers, the newer kind of option first.
func timeServers6(options []option6) []netip.Addr {
	var list []netip.Addr
	for _, o := range options {
		if o.code != optNTP {
			continue
		}
		inner, err := parseOptions6(o.value)
		if err != nil {
			continue
		}
		for _, sub := range inner {
			if sub.code == ntpServerAddr {
				list = append(list, addresses6(sub.value)...)
			}
		}
	}
	return append(list, addresses6(option(options, optSNTP))...)
}

// identity reads the addresses and times of an identity association (RFC 8415, section 21.4).
func (p *parser) identity(lease *Lease6, value []byte, shortest time.Duration) error {
	t1, t2 := duration6(value[4:]), duration6(value[8:])
	options, err := parseOptions6(value[12:])
	if err == nil {
		err = statusError6(options)
	}
	if err != nil {
		return err
	}
	lease.Duration, lease.Preferred = Forever, Forever
	for _, o := range options {
		if o.code != optIAAddress || len(o.value) < 24 {
			continue
		}
		address, preferred, valid := netip.AddrFrom16([16]byte(o.value)), duration6(o.value[16:]), duration6(o.value[20:])
		inner, err := parseOptions6(o.value[24:])
		switch {
		case err != nil || statusError6(inner) != nil || valid == 0:
			lease.revoked = append(lease.revoked, address)
			continue
		case !unicast6(address) || address.IsLinkLocalUnicast():
			p.warn("address %v is no address for a host", address)
			continue
		case len(lease.Addresses) == maxServers:
			p.warn("more than %d addresses", maxServers)
			continue
		}
		lease.Addresses = append(lease.Addresses, address)
		lease.Duration, lease.Preferred = min(lease.Duration, valid), min(lease.Preferred, preferred)
	}
	if len(lease.Addresses) == 0 {
		return errors.New("answer without an address that can be used")
	}
	lease.Duration = max(lease.Duration, shortest)
	lease.Preferred = min(max(lease.Preferred, shortest), lease.Duration)
	lease.Renew, lease.Rebind = leaseTimes6(lease, t1, t2, shortest)
	return nil
}

// leaseTimes6 returns T1 and T2; what the server leaves open follows from the preferred time (RFC 8415, section 21.4).
func leaseTimes6(lease *Lease6, t1, t2, shortest time.Duration) (renew, rebind time.Duration) {
	if lease.Duration == Forever {
		return Forever, Forever
	}
	if rebind = t2; rebind <= 0 || rebind >= lease.Duration {
		rebind = lease.Preferred / 5 * 4
	}
	if renew = t1; renew <= 0 || renew > rebind {
		renew = min(lease.Preferred/2, rebind)
	}
	return max(renew, shortest/2), max(rebind, shortest/2)
}

func (p *parser) servers6(kind string, list []netip.Addr) []netip.Addr {
	var servers []netip.Addr
	for _, address := range list[:min(len(list), maxServers)] {
		if !unicast6(address) {
			p.warn("%s %v cannot be one", kind, address)
			continue
		}
		if !slices.Contains(servers, address) {
			servers = append(servers, address)
		}
	}
	return servers
}

// names returns those of a server's domain names that are domain names.
func (p *parser) names(list []string) []string {
	var names []string
	for _, name := range list[:min(len(list), maxSearch)] {
		name = strings.TrimRight(name, "\x00.")
		switch {
		case name == "":
		case !hostName(name):
			p.warn("domain %q is no domain name", name)
		default:
			names = append(names, name)
		}
	}
	return names
}

// config is what a link gets by the lease. The addresses stand alone: which of their neighbours are on the link, only
// routers say (RFC 5942).
func (l *Lease6) config() linkConfig {
	c := linkConfig{dns: l.DNS, search: l.Search}
	for _, address := range l.Addresses {
		c.addresses = append(c.addresses, netip.PrefixFrom(address, address.BitLen()))
	}
	if l.Duration != Forever {
		c.valid = max(time.Until(l.Obtained.Add(l.Duration)), time.Second)
	}
	if l.Preferred != Forever {
		c.preferred = max(time.Until(l.Obtained.Add(l.Preferred)), time.Second)
	}
	return c
}
