//go:build linux

package netboot

import (
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/vishvananda/netlink"

	"ironroot/internal/goroutine"
	"ironroot/internal/pause"
	"ironroot/netboot/bond"
	"ironroot/netboot/dhcp"
	"ironroot/netboot/ifconfig"
	"ironroot/netboot/lldp"
	"ironroot/netboot/plan"
	"ironroot/netboot/route"
	"ironroot/netboot/snapshot"
	"ironroot/netboot/vlan"
)

// timing holds the delays of links, so that tests need not wait for them.
type timing struct {
	noCarrier time.Duration // how long to wait for a carrier before sending without one: some drivers do not report it
	cardWait  time.Duration // how long to wait for a network card of static data before its absence is logged
	DHCP      dhcp.Timing   // of the clients; links retry after its delays too
}

var defaultTiming = timing{noCarrier: 10 * time.Second, cardWait: 30 * time.Second, DHCP: dhcp.DefaultTiming}

// shared holds the state that the links of a network have in common.
type shared struct {
	log      *slog.Logger
	timing   timing
	links    *linkTable
	names    *nameServers
	vlans    *vlan.Set
	lldp     *lldp.Listener
	firmware firmwareLLDP // nil = agents in network cards are not changed
	ranked   atomic.Int32 // number of links that have ever had a metric
	failed   chan string  // ids of links of the static data that cannot be created
}

// omit removes a bond or VLAN that cannot be created from the static data, with the links on top of it.
func (s *shared) omit(ctx context.Context, id string, err error) {
	s.log.Warn("link of the network data not created, omitting it and the links on top of it", "link", id, "err", err)
	select {
	case s.failed <- id:
	case <-ctx.Done():
	}
}

// link is a link in use. Goroutines run it, in one role at a time.
type link struct {
	*shared
	published atomic.Pointer[state]
	changing  sync.Mutex
	ended     bool // guarded by changing

	index   int
	virtual bool // a VLAN or a bond

	carrier, carrier6 signal // the carrier came (back): for DHCPv4, for DHCPv6
	moved             signal // the link can be on another network, for DHCPv4
	advertised        signal // a router announced more
	duplicate         signal // another machine has an address of DHCPv6
	announced         signal // neighbours announced other VLANs

	// Each of these belongs to one part of the role, and to leave after all parts have ended.
	lease4 lease4
	lease6 lease6
	static ifconfig.Source
	bond   string // to join, of the last role that ran; "" = none

	hosts *route.Hosts // by this link, of Network.DialContext
}

// newLink returns a link that must be ended.
func newLink(s *shared, index int) *link {
	found := state{link: snapshot.Link{Index: index, History: snapshot.History{Found: time.Now()}}}
	l := &link{
		shared: s, index: index, static: ifconfig.NewSource(index),
		carrier: newSignal(), carrier6: newSignal(), moved: newSignal(), advertised: newSignal(),
		duplicate: newSignal(), announced: newSignal(),
	}
	l.published.Store(&found)
	l.hosts = route.NewHosts(s.log, l)
	l.lease4 = lease4{link: l, source: ifconfig.NewSource(index)}
	l.lease6 = lease6{link: l, source: ifconfig.NewSource(index)}
	return l
}

// State returns the published state.
func (l *link) State() state { return *l.published.Load() }

// Change changes a copy of the state, publishes it and wakes the waiters. Changes are made one at a time. One that
// panics has no effect. apply must not block, because all other changes wait for it, nor call Change. After End, Change
// does nothing.
func (l *link) Change(apply func(*state)) {
	l.changing.Lock()
	defer l.changing.Unlock()
	if l.ended {
		return
	}
	next := l.State()
	apply(&next)
	l.published.Store(&next)
	l.links.wake()
}

// End ends all changes.
func (l *link) End() {
	l.changing.Lock()
	defer l.changing.Unlock()
	l.ended = true
}

func (l *link) name() string { return l.State().link.Name }

// run raises the link and keeps it configured in its role until ctx ends.
func (l *link) run(ctx context.Context, r plan.Role) {
	physical := !l.virtual && !dhcp.IsInfiniBand(l.State().link.MAC)
	if physical {
		l.stopFirmwareLLDP(l.name())
	}
	if l.bond = r.Bond; r.Bond != "" {
		join(ctx, l, r)
		return
	}
	prepare(l, r)
	if !l.raise(ctx) {
		return
	}
	parts := goroutine.NewGroup()
	start := func(part func()) {
		parts.Go(func() error {
			l.persist(ctx, part)
			return nil
		})
	}
	start(func() { l.lease6.run(ctx, r) })
	start(func() { makeTagged(ctx, l, r.Tagged) })
	start(func() { useStatic(ctx, l, r) })
	if physical && !r.Wait {
		start(func() { makeVLANs(ctx, l) })
	}
	start(func() {
		if l.awaitCarrier(ctx) && r.DHCP {
			l.lease4.run(ctx, r)
		}
	})
	_ = parts.Wait() // they run again after a panic, and have no other errors
}

// leave removes what the last role that ran configured.
func (l *link) leave() {
	l.lease4.Drop()
	l.lease6.Drop()
	dropStatic(l)
	if l.bond != "" {
		if err := bond.Leave(l.index); err != nil {
			l.log.Warn("link not removed from its bond", "interface", l.name(), "bond", l.bond, "err", err)
		}
	}
	if err := ifconfig.Sysctl("ipv6", l.name(), "disable_ipv6", "1"); err != nil { // its addresses go with that
		l.log.Debug("IPv6 not disabled", "interface", l.name(), "err", err)
	}
}

// persist calls f, and calls it again after a panic until ctx ends: a malformed message must not disable the link.
func (l *link) persist(ctx context.Context, f func()) {
	goroutine.Persist(ctx, l.timing.DHCP.First, f)
}

// prepare applies the settings of a role that a link needs before it is raised. Failures are logged and ignored.
func prepare(l *link, r plan.Role) {
	applyMACAndMTU(l, r)
	var err error
	if r.Wait {
		err = ifconfig.Sysctl("ipv6", l.name(), "disable_ipv6", "1") // it starts again later and then solicits routers
	} else {
		err = ifconfig.AllowRouters(l.name(), !r.Static6)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		l.log.Warn("IPv6 settings not changed", "interface", l.name(), "err", err)
	}
	// Otherwise the kernel deletes the newer addresses of the subnet when the old one expires.
	if err := ifconfig.Sysctl("ipv4", l.name(), "promote_secondaries", "1"); err != nil {
		l.log.Warn("promotion of secondary addresses not enabled", "interface", l.name(), "err", err)
	}
}

func applyMACAndMTU(l *link, r plan.Role) {
	if r.MAC != nil && !slices.Equal(r.MAC, l.State().link.MAC) {
		if err := netlink.LinkSetHardwareAddr(ifconfig.ByIndex(l.index), r.MAC); err != nil {
			l.log.Warn("MAC address not set", "interface", l.name(), "mac", r.MAC.String(), "err", err)
		}
	}
	if r.MTU != 0 {
		if err := ifconfig.SetMTU(l.index, l.mtuForIPv6(r.MTU)); err != nil {
			l.log.Warn("MTU not set", "interface", l.name(), "err", err)
		}
	}
}

const minMTU6 = 1280 // bytes (RFC 8200, section 5)

// mtuForIPv6 returns an MTU, or the minimum of IPv6 if it is larger: below that, the kernel disables IPv6 on a link.
func (l *link) mtuForIPv6(mtu int) int {
	if mtu >= minMTU6 || !ifconfig.HasIPv6() {
		return mtu
	}
	if l.State().link.MTU != minMTU6 { // otherwise a renewal of a lease
		l.log.Warn("MTU is too small for IPv6, using a larger one", "interface", l.name(), "mtu", mtu, "used", minMTU6)
	}
	return minMTU6
}

// raise sets the link up. It retries until ctx ends, because drivers refuse while they load firmware.
func (l *link) raise(ctx context.Context) bool {
	delay := l.timing.DHCP.First
	for ctx.Err() == nil {
		err := netlink.LinkSetUp(ifconfig.ByIndex(l.index))
		if err == nil {
			l.fail(partLink, "", nil)
			return true
		}
		l.fail(partLink, "link not raised", err)
		_ = pause.For(ctx, delay) // the loop ends with ctx
		delay = min(2*delay, l.timing.DHCP.Longest)
	}
	return false
}

// awaitCarrier waits for the carrier, at most for noCarrier. It reports whether ctx is still valid.
func (l *link) awaitCarrier(ctx context.Context) bool {
	if l.State().link.Carrier {
		l.carrier.clear()
	} else {
		timer := time.NewTimer(l.timing.noCarrier)
		defer timer.Stop()
		select {
		case <-l.carrier:
		case <-timer.C:
			l.log.Info("no carrier, continuing without it", "interface", l.name(), "waited", l.timing.noCarrier)
		case <-ctx.Done():
			return false
		}
	}
	l.Change(func(s *state) {
		s.awaited = true
		if s.link.Carrier {
			l.lldp.Begin(l.index)
		}
		expectLLDP(l.lldp, s)
	})
	return true
}

// fail records and logs the failure of a part of the link; nil records that it works. If the link has an address of
// the other family, the failure is no warning.
func (l *link) fail(p part, message string, err error) {
	works := false
	l.Change(func(s *state) {
		s.fail(p, err)
		works = s.failure() == nil
	})
	switch {
	case err == nil:
	case works:
		l.log.Info(message, "interface", l.name(), "err", err)
	default:
		l.log.Warn(message, "interface", l.name(), "err", err)
	}
}

// metric returns the metric of the routes of leases, which the first call chooses.
func (l *link) metric() int {
	l.Change(func(s *state) {
		if s.metric == 0 {
			s.metric, s.mtu = ifconfig.LeaseMetric+int(l.ranked.Add(1))-1, s.link.MTU
		}
	})
	return l.State().metric
}

// Interface returns the present state of the link's interface.
func (l *link) Interface() *net.Interface {
	now := l.State().link
	return &net.Interface{Index: now.Index, Name: now.Name, HardwareAddr: now.MAC}
}

// signal holds at most one token.
type signal chan struct{}

func newSignal() signal { return make(signal, 1) }

// send adds a token, unless there is one.
func (s signal) send() {
	select {
	case s <- struct{}{}:
	default:
	}
}

// clear removes the token.
func (s signal) clear() {
	select {
	case <-s:
	default:
	}
}
