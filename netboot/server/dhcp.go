package server

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/insomniacslk/dhcp/dhcpv4"
)

// DHCPConfig describes a subnet and the options that its clients get.
type DHCPConfig struct {
	Log         *slog.Logger    // may be nil
	Interface   string          // the only interface that is served
	Address     netip.Prefix    // the server's address on it, with the prefix length of the subnet
	First, Last netip.Addr      // first and last address of the pool; invalid for fixed leases only
	Fixed       map[string]Host // by MAC address, as formatted by net.HardwareAddr.String
	Lease       time.Duration   // 0 means one hour
	Router      netip.Addr      // invalid for none
	Routes      []Route         // classless static routes (option 121); these make clients ignore Router
	DNS         []netip.Addr
	NTP         []netip.Addr
	Domain      string
	MTU         int   // bytes; 0 for none
	Boot        *Boot // nil for no boot file
	Listed      bool  // only the machines in Fixed get an answer
	Exclusive   bool  // fail if another DHCP server on this machine has the port
}

// Host is the configuration of a machine.
type Host struct {
	Address  netip.Addr // invalid for an address of the pool
	Hostname string
}

// Route is a classless static route (RFC 3442).
type Route struct {
	Destination netip.Prefix
	Gateway     netip.Addr // invalid for a destination on the link
}

// Lease is an address in use.
type Lease struct {
	MAC      net.HardwareAddr
	Address  netip.Addr
	Expires  time.Time
	Hostname string // as sent by the client
}

// DHCP is a running DHCPv4 server.
type DHCP struct {
	config   DHCPConfig
	log      *slog.Logger
	listener *listener

	mu       sync.Mutex
	hosts    map[string]Host
	leases   map[string]Lease         // by MAC; an offer reserves its address for offerTime
	declined map[netip.Addr]time.Time // until when the address is not available
}

// maxLeases is the number of leases above which expired ones are deleted. Until then, their clients get the same
// address again.
const maxLeases = 4096

// offerTime is the time for which an offered address is reserved for a client that has not requested it yet.
const offerTime = 30 * time.Second

// declineTime is the time for which an address is not available after a client declined it, as with dnsmasq.
const declineTime = 10 * time.Minute

// ListenDHCP starts a DHCPv4 server that runs until ctx ends or Close is called. It opens the socket before it
// returns, in the network namespace of the calling thread. It needs the permission to bind port 67.
func ListenDHCP(ctx context.Context, config DHCPConfig) (*DHCP, error) {
	if err := config.check(); err != nil {
		return nil, fmt.Errorf("dhcp server: %w", err)
	}
	if config.Log == nil {
		config.Log = slog.New(slog.DiscardHandler)
	}
	if config.Lease == 0 {
		config.Lease = time.Hour
	}
	d := &DHCP{
		config: config, log: config.Log,
		hosts: map[string]Host{}, leases: map[string]Lease{}, declined: map[netip.Addr]time.Time{},
	}
	maps.Copy(d.hosts, config.Fixed)
	listener, err := listen(config.Interface, dhcpv4.ServerPort, config.Exclusive)
	if err != nil {
		return nil, fmt.Errorf("dhcp server: %w", err)
	}
	d.listener = listener
	listener.serve(ctx, d.log, d.handle)
	return d, nil
}

func (c DHCPConfig) check() error {
	switch {
	case c.Interface == "":
		return errors.New("no interface given: the server would reply on all networks")
	case !c.Address.IsValid() || !c.Address.Addr().Is4():
		return fmt.Errorf("%s: address %s: want an IPv4 address with a prefix length", c.Interface, c.Address)
	case c.First.IsValid() != c.Last.IsValid():
		return fmt.Errorf("%s: pool %s to %s: want both ends", c.Interface, c.First, c.Last)
	case c.First.IsValid() && (!c.Address.Contains(c.First) || !c.Address.Contains(c.Last) || c.Last.Less(c.First)):
		return fmt.Errorf("%s: pool %s to %s is not in %s", c.Interface, c.First, c.Last, c.Address.Masked())
	}
	return nil
}

// Leases returns the leases that have not expired, sorted by address.
func (d *DHCP) Leases() []Lease {
	d.mu.Lock()
	defer d.mu.Unlock()
	now := time.Now()
	var leases []Lease
	for _, l := range d.leases {
		if l.Expires.After(now) {
			leases = append(leases, l)
		}
	}
	slices.SortFunc(leases, func(a, b Lease) int { return a.Address.Compare(b.Address) })
	return leases
}

// SetHost sets the configuration of a machine, which takes effect with its next message. If the machine renews another
// address, the reply contains the new one.
func (d *DHCP) SetHost(mac net.HardwareAddr, host Host) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.hosts[mac.String()] = host
}

// Close stops the server and waits until its socket is closed.
func (d *DHCP) Close() error {
	if err := d.listener.close(); err != nil {
		return fmt.Errorf("dhcp server: close: %w", err)
	}
	return nil
}

// handle replies to a message.
func (d *DHCP) handle(peer *net.UDPAddr, m *dhcpv4.DHCPv4) {
	answer, err := d.answer(m)
	if err != nil {
		d.log.Warn("dhcp message not answered", "interface", d.config.Interface, "mac", m.ClientHWAddr.String(),
			"message", m.MessageType().String(), "err", err)
		return
	}
	if answer == nil {
		return
	}
	if answer.MessageType() == dhcpv4.MessageTypeNak {
		// The client's address may belong to another network: only a broadcast reaches it (RFC 2131, section 4.1).
		peer = &net.UDPAddr{IP: net.IPv4bcast, Port: dhcpv4.ClientPort}
	}
	d.listener.send(peer, m, answer)
}

// answer returns the reply to a message, nil if there is none.
func (d *DHCP) answer(m *dhcpv4.DHCPv4) (*dhcpv4.DHCPv4, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if _, known := d.hosts[m.ClientHWAddr.String()]; d.config.Listed && !known {
		if d.config.Boot != nil {
			_, _ = d.config.Boot.choose(m) // File learns of the client
		}
		return nil, nil
	}
	switch m.MessageType() {
	case dhcpv4.MessageTypeDiscover:
		address, err := d.choose(m)
		if err != nil {
			return nil, err
		}
		d.reserve(m, address, offerTime)
		return d.grant(m, dhcpv4.MessageTypeOffer, address)
	case dhcpv4.MessageTypeRequest:
		return d.request(m)
	case dhcpv4.MessageTypeRelease:
		delete(d.leases, m.ClientHWAddr.String())
		return nil, nil
	case dhcpv4.MessageTypeDecline:
		return nil, d.decline(m)
	case dhcpv4.MessageTypeInform:
		return d.grant(m, dhcpv4.MessageTypeAck, netip.Addr{})
	default:
		return nil, fmt.Errorf("unsupported message %s", m.MessageType())
	}
}

// request replies to a DHCPREQUEST in any of its four forms (RFC 2131, section 4.3.2).
func (d *DHCP) request(m *dhcpv4.DHCPv4) (*dhcpv4.DHCPv4, error) {
	if !d.isFor(m) {
		return nil, nil
	}
	address, err := d.choose(m)
	if err != nil {
		return nil, err
	}
	wanted, renewing := m.RequestedIPAddress(), false
	if wanted == nil {
		wanted, renewing = m.ClientIPAddr, true
	}
	if !wanted.Equal(address.AsSlice()) && !renewing {
		return dhcpv4.NewReplyFromRequest(m,
			dhcpv4.WithMessageType(dhcpv4.MessageTypeNak),
			dhcpv4.WithOption(dhcpv4.OptServerIdentifier(d.config.Address.Addr().AsSlice())),
			dhcpv4.WithOption(dhcpv4.OptMessage("address "+wanted.String()+" is not yours")))
	}
	d.reserve(m, address, d.config.Lease)
	return d.grant(m, dhcpv4.MessageTypeAck, address)
}

// isFor reports whether a client chose this server, or did not name the one it chose.
func (d *DHCP) isFor(m *dhcpv4.DHCPv4) bool {
	id := m.ServerIdentifier()
	return id == nil || id.Equal(d.config.Address.Addr().AsSlice())
}

// decline marks an address as not available because its client found another machine that uses it (RFC 2131, section
// 4.3.3). The error says so to the operator.
func (d *DHCP) decline(m *dhcpv4.DHCPv4) error {
	if !d.isFor(m) {
		return nil
	}
	address, _ := netip.AddrFromSlice(m.RequestedIPAddress().To4())
	lease, ok := d.leases[m.ClientHWAddr.String()]
	if !ok || lease.Address != address {
		return fmt.Errorf("client declines address %v, which it has no lease of", m.RequestedIPAddress())
	}
	delete(d.leases, m.ClientHWAddr.String())
	d.declined[address] = time.Now().Add(declineTime)
	return fmt.Errorf("address %s is in use by another machine, not offered for %v", address, declineTime)
}

// reserve records that a client has an address.
func (d *DHCP) reserve(m *dhcpv4.DHCPv4, address netip.Addr, duration time.Duration) {
	d.leases[m.ClientHWAddr.String()] = Lease{
		MAC: slices.Clone(m.ClientHWAddr), Address: address, Expires: time.Now().Add(duration), Hostname: m.HostName(),
	}
}

// choose returns the address for a client: its fixed, leased or requested address, or the first free one. A fixed
// address that is declined is not available either.
func (d *DHCP) choose(m *dhcpv4.DHCPv4) (netip.Addr, error) {
	mac, now := m.ClientHWAddr.String(), time.Now()
	maps.DeleteFunc(d.declined, func(_ netip.Addr, until time.Time) bool { return !until.After(now) })
	used := map[netip.Addr]bool{d.config.Address.Addr(): true, d.config.Router: true}
	for address := range d.declined {
		used[address] = true
	}
	if host, ok := d.hosts[mac]; ok && host.Address.IsValid() && d.declined[host.Address].IsZero() {
		return host.Address, nil
	}
	for _, host := range d.hosts {
		used[host.Address] = true
	}
	for other, lease := range d.leases {
		switch {
		case other == mac:
		case lease.Expires.After(now):
			used[lease.Address] = true
		case len(d.leases) > maxLeases:
			delete(d.leases, other)
		}
	}
	free := func(a netip.Addr) bool {
		return d.config.First.IsValid() && !a.Less(d.config.First) && !d.config.Last.Less(a) && !used[a]
	}
	if lease, ok := d.leases[mac]; ok && free(lease.Address) {
		return lease.Address, nil
	}
	for _, ip := range []net.IP{m.RequestedIPAddress(), m.ClientIPAddr} {
		if wanted, ok := netip.AddrFromSlice(ip.To4()); ok && free(wanted) {
			return wanted, nil
		}
	}
	for a := d.config.First; a.IsValid() && !d.config.Last.Less(a); a = a.Next() {
		if free(a) {
			return a, nil
		}
	}
	return netip.Addr{}, fmt.Errorf("no free address from %s to %s", d.config.First, d.config.Last)
}
