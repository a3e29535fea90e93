package netboot

import (
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/insomniacslk/dhcp/dhcpv4"
)

// doubts says what is questionable about a lease that can be used: each is a value that a server more likely has wrong
// than right, and that would explain why nobody is reached.
func doubts(lease *Lease, m *dhcpv4.DHCPv4, shortest time.Duration) []string {
	var list []string
	doubt := func(format string, args ...any) { list = append(list, fmt.Sprintf(format, args...)) }
	subnet := lease.Address.Masked()
	if m.SubnetMask() == nil {
		doubt("no subnet mask, %s is taken for the subnet", subnet)
	}
	if bits := plausibleBits(lease.Address.Addr()); lease.Address.Bits() < bits {
		doubt("subnet %s is wide: whatever else has an address in it is looked for on this link", subnet)
	}
	if len(lease.Routes) == 0 {
		doubt("no router: nothing but the subnet %s is reached", subnet)
	}
	for _, route := range lease.Routes {
		if route.Gateway.IsValid() && !subnet.Contains(route.Gateway) {
			doubt("router %s is outside the subnet %s, it is looked for on this link", route.Gateway, subnet)
		}
	}
	for _, server := range lease.DNS {
		if !lease.leads(server) {
			doubt("no route leads to name server %s", server)
		}
	}
	const none = -time.Second
	switch told := m.IPAddressLeaseTime(none); {
	case told == none:
		doubt("no lease time, %v is assumed", lease.Duration)
	case told < shortest:
		doubt("lease time %v is shorter than %v, which is assumed", told, shortest)
	case lease.Duration == Forever:
		doubt("lease time is infinite: it is not renewed")
	}
	return list
}

// plausibleBits is the shortest prefix that a subnet with the address in it plausibly has: that of its block of private
// addresses, and half of the bits elsewhere.
func plausibleBits(address netip.Addr) int {
	for _, block := range []string{"10.0.0.0/8", "100.64.0.0/10", "172.16.0.0/12"} {
		if prefix := netip.MustParsePrefix(block); prefix.Contains(address) {
			return prefix.Bits()
		}
	}
	return 16
}

// leads reports whether the lease has a way to an address.
func (l *Lease) leads(to netip.Addr) bool {
	return l.Address.Contains(to) || slices.ContainsFunc(l.Routes, func(r Route) bool { return r.Destination.Contains(to) })
}

// router returns the lease's default router, an invalid address where it has none.
func (l *Lease) router() netip.Addr {
	for _, r := range l.Routes {
		if r.Destination.Bits() == 0 {
			return r.Gateway
		}
	}
	return netip.Addr{}
}

// contradictions says in what a lease contradicts those of other links; mu is held.
func (n *Network) contradictions(l *link, lease *Lease) []string {
	var list []string
	for _, other := range n.links {
		theirs := other.state.Lease
		if other == l || theirs == nil {
			continue
		}
		if theirs.Address.Overlaps(lease.Address.Masked()) {
			list = append(list, fmt.Sprintf("subnet %s overlaps %s of link %s", lease.Address.Masked(), theirs.Address.Masked(), other.state.Name))
		}
		if ours, second := lease.router(), theirs.router(); ours.IsValid() && second.IsValid() && ours != second {
			order := "before"
			if other.metric < l.metric {
				order = "after"
			}
			list = append(list, fmt.Sprintf("default router %s comes %s %s of link %s", ours, order, second, other.state.Name))
		}
	}
	slices.Sort(list)
	return list
}

// tellDoubts notes what is questionable about a lease that is used from now on, and logs it when it is news.
func (l *link) tellDoubts(lease *Lease) {
	n := l.network
	var news []string
	n.update(func() {
		list := append(doubts(lease, lease.ack, n.timing.minLease), n.contradictions(l, lease)...)
		for _, text := range list {
			if !slices.Contains(l.state.History.Doubts, text) {
				news = append(news, text)
			}
		}
		l.state.History.Doubts = list
	})
	for _, text := range news {
		n.log.Warn("doubtful lease", "interface", l.name(), "server", lease.Server.String(), "err", text)
	}
}
