// Package dhcp holds what the clients of DHCPv4 (package dhcp4) and DHCPv6 (package dhcp6) have in common: lifetimes,
// delays, the events that they report, and checks of the values that servers send.
package dhcp

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"net"
	"net/netip"
	"slices"
	"strings"
	"time"

	"ironroot/netboot/resolver"
)

// Forever is the duration of a lease that never expires.
const Forever = time.Duration(math.MaxInt64)

// Infinite is the lifetime in seconds that means forever (RFC 2131, section 3.3; RFC 8415, section 7.7).
const Infinite = math.MaxUint32

// Lifetime converts a lifetime in seconds.
func Lifetime(seconds uint32) time.Duration {
	if seconds == Infinite {
		return Forever
	}
	return time.Duration(seconds) * time.Second
}

// MaxServers limits the servers of one kind that a lease names.
const MaxServers = resolver.MaxServers

// ErrExpired reports that a lease was not renewed in time.
var ErrExpired = errors.New("lease expired")

// Link is the network interface of a client.
type Link interface {
	// Interface returns the present index, name and MAC address.
	Interface() *net.Interface
}

// Timing holds the delays and limits of a client.
type Timing struct {
	First      time.Duration // before the first retransmission; it doubles with each further one
	Longest    time.Duration // between two transmissions
	Requests   int           // transmissions of one request, after which the exchange starts again
	MinRenewal time.Duration // between two renewals of one phase
	MinLease   time.Duration // shorter leases are treated as being this long
	Declined   time.Duration // after an address was declined (DHCPv4)
}

// DefaultTiming is the timing outside of tests. It retransmits sooner and more often than RFC 2131, section 4.1,
// suggests (first after 4 s, at most 64 s apart).
var DefaultTiming = Timing{
	First:      time.Second,
	Longest:    16 * time.Second,
	Requests:   4,
	MinRenewal: 60 * time.Second, // RFC 2131, section 4.4.5
	MinLease:   30 * time.Second,
	Declined:   10 * time.Second, // RFC 2131, section 3.1
}

// Jitter returns d, changed by up to a tenth at random, so that machines that start together do not send together.
func Jitter(d time.Duration) time.Duration {
	return d + time.Duration(rand.Int64N(int64(d/5)+1)) - d/10
}

// Observer receives the events of a client. The client calls its methods one at a time.
type Observer interface {
	// Sent reports a message of the exchange that began at since.
	Sent(since time.Time)
	// Rejected reports why the client does not use an answer.
	Rejected(cause error)
	// Failed reports why there is no lease at present, or why the present one was not renewed. message is a constant
	// phrase for the log.
	Failed(message string, err error)
}

// Warnings describe the values of one answer that are not used.
type Warnings []string

// Addf adds a warning.
func (w *Warnings) Addf(format string, args ...any) { *w = append(*w, fmt.Sprintf(format, args...)) }

// DomainNames returns the valid domain names of a list without their final dots. The others become warnings.
func (w *Warnings) DomainNames(list []string) []string {
	var names []string
	for _, name := range list[:min(len(list), resolver.MaxSearch)] {
		name = strings.TrimRight(name, "\x00.")
		switch {
		case name == "":
		case !resolver.IsDomainName(name):
			w.Addf("domain %q is not valid", name)
		default:
			names = append(names, name)
		}
	}
	return names
}

// Servers returns the addresses of a list without duplicates. parse returns the address of an element and whether a
// host can have it; elements without such an address become warnings that name the kind of server.
func Servers[E any](w *Warnings, kind string, list []E, parse func(E) (netip.Addr, bool)) []netip.Addr {
	var servers []netip.Addr
	for _, element := range list[:min(len(list), MaxServers)] {
		address, ok := parse(element)
		if !ok {
			w.Addf("%s %v is not a host address", kind, element)
			continue
		}
		if !slices.Contains(servers, address) {
			servers = append(servers, address)
		}
	}
	return servers
}

// IsHostAddress6 reports whether a host can have the IPv6 address. That includes addresses of one link.
func IsHostAddress6(address netip.Addr) bool {
	return address.Is6() && !address.Is4In6() && !address.IsUnspecified() && !address.IsLoopback() &&
		!address.IsMulticast()
}
