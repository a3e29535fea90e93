package snapshot

import (
	"fmt"
	"strings"
	"time"
)

// Report describes what was tried on each link, in lines without line ends: a line for the link and indented lines for
// each protocol. Durations end at now.
func Report(links []Link, now time.Time) []string {
	var lines []string
	for _, l := range links {
		lines = append(lines, l.Name+" ("+l.MAC.String()+"): "+l.physical(now))
		all := []string{l.ipv4(now)}
		for _, value := range l.History.Implausible {
			all = append(all, "implausible: "+value)
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

// NoAddress describes in one line why each link has no address.
func NoAddress(links []Link) string {
	if len(links) == 0 {
		return "no link found"
	}
	var text string
	for i, l := range links {
		if i > 0 {
			text += ", "
		}
		switch {
		case l.Err != nil:
			text += l.Name + ": " + l.Err.Error()
		case !l.Up:
			text += l.Name + ": down"
		case !l.Carrier:
			text += l.Name + ": no carrier"
		case l.Bond != "":
			text += l.Name + ": member of " + l.Bond
		case l.History.DHCP.Rejected != "":
			text += l.Name + ": DHCP answer rejected: " + l.History.DHCP.Rejected
		default:
			text += l.Name + ": no answer from a DHCP server"
		}
	}
	return text
}

// physical describes the link without its addresses.
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
		if router := lease.Router(); router.IsValid() {
			return text + ", router " + router.String()
		}
		return text + ", no router"
	}
	if l.Static && l.History.DHCP.Sent == 0 {
		return l.static()
	}
	return l.History.DHCP.describe("DHCP", now)
}

// static describes the addresses of static data.
func (l Link) static() string {
	var addresses []string
	for _, prefix := range l.Addresses {
		if prefix.Addr().Is4() {
			addresses = append(addresses, prefix.String())
		}
	}
	if len(addresses) == 0 {
		return "static network data, no DHCP"
	}
	return "static: " + strings.Join(addresses, ", ")
}

func (l Link) ipv6(now time.Time) string {
	var addresses []string
	for _, prefix := range l.Addresses {
		if prefix.Addr().Is6() && prefix.Addr().IsGlobalUnicast() {
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
		return "IPv6: router heard, but it offers no address"
	case l.Carrier:
		return "IPv6: no router heard"
	}
	return ""
}

// latest describes the latest failure. Its part of the link may work by now.
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
	return text + "latest answer rejected: " + a.Rejected
}

// since returns a word and the time from a moment to now in whole seconds, or "" if the moment is zero.
func since(word string, moment, now time.Time) string {
	if moment.IsZero() {
		return ""
	}
	return fmt.Sprintf(" %s %v", word, max(now.Sub(moment), 0).Truncate(time.Second))
}
