package netboot

import (
	"cmp"
	"context"
	"errors"
	"io/fs"
	"net"
	"net/netip"
	"slices"
	"time"

	"github.com/vishvananda/netlink"

	"ironroot/internal/goroutine"
)

// timing holds the delays of links, so that tests need not wait for them.
type timing struct {
	noCarrier  time.Duration // how long to wait for a carrier before asking without one: some drivers never report it
	first      time.Duration // the first retransmission; each further one doubles
	longest    time.Duration // up to this
	requests   int           // how often a request is sent before the exchange starts anew
	minRenewal time.Duration // the least time between two renewals of one phase
	minLease   time.Duration // the shortest lease that is believed
	declined   time.Duration // how long to wait after an address had another owner
}

var defaultTiming = timing{
	noCarrier:  10 * time.Second,
	first:      time.Second,
	longest:    16 * time.Second,
	requests:   4,
	minRenewal: 60 * time.Second, // RFC 2131, section 4.4.5
	minLease:   30 * time.Second,
	declined:   10 * time.Second, // RFC 2131, section 3.1
}

// baseMetric is the route metric of the first link that got a configuration; each further one is larger by one. It
// lies between what people set by hand and the 1024 of the kernel's own IPv6 routes.
const baseMetric = 512

// link is a link in use. One goroutine owns its state, and others run it, in one role at a time.
type link struct {
	network *Network
	index   int
	cancel  context.CancelFunc
	// Each of these holds one token: after the carrier came (back), the same for DHCPv6, after a router offered more, after
	// an address of DHCPv6 turned out to have another owner.
	carrier, carrier6, advertised, taken chan struct{}
	announced                            chan struct{} // the same, after neighbours announced other VLANs
	declines                             int           // leases in a row whose address has another owner
	virtual                              bool          // a VLAN or a bond

	// These are the watcher's; id and role are written under network.mu.
	id    string           // by which static data knows the link
	role  role             // what it does now
	card  net.HardwareAddr // its own MAC address
	ended chan struct{}    // closed when the link has left its role

	state  Link         // under network.mu; Addresses and Err are added when it is asked for
	failed [parts]error // under network.mu; the latest failure of each part, nil once it went well
	metric int          // under network.mu; 0 until the first configuration
	mtu    int          // bytes, what the link had before its first configuration
	config linkConfig   // under network.mu; what is applied now
	names  linkConfig   // under network.mu; the one whose name servers are used: it is set before config
	// coming are addresses that the kernel may have already and that lack their routes, under network.mu. Nobody is told of
	// them yet.
	coming []netip.Prefix
	// settled says that the carrier came or was waited for long enough, under network.mu.
	settled        bool
	announcedVLANs []int // under network.mu

	ways []*netlink.Route // under network.mu; see Network.Dial

	// What static data adds, under network.mu.
	static, staticNames linkConfig // as config and names
	staticMetric        int

	// What IPv6 adds, under network.mu.
	mode6        mode6 // the most that a router offered
	config6      linkConfig
	dhcpNames6   linkConfig
	routerDNS    []learned[netip.Addr]
	routerSearch []learned[string]
}

func newLink(n *Network, index int) *link {
	one := func() chan struct{} { return make(chan struct{}, 1) }
	l := &link{network: n, index: index, carrier: one(), carrier6: one(), advertised: one(), taken: one(), announced: one()}
	l.state.History.Found = time.Now()
	return l
}

func (l *link) snapshot() Link {
	l.network.mu.Lock()
	defer l.network.mu.Unlock()
	return l.state
}

func (l *link) name() string { return l.snapshot().Name }

// run raises the link and keeps it configured in its role until ctx ends.
func (l *link) run(ctx context.Context, r role) {
	ethernet := !isInfiniBand(l.snapshot().MAC)
	if !l.virtual && ethernet {
		l.stopFirmwareLLDP()
	}
	if r.bond != "" {
		l.join(ctx, r)
		return
	}
	l.prepare(r)
	if !l.raise(ctx) {
		return
	}
	parts := goroutine.NewGroup()
	defer parts.Wait() //nolint:errcheck // the parts start over after a panic, and have no other errors
	start := func(part func()) {
		parts.Go(func() error {
			l.persist(ctx, part)
			return nil
		})
	}
	start(func() { l.run6(ctx) })
	start(func() { l.makeTagged(ctx, r.tagged) })
	start(func() { l.useStatic(ctx, r) })
	if !l.virtual && !r.wait && ethernet {
		start(func() { l.runVLANs(ctx) })
	}
	if !l.awaitCarrier(ctx) {
		return
	}
	l.network.settle(l)
	if r.dhcp {
		l.persist(ctx, func() { l.runDHCP(ctx) })
	}
}

// persist calls f, and calls it again after a panic until ctx ends: a malformed message must not disable the link.
func (l *link) persist(ctx context.Context, f func()) {
	goroutine.Persist(ctx, l.network.timing.first, f)
}

// prepare makes the link ready to be raised.
func (l *link) prepare(r role) {
	l.dress(r)
	var err error
	if r.wait {
		err = setKernel("ipv6", l.name(), "disable_ipv6", "1") // it will begin anew, and be heard by routers
	} else {
		err = allowIPv6(l.name(), !r.static6)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		l.network.log.Warn("the kernel's IPv6 settings stay as they are", "interface", l.name(), "err", err)
	}
	// Else a former address would, at its end, take the newer ones of its subnet with it.
	if err := setKernel("ipv4", l.name(), "promote_secondaries", "1"); err != nil {
		l.network.log.Warn("addresses may go with the one before them", "interface", l.name(), "err", err)
	}
}

// runDHCP keeps the link's IPv4 address until ctx ends.
func (l *link) runDHCP(ctx context.Context) {
	for ctx.Err() == nil {
		lease := l.acquire(ctx)
		if lease == nil {
			return
		}
		err := l.use(lease, false)
		if err == nil {
			err = l.hold(ctx, lease)
		}
		if ctx.Err() != nil {
			return
		}
		l.fail(partDHCP, "lease lost", err)
		l.drop()
		pause := l.network.timing.first
		var conflict *conflictError
		if errors.As(err, &conflict) {
			pause = l.network.timing.declined
		}
		if !l.pause(ctx, pause) {
			return
		}
	}
}

// raise sets the link up. It retries until ctx ends, because drivers refuse while they load firmware.
func (l *link) raise(ctx context.Context) bool {
	delay := l.network.timing.first
	for ctx.Err() == nil {
		err := netlink.LinkSetUp(byIndex(l.index))
		if err == nil {
			l.fail(partLink, "", nil)
			return true
		}
		l.fail(partLink, "link cannot be raised", err)
		l.pause(ctx, delay)
		delay = min(2*delay, l.network.timing.longest)
	}
	return false
}

// awaitCarrier waits for the carrier, at most for noCarrier. It reports whether ctx is still valid.
func (l *link) awaitCarrier(ctx context.Context) bool {
	if l.snapshot().Carrier {
		l.drainCarrier()
		return true
	}
	timer := time.NewTimer(l.network.timing.noCarrier)
	defer timer.Stop()
	select {
	case <-l.carrier:
		return true
	case <-timer.C:
		l.network.log.Info("no carrier, going on all the same", "interface", l.name(),
			"waited", l.network.timing.noCarrier)
		return true
	case <-ctx.Done():
		return false
	}
}

func (l *link) drainCarrier() {
	select {
	case <-l.carrier:
	default:
	}
}

// pause waits for d and reports whether ctx is still valid.
func (l *link) pause(ctx context.Context, d time.Duration) bool { return pause(ctx, d) }

func pause(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// use applies a lease in place of the one before it. An MTU that the link refuses is left out: it is the one value
// that a link can work without. Where another address than before is renewed to, the former one stays for its time.
func (l *link) use(lease *Lease, renewed bool) error {
	n := l.network
	config := lease.config()
	metric := l.rank()
	n.mu.Lock()
	before, last := l.config, l.state.Lease
	n.mu.Unlock()
	if last != nil && renewed {
		config.former = before.outlived(last.Obtained, last.Duration, config, nil)
		l.tellFormer(config)
	}
	if l.mtuIsStatic() {
		config.mtu = 0
	}
	if config.mtu != 0 {
		if err := setMTU(l.index, config.mtu); err != nil {
			n.log.Warn("lease's MTU not used", "interface", l.name(), "err", err)
			config.mtu = 0
		}
	}
	if config.mtu == 0 {
		l.restoreMTU(before)
	}
	n.mu.Lock()
	l.names = config
	if !slices.Contains(before.addresses, lease.Address) {
		l.coming = append(l.coming, lease.Address)
	}
	n.mu.Unlock()
	// Whoever waits for an address looks up names at once, and Go's resolver does not read the file again for 5 s.
	n.writeResolver()
	if err := config.apply(l.index, metric, before); err != nil {
		// What part of it was applied is not known: all of both is to be removed.
		n.update(func() {
			l.config.addresses = append(slices.Clone(before.addresses), config.addresses...)
			l.config.routes = append(slices.Clone(before.routes), config.routes...)
			l.config.mtu = cmp.Or(config.mtu, before.mtu)
			l.arrived(config.addresses)
		})
		return err
	}
	n.update(func() {
		l.config, l.state.Lease, l.failed[partDHCP] = config, lease, nil
		l.arrived(config.addresses)
	})
	l.tellDoubts(lease)
	return nil
}

// arrived notes that addresses have their routes, or will not get them; network.mu is held.
func (l *link) arrived(addresses []netip.Prefix) {
	l.coming = slices.DeleteFunc(l.coming, func(p netip.Prefix) bool { return slices.Contains(addresses, p) })
}

// rank returns the metric of the link's routes. It is settled with the link's first configuration.
func (l *link) rank() int {
	n := l.network
	n.mu.Lock()
	defer n.mu.Unlock()
	if l.metric == 0 {
		l.metric, l.mtu = baseMetric+n.ranks, l.state.MTU
		n.ranks++
	}
	return l.metric
}

// drop takes the link's configuration away; the link stays up.
func (l *link) drop() {
	n := l.network
	n.mu.Lock()
	before, metric := l.config, l.metric
	n.mu.Unlock()
	if err := (linkConfig{}).apply(l.index, metric, before); err != nil {
		n.log.Error("lease's addresses and routes cannot be removed", "interface", l.name(), "err", err)
	}
	l.restoreMTU(before)
	l.dropWays()
	n.update(func() {
		l.config, l.names, l.state.Lease, l.state.History.Doubts = linkConfig{}, linkConfig{}, nil, nil
	})
	n.writeResolver()
}

// restoreMTU gives the link back the MTU that it had before a configuration changed it: the next network may not carry
// frames as large as those of the last one.
func (l *link) restoreMTU(before linkConfig) {
	if before.mtu == 0 {
		return
	}
	if err := setMTU(l.index, l.mtu); err != nil {
		l.network.log.Warn("MTU not restored", "interface", l.name(), "err", err)
	}
}

// writeResolver writes the name servers of all links.
func (n *Network) writeResolver() {
	if err := n.resolver.write(n.names); err != nil {
		n.log.Error("name servers cannot be written", "err", err)
	}
}

// names returns what the links say of name servers, the preferred link first.
func (n *Network) names() []linkConfig {
	n.mu.Lock()
	defer n.mu.Unlock()
	links := make([]*link, 0, len(n.links))
	for _, l := range n.links {
		links = append(links, l)
	}
	slices.SortFunc(links, func(a, b *link) int {
		return cmp.Or(cmp.Compare(a.role.order(), b.role.order()), cmp.Compare(a.metric, b.metric))
	})
	configs := make([]linkConfig, 0, 1+3*len(links))
	configs = append(configs, n.plan.names())
	for _, l := range links {
		configs = append(configs, l.staticNames, l.names, l.names6())
	}
	return configs
}

var errExpired = errors.New("the lease expired")
