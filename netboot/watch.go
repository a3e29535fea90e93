package netboot

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"reflect"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"ironroot/internal/goroutine"
	"ironroot/netboot/listing"
	"ironroot/netboot/networkdata"
)

// watcher follows the kernel's events and gives each link its role. One goroutine owns it.
type watcher struct {
	links     chan netlink.LinkUpdate
	addresses chan netlink.AddrUpdate
	routers   chan advertisement
	done      chan struct{}
}

// eventBuffer is the receive buffer asked for, in bytes: a machine with many NICs sends a burst when all appear.
const eventBuffer = 1 << 20

func subscribe() (*watcher, error) {
	w := &watcher{
		links:     make(chan netlink.LinkUpdate, 64),
		addresses: make(chan netlink.AddrUpdate, 64),
		routers:   make(chan advertisement, 64),
		done:      make(chan struct{}),
	}
	err := netlink.LinkSubscribeWithOptions(w.links, w.done, netlink.LinkSubscribeOptions{ReceiveBufferSize: eventBuffer})
	if err != nil {
		return nil, fmt.Errorf("watch links: %w", err)
	}
	err = netlink.AddrSubscribeWithOptions(w.addresses, w.done, netlink.AddrSubscribeOptions{ReceiveBufferSize: eventBuffer})
	if err != nil {
		w.close()
		return nil, fmt.Errorf("watch addresses: %w", err)
	}
	if err := subscribeAdvertisements(w.routers, w.done); err != nil {
		w.close()
		return nil, err
	}
	return w, nil
}

// close ends the subscription; the library's readers need their channels emptied to notice.
func (w *watcher) close() {
	close(w.done)
	empty(w.links)
	empty(w.addresses)
	empty(w.routers)
}

// empty drops all values of a channel until it is closed.
func empty[T any](events <-chan T) {
	goroutine.Go(func() error {
		for range events { //nolint:revive // dropped on purpose
		}
		return nil
	}, nil)
}

// watch runs the network until ctx ends and every link's goroutine with it.
func (n *Network) watch(ctx context.Context, w *watcher, data *networkdata.Data) {
	running := goroutine.NewGroup()
	defer running.Wait() //nolint:errcheck // links start over after a panic, and have no other errors
	for {
		again := false
		err := goroutine.Catch(func() error {
			if static := data; static != nil {
				data = nil // data that causes a panic is not used again
				n.adopt(ctx, static, running)
			}
			n.reconcile(ctx, running)
			again = n.follow(ctx, w, running)
			return nil
		})
		w.close()
		if err != nil { // a panic: the kernel's state is read again
			again = pause(ctx, n.timing.first)
		}
		if !again {
			return
		}
		if w = n.resubscribe(ctx); w == nil {
			return
		}
	}
}

// follow handles events until ctx ends (false) or the kernel dropped some (true).
func (n *Network) follow(ctx context.Context, w *watcher, running *goroutine.Group) bool {
	for {
		heard := n.lldp.Changed()
		n.hear()
		select {
		case <-heard:
		case <-n.waiting:
			n.adopt(ctx, nil, running)
		case data := <-n.plans:
			n.adopt(ctx, data, running)
		case id := <-n.failedPlans:
			n.adopt(ctx, n.without(id), running)
		case <-ctx.Done():
			return false
		case event, ok := <-w.links:
			if !ok {
				return ctx.Err() == nil
			}
			if event.Header.Type == unix.RTM_DELLINK {
				n.gone(event.Attrs().Index)
				continue
			}
			n.seen(ctx, event.Link, running)
		case event, ok := <-w.routers:
			if !ok {
				return ctx.Err() == nil
			}
			n.advertise(event)
		case event, ok := <-w.addresses:
			if !ok {
				return ctx.Err() == nil
			}
			n.address(event.LinkIndex, event.LinkAddress, event.NewAddr && event.Flags&unusableFlags == 0)
			if event.Flags&unix.IFA_F_DADFAILED != 0 {
				n.duplicate(event.LinkIndex, event.LinkAddress)
			}
		}
	}
}

// unusableFlags mark IPv6 addresses whose uniqueness is not known yet, or known not to hold.
const unusableFlags = unix.IFA_F_TENTATIVE | unix.IFA_F_DADFAILED

func (n *Network) resubscribe(ctx context.Context) *watcher {
	for {
		w, err := subscribe()
		if err == nil {
			return w
		}
		n.log.Warn("link events were lost", "err", err)
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(time.Second):
		}
	}
}

// reconcile brings the state in line with the kernel's present links and addresses: at the start, and after events
// were lost.
func (n *Network) reconcile(ctx context.Context, running *goroutine.Group) {
	links, err := listing.Links()
	if err != nil {
		n.log.Error("links cannot be listed", "err", err)
		return
	}
	present := map[int]bool{}
	for _, l := range links {
		present[l.Attrs().Index] = true
		n.seen(ctx, l, running)
	}
	n.mu.Lock()
	var missing []int
	for index := range n.links {
		if !present[index] {
			missing = append(missing, index)
		}
	}
	n.mu.Unlock()
	for _, index := range missing {
		n.gone(index)
	}
	advertisements, err := listAdvertisements()
	if err != nil {
		n.log.Warn("what routers said before is not known", "err", err)
	}
	for _, a := range advertisements {
		n.advertise(a)
	}
	addresses, err := listing.Addresses()
	if err != nil && !errors.Is(err, netlink.ErrDumpInterrupted) {
		n.log.Error("addresses cannot be listed", "err", err)
		return
	}
	n.update(func() { // in one step: nobody is to see the links without their addresses
		clear(n.addresses)
		for _, a := range addresses {
			n.note(a.LinkIndex, *a.IPNet, a.Flags&unusableFlags == 0)
		}
	})
}

// seen takes in what the kernel says of a link, and starts to use it when it is new.
func (n *Network) seen(ctx context.Context, kernel netlink.Link, running *goroutine.Group) {
	attrs := kernel.Attrs()
	if attrs.Flags&net.FlagLoopback != 0 {
		n.raiseLoopback(kernel)
		return
	}
	n.mu.Lock()
	l, known := n.links[attrs.Index]
	n.mu.Unlock()
	if !known {
		if !n.accepts(kernel) && !n.isMade(kernel) && n.planned(kernel, attrs.HardwareAddr) == "" {
			return
		}
		l = newLink(n, attrs.Index)
		l.virtual = kernel.Type() == "vlan" || kernel.Type() == "bond"
	}
	if !isSlave(attrs) && l.role.bond == "" {
		l.card = attrs.HardwareAddr
	}
	if !l.virtual && !isInfiniBand(attrs.HardwareAddr) { // LLDP has no tags, belongs to a bond's members, and is Ethernet's
		n.lldp.Open(attrs.Index, attrs.Name) // before the link is raised: its first frame may be the only one for 30 s
	}
	carrier := attrs.RawFlags&unix.IFF_LOWER_UP != 0
	regained := carrier && !l.state.Carrier // only this goroutine writes Carrier
	n.update(func() {
		l.state.Name, l.state.Index, l.state.MTU, l.state.MAC = attrs.Name, attrs.Index, attrs.MTU, attrs.HardwareAddr
		l.state.Up = attrs.Flags&net.FlagUp != 0
		if carrier != l.state.Carrier {
			l.state.History.Carrier = time.Now()
		}
		l.state.Carrier = carrier
		n.links[attrs.Index] = l
		n.expectLLDP(l)
	})
	if regained {
		signal(l.carrier)
		signal(l.carrier6)
	}
	id := n.planned(kernel, l.card)
	r := n.roleOf(l, id)
	if known && id == l.id && reflect.DeepEqual(r, l.role) {
		return
	}
	if !known {
		n.log.Info("link found", "interface", attrs.Name, "mac", attrs.HardwareAddr.String())
	}
	n.launch(ctx, l, id, r, running)
}

func (n *Network) raiseLoopback(lo netlink.Link) {
	if lo.Attrs().Flags&net.FlagUp != 0 {
		return
	}
	if err := netlink.LinkSetUp(lo); err != nil {
		n.log.Error("loopback cannot be raised", "interface", lo.Attrs().Name, "err", err)
	}
}

// gone forgets a link that the kernel removed.
func (n *Network) gone(index int) {
	n.mu.Lock()
	l, known := n.links[index]
	n.mu.Unlock()
	if !known {
		return
	}
	n.log.Warn("link is gone", "interface", l.name())
	l.cancel()
	n.lldp.Forget(index)
	n.update(func() {
		delete(n.links, index)
		delete(n.addresses, index)
	})
	n.writeResolver()
}

// address notes that an address is on a link, or no longer, and tells of it.
func (n *Network) address(index int, address net.IPNet, present bool) {
	n.update(func() { n.note(index, address, present) })
}

// note is address within an update.
func (n *Network) note(index int, address net.IPNet, present bool) {
	ip, ok := netip.AddrFromSlice(address.IP)
	ones, _ := address.Mask.Size()
	if !ok {
		return
	}
	prefix := netip.PrefixFrom(ip.Unmap(), ones)
	if !present {
		if l := n.links[index]; l != nil && n.addresses[index][prefix] {
			n.log.Debug("address is gone", "interface", l.state.Name, "address", prefix.String())
		}
		delete(n.addresses[index], prefix)
		return
	}
	if n.addresses[index] == nil {
		n.addresses[index] = map[netip.Prefix]bool{}
	}
	n.addresses[index][prefix] = true
}
