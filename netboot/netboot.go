//go:build linux

package netboot

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"slices"
	"time"

	"github.com/vishvananda/netlink"

	"ironroot/internal/goroutine"
	"ironroot/netboot/events"
	"ironroot/netboot/listing"
	"ironroot/netboot/lldp"
	"ironroot/netboot/networkdata"
	"ironroot/netboot/resolver"
	"ironroot/netboot/route"
	"ironroot/netboot/snapshot"
	"ironroot/netboot/vlan"
)

// Config describes a network of all physical Ethernet and InfiniBand links.
type Config struct {
	// Log receives the events of links and leases; nil discards them.
	Log *slog.Logger
	// ResolvConf is the resolver's file; "" means /etc/resolv.conf.
	ResolvConf string

	// StopFirmwareLLDP switches off the LLDP agents inside network cards, which otherwise consume the frames, before
	// the links are raised. They are switched on again when the network ends, and by RestoreFirmwareLLDP.
	StopFirmwareLLDP bool
	// Data is the static configuration at the start, nil without any: see Configure.
	Data *networkdata.Data
	// Wait is closed when it is known that there is no static data. Until then, or until Configure, links are only
	// raised. Nil waits for nothing.
	Wait <-chan struct{}
	// VLANs are created, and are then used like physical links.
	VLANs []vlan.Request

	virtual  bool         // of tests; uses virtual links, too
	timing   timing       // of tests; the zero value is defaultTiming
	firmware firmwareLLDP // of tests; nil is lldp.Firmware
}

// Network is the running network. Its methods may be called concurrently.
type Network struct {
	shared   *shared
	plans    chan<- *networkdata.Data
	stop     context.CancelFunc
	watching chan struct{} // closed when the watcher and every link have ended
}

// Start raises all links and keeps them configured, including those that appear later. It returns at once. The network
// runs until ctx ends, which leaves the links unchanged, or until Down. An error means that this process cannot
// receive the kernel's events.
func Start(ctx context.Context, config Config) (*Network, error) {
	if config.Log == nil {
		config.Log = slog.New(slog.DiscardHandler)
	}
	if config.ResolvConf == "" {
		config.ResolvConf = "/etc/resolv.conf"
	}
	if config.timing == (timing{}) {
		config.timing = defaultTiming
	}
	received, err := events.Subscribe()
	if err != nil {
		return nil, err
	}
	watching := make(chan struct{})
	common := newShared(config, watching)
	plans := make(chan *networkdata.Data)
	w := &watcher{
		shared: common, virtual: config.virtual, running: goroutine.NewGroup(), plans: plans,
		waiting: config.Wait,
		used:    map[int]*assignment{}, addresses: map[int][]netip.Prefix{},
	}
	ctx, stop := context.WithCancel(ctx)
	n := &Network{shared: common, plans: plans, stop: stop, watching: watching}
	goroutine.Go(func() error {
		defer common.lldp.Close()
		defer func() {
			if err := n.RestoreFirmwareLLDP(false); err != nil {
				common.log.Warn("LLDP agent of network card not restored", "err", err)
			}
		}()
		w.run(ctx, received, config.Data)
		return nil
	}, func(error) { close(watching) })
	return n, nil
}

// newShared returns what the links of a network have in common. ended is closed when the network has ended.
func newShared(config Config, ended <-chan struct{}) *shared {
	table := newLinkTable()
	s := &shared{
		log: config.Log, timing: config.timing, links: table, vlans: vlan.NewSet(config.VLANs),
		names: &nameServers{log: config.Log, file: resolver.NewFile(config.ResolvConf), links: table, ended: ended},
		lldp:  lldp.New(config.Log), failed: make(chan string),
	}
	if config.StopFirmwareLLDP {
		s.firmware = config.firmware
		if s.firmware == nil {
			s.firmware = &lldp.Firmware{Log: config.Log}
		}
	}
	return s
}

// isUsed reports whether to use a link of the kernel: all physical Ethernet and InfiniBand links are.
func isUsed(l netlink.Link, virtual bool) bool {
	attrs := l.Attrs()
	if attrs.Flags&net.FlagLoopback != 0 {
		return false
	}
	// Virtual links have a kind (bridge, vlan, veth ...); physical ones have none.
	if l.Type() == "ipoib" && !virtual { // of the card's driver; further ones on it are of other partitions
		return attrs.ParentIndex == 0 || attrs.ParentIndex == attrs.Index
	}
	return virtual || l.Type() == "device" && attrs.EncapType == "ether"
}

// Configure applies static data in place of the data before; nil is no data. Bonds and VLANs are created, and the
// links that the data names get its addresses, also those that appear later. All other links use DHCP, because a node
// that is reached by them is better than one that is not; routes of the data precede theirs. Configure returns at
// once. Failures are logged.
func (n *Network) Configure(data *networkdata.Data) {
	select {
	case n.plans <- data:
	case <-n.watching:
	}
}

// Links returns every link in use, ordered by kernel index.
func (n *Network) Links() []snapshot.Link {
	links := []snapshot.Link{}
	for _, s := range n.shared.links.states() {
		links = append(links, s.published())
	}
	return links
}

// TimeServers returns the time servers of all leases, in the order of the links.
func (n *Network) TimeServers() []netip.Addr {
	var servers []netip.Addr
	for _, l := range n.Links() {
		if l.Lease != nil {
			servers = append(servers, l.Lease.NTP...)
		}
		if l.Lease6 != nil {
			servers = append(servers, l.Lease6.NTP...)
		}
	}
	return slices.Compact(servers)
}

// Changed returns a channel that is closed at the next change of any link. Call it before Links, so that no change is
// missed.
func (n *Network) Changed() <-chan struct{} { return n.shared.links.next() }

// DialContext connects like a net.Dialer. If the kernel's routes do not lead to the address, because the server of a
// link announced a wrong router or subnet, it tries the links one after the other, a second apart, and adds a route to
// the address by the first one that connects. All later connections to the address use that route.
func (n *Network) DialContext(ctx context.Context, network, address string) (net.Conn, error) {
	var links []string
	for _, l := range n.Links() {
		if l.HasAddress() {
			links = append(links, l.Name)
		}
	}
	if len(links) < 2 {
		links = nil // the kernel has no choice
	}
	conn, by, err := route.Dial(ctx, links, n.shared.timing.DHCP.First, network, address)
	if err != nil {
		return nil, err
	}
	if l := n.shared.links.named(by); by != "" && l != nil {
		l.hosts.Keep(conn)
	}
	return conn, nil
}

// AskAgain makes every link ask its DHCP servers at once, because the links can have been connected to other networks
// while they kept their carriers. A lease is kept until a server refuses it or grants another one.
func (n *Network) AskAgain() {
	for _, l := range n.shared.links.all() {
		l.moved.send()
		l.carrier6.send()
	}
}

// WaitAddress waits until a link has a global address. Its error names the links and why they have none.
func (n *Network) WaitAddress(ctx context.Context) error {
	stopped := errors.New("wait for an address: network stopped")
	for {
		changed := n.Changed()
		links := n.Links()
		select {
		case <-n.watching:
			return stopped // the state of the links may be outdated
		default:
		}
		if slices.ContainsFunc(links, snapshot.Link.HasAddress) {
			return nil
		}
		select {
		case <-changed:
		case <-n.watching:
			return stopped
		case <-ctx.Done():
			return fmt.Errorf("wait for an address (%s): %w", snapshot.NoAddress(links), ctx.Err())
		}
	}
}

// LLDP returns the newest LLDP frame of each link by the link's name. The frame of a link without one has no TLVs.
func (n *Network) LLDP() map[string]lldp.Frame { return n.shared.lldp.Frames() }

// WaitLLDP waits until each link that has a carrier or may still get one has received an LLDP frame, and returns the
// result of LLDP. Frames and silence before the call count. It gives up when quiet has passed since the last of the
// silent links got its carrier, and since a link received its first frame. That is no error, and it does not wait for
// such a link again until the carrier comes back.
func (n *Network) WaitLLDP(ctx context.Context, quiet time.Duration) (map[string]lldp.Frame, error) {
	frames, err := n.shared.lldp.Wait(ctx, quiet)
	if err != nil {
		return frames, fmt.Errorf("network: %w", err)
	}
	return frames, nil
}

// RestoreFirmwareLLDP switches on the LLDP agents in network cards that were switched off, for the operating system
// that runs next. If persistent, it does so only for agents that would stay off over a power cycle, and interrupts no
// link.
func (n *Network) RestoreFirmwareLLDP(persistent bool) error {
	switch {
	case n.shared.firmware == nil:
		return nil
	case persistent:
		return n.shared.firmware.RestorePersistent()
	}
	return n.shared.firmware.Restore()
}

// Down stops the network and sets all links of the machine except loopback down. Links that appear later stay down. It
// continues after an error and returns all of them.
func (n *Network) Down(ctx context.Context) error {
	n.stop()
	select {
	case <-n.watching:
	case <-ctx.Done():
		return fmt.Errorf("take the network down: %w", ctx.Err())
	}
	n.shared.links.clear()
	links, err := listing.Links()
	if err != nil {
		return err
	}
	var failed []error
	for _, l := range links {
		if l.Attrs().Flags&net.FlagLoopback != 0 {
			continue
		}
		if err := netlink.LinkSetDown(l); err != nil {
			failed = append(failed, fmt.Errorf("%s: take down: %w", l.Attrs().Name, err))
		}
	}
	return errors.Join(failed...)
}
