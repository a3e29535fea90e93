package dhcp6

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"time"

	"github.com/insomniacslk/dhcp/dhcpv6"
	"github.com/insomniacslk/dhcp/iana"

	"ironroot/netboot/dhcp"
	"ironroot/netboot/resolver"
)

// Lease represents what a DHCPv6 server granted, without the values that cannot be used.
type Lease struct {
	Addresses []netip.Addr // none if only information was requested
	Revoked   []netip.Addr // addresses that the server no longer grants
	DNS       []netip.Addr
	Search    []string
	NTP       []netip.Addr
	Obtained  time.Time     // when it was requested
	Renew     time.Duration // T1, counted from Obtained; for information only, when it is requested again
	Rebind    time.Duration // T2
	Preferred time.Duration // how long new connections use the addresses
	Duration  time.Duration // the whole lease; dhcp.Forever if it does not expire

	server    dhcpv6.DUID
	committed bool // rapid commit
}

// Names returns the lease's name servers and search domains.
func (l *Lease) Names() resolver.Names { return resolver.Names{Servers: l.DNS, Search: l.Search} }

const (
	defaultRefresh = 24 * time.Hour    // RFC 8415, section 7.6
	minRefresh     = 600 * time.Second // the same
	maxDUIDBytes   = 130               // with its type (RFC 8415, section 11.1)
	maxStatusBytes = 200               // of a status message
)

// statusError reports that a server refuses a request.
type statusError struct {
	code    iana.StatusCode // RFC 8415, section 21.13
	message string
}

func (e *statusError) Error() string {
	return fmt.Sprintf("DHCPv6 server returned status %d: %q", e.code, e.message)
}

// checkStatus returns a *statusError unless the status is missing or success.
func checkStatus(status *dhcpv6.OptStatusCode) error {
	if status == nil || status.StatusCode == iana.StatusSuccess {
		return nil
	}
	message := status.StatusMessage
	return &statusError{code: status.StatusCode, message: message[:min(len(message), maxStatusBytes)]}
}

// parseLease reads an advertisement or a reply to a message that was sent at now. If an address is wanted, an answer
// without any is an error; other impossible values are dropped and named in warnings.
func parseLease(
	m *dhcpv6.Message, iaid [4]byte, wanted bool, now time.Time, minimum time.Duration,
) (lease *Lease, warnings dhcp.Warnings, err error) {
	if err := checkStatus(m.Options.Status()); err != nil {
		return nil, nil, err
	}
	lease = &Lease{Obtained: now, server: m.Options.ServerID()}
	if lease.server == nil || len(lease.server.ToBytes()) > maxDUIDBytes {
		return nil, nil, errors.New("answer has no server identifier")
	}
	lease.DNS = dhcp.Servers(&warnings, "name server", m.Options.DNS(), hostAddress)
	lease.NTP = dhcp.Servers(&warnings, "time server", append(m.Options.NTPServers(), m.Options.SNTP()...), hostAddress)
	if search := m.Options.DomainSearchList(); search != nil {
		lease.Search = warnings.DomainNames(search.Labels)
	}
	if !wanted {
		lease.Renew = max(lifetime(m.Options.InformationRefreshTime(defaultRefresh)), minRefresh)
		lease.Rebind, lease.Preferred, lease.Duration = dhcp.Forever, dhcp.Forever, dhcp.Forever
		return lease, warnings, nil
	}
	for _, association := range m.Options.IANA() {
		if association.IaId == iaid {
			err := lease.addAddresses(association, &warnings, minimum)
			return lease, warnings, err
		}
	}
	return nil, warnings, errors.New("answer has no address")
}

// addAddresses reads the addresses and times of an identity association (RFC 8415, section 21.4).
func (l *Lease) addAddresses(association *dhcpv6.OptIANA, warnings *dhcp.Warnings, minimum time.Duration) error {
	if err := checkStatus(association.Options.Status()); err != nil {
		return err
	}
	l.Duration, l.Preferred = dhcp.Forever, dhcp.Forever
	for _, granted := range association.Options.Addresses() {
		address, ok := hostAddress(granted.IPv6Addr)
		switch {
		case checkStatus(granted.Options.Status()) != nil || granted.ValidLifetime == 0:
			l.Revoked = append(l.Revoked, address)
			continue
		case !ok || address.IsLinkLocalUnicast():
			warnings.Addf("address %v is not a host address", granted.IPv6Addr)
			continue
		case len(l.Addresses) == dhcp.MaxServers:
			warnings.Addf("more than %d addresses", dhcp.MaxServers)
			continue
		}
		l.Addresses = append(l.Addresses, address)
		l.Duration = min(l.Duration, lifetime(granted.ValidLifetime))
		l.Preferred = min(l.Preferred, lifetime(granted.PreferredLifetime))
	}
	if len(l.Addresses) == 0 {
		return errors.New("answer has no usable address")
	}
	l.Duration = max(l.Duration, minimum)
	l.Preferred = min(max(l.Preferred, minimum), l.Duration)
	l.Renew, l.Rebind = l.times(lifetime(association.T1), lifetime(association.T2), minimum)
	return nil
}

// times returns T1 and T2. Times that the server leaves open follow from the preferred time (RFC 8415, section 21.4).
func (l *Lease) times(t1, t2, minimum time.Duration) (renew, rebind time.Duration) {
	if l.Duration == dhcp.Forever {
		return dhcp.Forever, dhcp.Forever
	}
	if rebind = t2; rebind <= 0 || rebind >= l.Duration {
		rebind = l.Preferred / 5 * 4
	}
	if renew = t1; renew <= 0 || renew > rebind {
		renew = min(l.Preferred/2, rebind)
	}
	return max(renew, minimum/2), max(rebind, minimum/2)
}

// lifetime converts a lifetime of the library, which does not treat the infinite one specially.
func lifetime(d time.Duration) time.Duration {
	if d >= dhcp.Infinite*time.Second {
		return dhcp.Forever
	}
	return d
}

// hostAddress converts an IPv6 address and reports whether a host can have it.
func hostAddress(ip net.IP) (netip.Addr, bool) {
	address, ok := netip.AddrFromSlice(ip)
	return address, ok && dhcp.IsHostAddress6(address)
}
