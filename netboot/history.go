package netboot

import (
	"fmt"
	"strings"
	"time"

	"ironroot/netboot/lldp"
)

// History is what was tried on one link since it was found, and what came of it: the material for saying why a node
// reaches nobody. A time is zero where the thing has not happened.
type History struct {
	Found     time.Time
	Carrier   time.Time      // since when the carrier is there or, where Link.Carrier is false, away
	DHCP      Attempts       // of DHCPv4
	DHCP6     Attempts       // of DHCPv6, which is asked only where a router says that there is some
	Router    time.Time      // when an IPv6 router was last heard to say something new
	Neighbour lldp.Neighbour // empty where none was heard
	Doubts    []string       // what is questionable about the lease of DHCPv4
	LastErr   error          // the latest failure, even where all went well after it
	LastErrAt time.Time
}

// Attempts count one protocol's search for an answer. Another search begins when a lease is to be renewed, when it is
// lost, and when the carrier comes back.
type Attempts struct {
	Since    time.Time // of the search's first message
	Sent     int       // messages
	Rejected string    // why the latest answer was not used; "" where there was none to reject
}

// Report says what was tried on each link, in plain lines without line ends: the link, and below it, set in, each thing
// that was tried. now is what durations are counted to.
func Report(links []Link, now time.Time) []string {
	var lines []string
	for _, l := range links {
		lines = append(lines, l.Name+" ("+l.MAC.String()+"): "+l.physical(now))
		all := []string{l.ipv4(now)}
		for _, doubt := range l.History.Doubts {
			all = append(all, "doubtful: "+doubt)
		}
		for _, line := range append(all, l.ipv6(now), l.latest(now)) {
			if line != "" {
				lines = append(lines, "  "+line)
			}
		}
	}
	if len(lines) == 0 {
		return []string{"no network interface was found"}
	}
	return lines
}

// physical is what a link says without any protocol of addresses.
func (l Link) physical(now time.Time) string {
	h := l.History
	switch {
	case !l.Up:
		return "down" + since("for", h.Found, now)
	case !l.Carrier:
		return "no carrier" + since("for", h.Carrier, now) + "; check the cable and the switch's port"
	}
	text := "carrier" + since("for", h.Carrier, now)
	if h.Neighbour.System == "" {
		return text + ", no LLDP neighbour heard"
	}
	return text + ", neighbour " + h.Neighbour.System + ", port " + h.Neighbour.Port
}

func (l Link) ipv4(now time.Time) string {
	if l.Bond != "" {
		return "member of " + l.Bond
	}
	if lease := l.Lease; lease != nil {
		text := fmt.Sprintf("DHCP: %s of server %s", lease.Address, lease.Server)
		if router := lease.router(); router.IsValid() {
			return text + ", router " + router.String()
		}
		return text + ", no router"
	}
	if l.Static && l.History.DHCP.Sent == 0 {
		return l.static()
	}
	return l.History.DHCP.describe("DHCP", now)
}

// static is what a link has by static data.
func (l Link) static() string {
	var addresses []string
	for _, prefix := range l.Addresses {
		if prefix.Addr().Is4() {
			addresses = append(addresses, prefix.String())
		}
	}
	if len(addresses) == 0 {
		return "static network data: DHCP is not asked"
	}
	return "static: " + strings.Join(addresses, ", ")
}

func (l Link) ipv6(now time.Time) string {
	var addresses []string
	for _, prefix := range l.Addresses {
		if prefix.Addr().Is6() && usable(prefix) {
			addresses = append(addresses, prefix.String())
		}
	}
	switch {
	case l.Bond != "":
		return ""
	case len(addresses) > 0:
		return "IPv6: " + strings.Join(addresses, ", ")
	case l.History.DHCP6.Sent > 0:
		return l.History.DHCP6.describe("DHCPv6", now)
	case !l.History.Router.IsZero():
		return "IPv6: a router is there, but offers no address"
	case l.Carrier:
		return "IPv6: no router heard"
	}
	return ""
}

// latest is the last line: a failure may be of a part that works by now.
func (l Link) latest(now time.Time) string {
	h := l.History
	if h.LastErr == nil {
		return ""
	}
	return fmt.Sprintf("latest failure, %v ago: %v", now.Sub(h.LastErrAt).Truncate(time.Second), h.LastErr)
}

func (a Attempts) describe(protocol string, now time.Time) string {
	if a.Sent == 0 {
		return protocol + ": not asked yet"
	}
	times := "times"
	if a.Sent == 1 {
		times = "time"
	}
	text := fmt.Sprintf("%s: asked %d %s%s, ", protocol, a.Sent, times, since("in", a.Since, now))
	if a.Rejected == "" {
		return text + "no answer"
	}
	return text + "latest answer not used: " + a.Rejected
}

// since is the time from a moment to now in whole seconds, with a word ahead of it; "" where the moment is not known.
func since(word string, moment, now time.Time) string {
	if moment.IsZero() {
		return ""
	}
	return fmt.Sprintf(" %s %v", word, max(now.Sub(moment), 0).Truncate(time.Second))
}
