// Package snapshot describes links at one moment: their state and the attempts on them, also as text.
package snapshot

import (
	"net"
	"net/netip"
	"slices"
	"time"

	"ironroot/netboot/dhcp4"
	"ironroot/netboot/dhcp6"
	"ironroot/netboot/lldp"
)

// Link represents the state of a link at one moment.
type Link struct {
	Name      string
	Index     int
	MAC       net.HardwareAddr
	MTU       int  // bytes
	Up        bool // administratively up
	Carrier   bool // the other end of the cable is connected
	Addresses []netip.Prefix
	Lease     *dhcp4.Lease // of DHCPv4; nil while there is none
	Lease6    *dhcp6.Lease // of DHCPv6; nil while there is none
	Bond      string       // the bond that the link is a member of, "" = none
	Static    bool         // the addresses come from static data
	Err       error        // why the link is not usable, nil if it is
	History   History      // what was tried
}

// History records what was tried on a link since it was found, and the results: it explains why a node reaches nobody.
// Times of events that have not happened are zero.
type History struct {
	Found       time.Time
	Carrier     time.Time      // since when the carrier is there or, where Link.Carrier is false, away
	DHCP        Attempts       // of DHCPv4
	DHCP6       Attempts       // of DHCPv6, which is asked only where a router says that there is some
	Router      time.Time      // when an IPv6 router was last heard to say something new
	Neighbour   lldp.Neighbour // empty where none was heard
	Implausible []string       // what is questionable about the lease of DHCPv4
	LastErr     error          // the latest failure, even where all went well after it
	LastErrAt   time.Time
}

// Attempts count the messages of one exchange of a protocol. A new exchange begins when a lease has to be renewed,
// when it is lost, and when the carrier comes back.
type Attempts struct {
	Since    time.Time // when the first message was sent
	Sent     int       // messages
	Rejected string    // why the latest answer was rejected; "" if none was
}

// HasAddress reports whether the link has a global address.
func (l Link) HasAddress() bool {
	return slices.ContainsFunc(l.Addresses, func(p netip.Prefix) bool { return p.Addr().IsGlobalUnicast() })
}

// Count counts a message of the exchange that began at since.
func (a *Attempts) Count(since time.Time) {
	if !a.Since.Equal(since) {
		*a = Attempts{Since: since}
	}
	a.Sent++
}
