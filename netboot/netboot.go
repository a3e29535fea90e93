package netboot

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"slices"
	"sync"

	"github.com/vishvananda/netlink"

	"ironroot/internal/goroutine"
	"ironroot/netboot/listing"
	"ironroot/netboot/lldp"
	"ironroot/netboot/networkdata"
)

// Config describes which links to use and how.
type Config struct {
	// Log receives the events of links and leases; nil discards them.
	Log *slog.Logger
	// Interface reports whether to use a link. Nil means all physical Ethernet and InfiniBand links. It is not called
	// for the loopback interface.
	Interface func(name string) bool
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
	// VLANs are to be made, and are then used like physical links.
	VLANs []VLAN

	timing   timing       // of tests; the zero value is defaultTiming
	firmware firmwareLLDP // of tests; nil is lldp.Firmware
}

// Link is what is known of one link at one moment.
type Link struct {
	Name      string
	Index     int
	MAC       net.HardwareAddr
	MTU       int  // bytes
	Up        bool // administratively up
	Carrier   bool // the cable's other end answers
	Addresses []netip.Prefix
	Lease     *Lease  // of DHCPv4; nil while there is none
	Lease6    *Lease6 // of DHCPv6; nil while there is none
	Bond      string  // the bond that the link is a member of, "" = none
	Static    bool    // addresses are those of static data
	Err       error   // what keeps the link from being of use, nil once it went well
	History   History // what was tried
}

// Network is the running network. Its methods may be called from any goroutine.
type Network struct {
	log      *slog.Logger
	accepts  func(netlink.Link) bool
	resolver *resolver
	timing   timing
	lldp     *lldp.Listener
	firmware firmwareLLDP // nil = agents in the cards' firmware are not changed
	stop     context.CancelFunc
	watching chan struct{} // closed when the watcher and every link have ended
	vlans    []VLAN

	plans       chan *networkdata.Data
	failedPlans chan string     // ids of what cannot be made
	waiting     <-chan struct{} // the watcher's; nil when there is nothing to wait for
	plan        *plan           // the watcher's, and written under mu; nil without static data

	mu        sync.Mutex
	links     map[int]*link // by kernel index
	addresses map[int]map[netip.Prefix]bool
	made      map[string]bool // names of VLAN interfaces
	ranks     int             // how many links have ever had a configuration
	changed   chan struct{}   // closed and replaced at every change
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
	ctx, stop := context.WithCancel(ctx)
	n := &Network{
		log:      config.Log,
		accepts:  acceptor(config.Interface),
		resolver: &resolver{path: config.ResolvConf},
		timing:   config.timing,
		lldp:     lldp.New(config.Log),
		stop:     stop,
		watching: make(chan struct{}),
		vlans:    config.VLANs,
		waiting:  config.Wait,

		plans:       make(chan *networkdata.Data),
		failedPlans: make(chan string),

		links:     map[int]*link{},
		made:      map[string]bool{},
		addresses: map[int]map[netip.Prefix]bool{},
		changed:   make(chan struct{}),
	}
	if config.StopFirmwareLLDP {
		n.firmware = config.firmware
		if n.firmware == nil {
			n.firmware = &lldp.Firmware{Log: config.Log}
		}
	}
	w, err := subscribe()
	if err != nil {
		stop()
		return nil, err
	}
	goroutine.Go(func() error {
		defer n.lldp.Close()
		defer func() {
			if err := n.RestoreFirmwareLLDP(false); err != nil {
				n.log.Warn("LLDP agent of a card not switched on", "err", err)
			}
		}()
		n.watch(ctx, w, config.Data)
		return nil
	}, func(error) { close(n.watching) })
	return n, nil
}

// acceptor turns the caller's choice into a rule for links of the kernel.
func acceptor(byName func(string) bool) func(netlink.Link) bool {
	return func(l netlink.Link) bool {
		attrs := l.Attrs()
		if attrs.Flags&net.FlagLoopback != 0 {
			return false
		}
		if byName != nil {
			return byName(attrs.Name)
		}
		// Virtual links have a kind (bridge, vlan, veth ...); physical ones have none.
		if l.Type() == "ipoib" { // of the card's driver; further ones on it are of other partitions
			return attrs.ParentIndex == 0 || attrs.ParentIndex == attrs.Index
		}
		return l.Type() == "device" && attrs.EncapType == "ether"
	}
}

// Links returns every link in use, ordered by kernel index.
func (n *Network) Links() []Link {
	n.mu.Lock()
	defer n.mu.Unlock()
	links := make([]Link, 0, len(n.links))
	for index, l := range n.links {
		state := l.state
		state.Err = l.failure()
		state.MAC = slices.Clone(state.MAC)
		for prefix := range n.addresses[index] {
			if !slices.Contains(l.coming, prefix) {
				state.Addresses = append(state.Addresses, prefix)
			}
		}
		slices.SortFunc(state.Addresses, netip.Prefix.Compare)
		links = append(links, state)
	}
	slices.SortFunc(links, func(a, b Link) int { return cmp.Compare(a.Index, b.Index) })
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

// Changed returns a channel that is closed at the next change of any link. Take it before looking at Links, so that
// no change is missed.
func (n *Network) Changed() <-chan struct{} {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.changed
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
		for _, l := range links {
			if slices.ContainsFunc(l.Addresses, usable) {
				return nil
			}
		}
		select {
		case <-changed:
		case <-n.watching:
			return stopped
		case <-ctx.Done():
			return fmt.Errorf("wait for an address (%s): %w", describe(links), ctx.Err())
		}
	}
}

func usable(p netip.Prefix) bool {
	return p.Addr().IsGlobalUnicast()
}

// describe says of each link why it has no address.
func describe(links []Link) string {
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
		default:
			text += l.Name + ": no answer from a DHCP server"
		}
	}
	return text
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
	n.update(func() {
		clear(n.links)
		clear(n.addresses)
	})
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

// update changes the state of a link under the lock and tells whoever waits for a change.
func (n *Network) update(change func()) {
	n.mu.Lock()
	defer n.mu.Unlock()
	change()
	n.tell()
}

// tell wakes whoever waits for a change; mu is held.
func (n *Network) tell() {
	close(n.changed)
	n.changed = make(chan struct{})
}
