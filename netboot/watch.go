//go:build linux

package netboot

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/netip"
	"slices"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"ironroot/internal/goroutine"
	"ironroot/internal/pause"
	"ironroot/netboot/bond"
	"ironroot/netboot/dhcp"
	"ironroot/netboot/dhcp6"
	"ironroot/netboot/events"
	"ironroot/netboot/listing"
	"ironroot/netboot/networkdata"
	"ironroot/netboot/plan"
	"ironroot/netboot/radv"
)

// watcher follows the kernel's events and gives each link its role. One goroutine owns it.
type watcher struct {
	*shared
	virtual   bool                     // use virtual links, too
	running   *goroutine.Group         // the goroutines of links
	plans     <-chan *networkdata.Data // new static data
	waiting   <-chan struct{}          // closed when there is no static data to wait for; nil = do not wait
	plan      *plan.Plan               // nil without static data
	cardsDue  <-chan time.Time         // when absent network cards of the plan are logged
	used      map[int]*assignment      // the links in use by their kernel indices
	addresses map[int][]netip.Prefix   // by kernel index, also of links that are not in use
}

// run runs the network until ctx and the goroutines of all links have ended.
func (w *watcher) run(ctx context.Context, received *events.Subscription, data *networkdata.Data) {
	defer w.end()
	for {
		again := false
		err := goroutine.Catch(func() error {
			if static := data; static != nil {
				data = nil // data that causes a panic is not used again
				w.useData(ctx, static)
			}
			w.reconcile(ctx)
			again = w.follow(ctx, received)
			return nil
		})
		received.Close()
		if err != nil { // a panic: the kernel's state is read again
			again = pause.For(ctx, w.timing.DHCP.First) == nil
		}
		if !again {
			return
		}
		if received = events.Resubscribe(ctx, w.log); received == nil {
			return
		}
	}
}

// end waits for the goroutines of all links.
func (w *watcher) end() {
	for _, a := range w.used {
		a.end(w.running)
	}
	_ = w.running.Wait() // links run again after a panic, and have no other errors
}

// follow handles events until ctx ends (false) or the kernel dropped some (true).
func (w *watcher) follow(ctx context.Context, received *events.Subscription) bool {
	for {
		heard := w.lldp.Changed()
		w.noteNeighbours()
		select {
		case <-heard:
		case <-w.waiting:
			w.useData(ctx, nil)
		case data := <-w.plans:
			w.useData(ctx, data)
		case <-w.cardsDue:
			w.logAbsentCards()
		case id := <-w.failed:
			w.useData(ctx, w.plan.Without(id))
		case <-ctx.Done():
			return false
		case event, ok := <-received.Links:
			if !ok {
				return ctx.Err() == nil
			}
			if event.Header.Type == unix.RTM_DELLINK {
				w.linkGone(event.Attrs().Index)
				continue
			}
			w.handleLink(ctx, event.Link)
		case event, ok := <-received.Routers:
			if !ok {
				return ctx.Err() == nil
			}
			w.handleAdvertisement(event)
		case event, ok := <-received.Addresses:
			if !ok {
				return ctx.Err() == nil
			}
			w.handleAddress(event)
		}
	}
}

// reconcile reads the kernel's present links and addresses, at the start and after events were lost.
func (w *watcher) reconcile(ctx context.Context) {
	links, err := listing.Links()
	if err != nil {
		w.log.Error("links not listed", "err", err)
		return
	}
	present := map[int]bool{}
	for _, l := range links {
		present[l.Attrs().Index] = true
		w.linkChanged(ctx, l)
	}
	for index := range w.used {
		if !present[index] {
			w.linkGone(index)
		}
	}
	advertisements, err := radv.List()
	if err != nil {
		w.log.Warn("flags of router advertisements not listed", "err", err)
	}
	for _, a := range advertisements {
		w.handleAdvertisement(a)
	}
	addresses, err := listing.Addresses()
	if err != nil && !errors.Is(err, netlink.ErrDumpInterrupted) {
		w.log.Error("addresses not listed", "err", err)
		return
	}
	clear(w.addresses)
	for _, a := range addresses {
		if prefix, ok := prefixOf(*a.IPNet); ok && a.Flags&unusableFlags == 0 {
			w.addresses[a.LinkIndex] = with(w.addresses[a.LinkIndex], prefix)
		}
	}
	for index, a := range w.used { // all addresses of a link in one step, so that no reader sees it without them
		a.link.Change(func(s *state) { s.addresses.present = w.addresses[index] })
	}
}

// handleLink processes an event of a link. Events may be older than the list that reconcile or reassign read. One that
// would decide on a role therefore only shows that there is something to read: an outdated MAC address would give the
// link a wrong role for a moment. Other attributes are used as they are, so that no loss of the carrier is missed.
func (w *watcher) handleLink(ctx context.Context, event netlink.Link) {
	attrs := event.Attrs()
	a, known := w.used[attrs.Index]
	if known && slices.Equal(attrs.HardwareAddr, a.link.State().link.MAC) {
		w.linkChanged(ctx, event)
		return
	}
	present, err := netlink.LinkByIndex(attrs.Index)
	if notFound := (netlink.LinkNotFoundError{}); errors.As(err, &notFound) {
		return // the event of its removal follows
	}
	if err != nil {
		w.log.Warn("link not read, using its event", "interface", attrs.Name, "err", err)
		present = event
	}
	w.linkChanged(ctx, present)
}

// linkChanged processes the present state of a link, and starts to use a new one.
func (w *watcher) linkChanged(ctx context.Context, kernel netlink.Link) {
	attrs := kernel.Attrs()
	if attrs.Flags&net.FlagLoopback != 0 {
		raiseLoopback(kernel, w.log)
		return
	}
	a, known := w.used[attrs.Index]
	if !known {
		id := w.plan.ID(kernel, attrs.HardwareAddr, idsOf(w.used))
		if !isUsed(kernel, w.virtual) && !w.vlans.Created(attrs.Name) && id == "" {
			return
		}
		a = &assignment{link: newLink(w.shared, attrs.Index)}
		a.link.virtual = kernel.Type() == "vlan" || kernel.Type() == "bond"
	}
	if !bond.IsMember(attrs) && a.role.Bond == "" {
		a.card = attrs.HardwareAddr
	}
	if !a.link.virtual && !dhcp.IsInfiniBand(attrs.HardwareAddr) { // LLDP is for physical Ethernet links
		w.lldp.Open(attrs.Index, attrs.Name) // before the link is raised: its first frame may be the only one for 30 s
	}
	w.setAttributes(a.link, attrs)
	if !known {
		w.used[attrs.Index] = a
		w.links.add(a.link)
	}
	id := w.plan.ID(kernel, a.card, idsOf(w.used))
	r := w.roleOf(a.link, id)
	if a.is(id, r) {
		return
	}
	if !known {
		w.log.Info("link found", "interface", attrs.Name, "mac", attrs.HardwareAddr.String())
	}
	a.start(ctx, id, r, w.running)
}

// setAttributes records the present attributes and addresses of a link.
func (w *watcher) setAttributes(l *link, attrs *netlink.LinkAttrs) {
	carrier := attrs.RawFlags&unix.IFF_LOWER_UP != 0
	regained := false
	l.Change(func(s *state) {
		s.link.Name, s.link.MTU, s.link.MAC = attrs.Name, attrs.MTU, attrs.HardwareAddr
		s.link.Up = attrs.Flags&net.FlagUp != 0
		if carrier != s.link.Carrier {
			s.link.History.Carrier = time.Now()
			regained = carrier
		}
		s.link.Carrier = carrier
		s.addresses.present = w.addresses[attrs.Index]
		expectLLDP(w.lldp, s)
	})
	if regained {
		l.carrier.send()
		l.carrier6.send()
	}
}

func raiseLoopback(lo netlink.Link, log *slog.Logger) {
	if lo.Attrs().Flags&net.FlagUp != 0 {
		return
	}
	if err := netlink.LinkSetUp(lo); err != nil {
		log.Error("loopback interface not raised", "interface", lo.Attrs().Name, "err", err)
	}
}

// linkGone removes a link that the kernel deleted.
func (w *watcher) linkGone(index int) {
	a, known := w.used[index]
	if !known {
		return
	}
	w.log.Warn("link is gone", "interface", a.link.name())
	delete(w.used, index) // first: an assignment must be ended once, also if something panics
	delete(w.addresses, index)
	a.end(w.running)
	w.lldp.Forget(index)
	w.links.remove(index)
	w.names.write()
}

// unusableFlags mark IPv6 addresses whose uniqueness is not known yet, or known not to hold.
const unusableFlags = unix.IFA_F_TENTATIVE | unix.IFA_F_DADFAILED

// handleAddress records whether a link has an address.
func (w *watcher) handleAddress(event netlink.AddrUpdate) {
	prefix, ok := prefixOf(event.LinkAddress)
	if !ok {
		return
	}
	before := w.addresses[event.LinkIndex]
	present := event.NewAddr && event.Flags&unusableFlags == 0
	var now []netip.Prefix
	if present {
		now = with(before, prefix)
	} else {
		now = without(before, prefix)
	}
	w.addresses[event.LinkIndex] = now
	a, known := w.used[event.LinkIndex]
	if !known {
		return
	}
	if !present && slices.Contains(before, prefix) {
		w.log.Debug("address is gone", "interface", a.link.name(), "address", prefix.String())
	}
	a.link.Change(func(s *state) { s.addresses.present = now })
	if event.Flags&unix.IFA_F_DADFAILED != 0 {
		handleDuplicate(a.link, prefix.Addr())
	}
}

// handleDuplicate informs the DHCPv6 client if another machine has one of its addresses (RFC 4862, section 5.4).
func handleDuplicate(l *link, address netip.Addr) {
	l.log.Warn("address is in use by another machine", "interface", l.name(), "address", address)
	isThis := func(p netip.Prefix) bool { return p.Addr() == address }
	if slices.ContainsFunc(l.State().granted, isThis) {
		l.duplicate.send()
	}
}

// prefixOf returns an address of the kernel. ok reports whether it is one.
func prefixOf(address net.IPNet) (prefix netip.Prefix, ok bool) {
	ip, ok := netip.AddrFromSlice(address.IP)
	ones, _ := address.Mask.Size()
	return netip.PrefixFrom(ip.Unmap(), ones), ok
}

// handleAdvertisement processes a router advertisement.
func (w *watcher) handleAdvertisement(a radv.Advertisement) {
	receiver, known := w.used[a.Index]
	if !known {
		return
	}
	l := receiver.link
	if a.Option != nil || a.Flags&radv.Heard != 0 {
		l.Change(func(s *state) { s.link.History.Router = time.Now() })
	}
	if a.Option != nil {
		learnDNS(l, a.Option)
		return
	}
	mode := dhcp6.Nothing
	switch {
	case a.Flags&radv.Managed != 0:
		mode = dhcp6.Stateful
	case a.Flags&radv.Other != 0:
		mode = dhcp6.Stateless
	}
	if mode <= l.State().offered {
		return
	}
	l.Change(func(s *state) { s.offered = mode })
	l.log.Debug("router offers DHCPv6", "interface", l.name(), "addresses", mode == dhcp6.Stateful)
	l.advertised.send()
}
