package netboot

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"time"

	"ironroot/internal/goroutine"
)

// mode6 is how much of IPv6 is asked for by DHCPv6, from less to more.
type mode6 int

const (
	routers   mode6 = iota // nothing: what routers advertise is all
	stateless              // name servers and the like
	stateful               // addresses too
)

// allowIPv6 makes the kernel listen to routers on a link: it forms addresses (SLAAC, RFC 4862) and keeps routes by what
// they advertise, even where the machine forwards packets for another link. Without slaac it keeps routes only. A kernel
// without IPv6 has nothing to set.
func allowIPv6(name string, slaac bool) error {
	var failed []error
	autoconf := map[bool]string{false: "0", true: "1"}[slaac]
	// Last comes what makes the kernel begin.
	for _, setting := range [][2]string{{"accept_ra", "2"}, {"autoconf", autoconf}, {"disable_ipv6", "0"}} {
		err := setKernel("ipv6", name, setting[0], setting[1])
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		failed = append(failed, err)
	}
	return errors.Join(failed...)
}

// setKernel changes a setting of the kernel for one link (Documentation/networking/ip-sysctl.rst).
func setKernel(family, link, setting, value string) error {
	return os.WriteFile(filepath.Join("/proc/sys/net", family, "conf", link, setting), []byte(value), 0)
}

// run6 asks by DHCPv6 for as much as the link's routers say there is, until ctx ends. Where no router speaks it does
// nothing, and nobody waits for it. More is asked for when a router says so, but never less: two routers that differ
// would make it come and go. Static data may ask for more than routers, or for nothing.
func (l *link) run6(ctx context.Context) {
	for mode := routers; ctx.Err() == nil; {
		for mode < l.mode() && ctx.Err() == nil {
			mode = l.mode()
			l.ask6(ctx, mode)
		}
		select {
		case <-ctx.Done():
			return
		case <-l.advertised:
		}
	}
}

// ask6 runs the client in one mode until a router offers more.
func (l *link) ask6(ctx context.Context, mode mode6) {
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	goroutine.Go(func() error {
		l.persist(ctx, func() {
			if mode == stateful {
				newClient6(l).lease(ctx)
			} else {
				newClient6(l).inform(ctx)
			}
		})
		return nil
	}, func(error) { close(done) })
	for l.mode() <= mode && ctx.Err() == nil {
		select {
		case <-ctx.Done():
		case <-l.advertised:
		}
	}
	cancel()
	<-done
}

// mode is how much is to be asked for.
func (l *link) mode() mode6 {
	l.network.mu.Lock()
	defer l.network.mu.Unlock()
	if !l.role.dhcp6 {
		return l.role.ask6
	}
	return max(l.role.ask6, l.mode6)
}

// advertise takes in what a router said on a link.
func (n *Network) advertise(a advertisement) {
	n.mu.Lock()
	l, known := n.links[a.index]
	n.mu.Unlock()
	if !known {
		return
	}
	if a.option != nil || a.flags&flagHeard != 0 {
		n.update(func() { l.state.History.Router = time.Now() })
	}
	if a.option != nil {
		l.learnDNS(a.option)
		return
	}
	mode := routers
	switch {
	case a.flags&flagManaged != 0:
		mode = stateful
	case a.flags&flagOther != 0:
		mode = stateless
	}
	n.mu.Lock()
	more := mode > l.mode6
	l.mode6 = max(l.mode6, mode)
	n.mu.Unlock()
	if more {
		n.log.Debug("router offers DHCPv6", "interface", l.name(), "addresses", mode == stateful)
		signal(l.advertised)
	}
}

// learnDNS takes over the name servers that a router names, for as long as it says.
func (l *link) learnDNS(o *dnsOption) {
	n := l.network
	func() {
		n.mu.Lock()
		defer n.mu.Unlock()
		for _, server := range o.servers {
			if server.IsLinkLocalUnicast() {
				server = server.WithZone(l.state.Name)
			}
			l.routerDNS = learn(l.routerDNS, server, o.lifetime, maxServers)
		}
		for _, name := range o.search {
			l.routerSearch = learn(l.routerSearch, name, o.lifetime, maxSearch)
		}
	}()
	n.writeResolver()
	if o.lifetime > 0 && o.lifetime != Forever {
		goroutine.AfterTime(o.lifetime+time.Second, func() { // n.names omits what has expired by then
			if n.running() {
				n.writeResolver()
			}
		})
	}
}

// learned is a value that holds for a time.
type learned[T comparable] struct {
	value T
	until time.Time // zero = forever
}

// learn puts value into the list, renews it there, or takes it away when it is to last for no time at all. Values that
// have run out make room.
func learn[T comparable](list []learned[T], value T, lifetime time.Duration, most int) []learned[T] {
	list = slices.DeleteFunc(list, func(l learned[T]) bool { return l.value == value && lifetime == 0 || !l.holds() })
	entry := learned[T]{value: value}
	switch {
	case lifetime == 0:
		return list
	case lifetime != Forever:
		entry.until = time.Now().Add(lifetime)
	}
	if i := slices.IndexFunc(list, func(l learned[T]) bool { return l.value == value }); i >= 0 {
		list[i] = entry
	} else if len(list) < most {
		list = append(list, entry)
	}
	return list
}

func (l learned[T]) holds() bool { return l.until.IsZero() || time.Now().Before(l.until) }

// values returns those values of the list that still hold.
func values[T comparable](list []learned[T]) []T {
	var held []T
	for _, l := range list {
		if l.holds() {
			held = append(held, l.value)
		}
	}
	return held
}

// names6 is what a link's routers and DHCPv6 servers say of name servers; the network's mu is held.
func (l *link) names6() linkConfig {
	return linkConfig{
		dns:    slices.Concat(values(l.routerDNS), l.dhcpNames6.dns),
		search: slices.Concat(values(l.routerSearch), l.dhcpNames6.search),
	}
}

// use6 applies a DHCPv6 lease in place of the one before it.
func (l *link) use6(lease *Lease6) error {
	n := l.network
	config := lease.config()
	metric := l.rank()
	n.mu.Lock()
	before, last := l.config6, l.state.Lease6
	l.dhcpNames6 = config
	n.mu.Unlock()
	if last != nil {
		config.former = before.outlived(last.Obtained, last.Duration, config, lease.revoked)
		l.tellFormer(config)
	}
	n.writeResolver()
	if err := config.apply(l.index, metric, before); err != nil {
		n.update(func() {
			l.config6.addresses = append(slices.Clone(before.addresses), config.addresses...)
		})
		return fmt.Errorf("use DHCPv6 lease: %w", err)
	}
	n.update(func() { l.config6, l.state.Lease6, l.failed[partDHCP6] = config, lease, nil })
	return nil
}

// drop6 takes the DHCPv6 lease's addresses away; those of routers stay.
func (l *link) drop6() {
	n := l.network
	n.mu.Lock()
	before, metric := l.config6, l.metric
	n.mu.Unlock()
	if err := (linkConfig{}).apply(l.index, metric, before); err != nil {
		n.log.Error("DHCPv6 lease's addresses cannot be removed", "interface", l.name(), "err", err)
	}
	n.update(func() { l.config6, l.dhcpNames6, l.state.Lease6 = linkConfig{}, linkConfig{}, nil })
	n.writeResolver()
}

// duplicate tells whoever uses an address that it has another owner (RFC 4862, section 5.4).
func (n *Network) duplicate(index int, address net.IPNet) {
	ip, _ := netip.AddrFromSlice(address.IP)
	n.mu.Lock()
	defer n.mu.Unlock()
	l, known := n.links[index]
	if !known {
		return
	}
	n.log.Warn("address has another owner on the link", "interface", l.state.Name, "address", ip)
	if slices.ContainsFunc(l.config6.addresses, func(p netip.Prefix) bool { return p.Addr() == ip }) {
		signal(l.taken)
	}
}

// running reports whether the network has not been stopped.
func (n *Network) running() bool {
	select {
	case <-n.watching:
		return false
	default:
		return true
	}
}

// signal leaves one token in a channel with room for one.
func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default: // one token is enough
	}
}
