//go:build linux

package netboot

import (
	"encoding/binary"
	"errors"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/insomniacslk/dhcp/dhcpv6"
	"github.com/insomniacslk/dhcp/dhcpv6/server6"
	"github.com/insomniacslk/dhcp/iana"
	"golang.org/x/net/ipv6"

	"ironroot/internal/test/testenv/nettest"
	"ironroot/netboot/radv"
	"ironroot/netboot/route"
	"ironroot/netboot/snapshot"
)

// within returns the first address of a link that lies in the subnet.
func within(link snapshot.Link, subnet string) netip.Addr {
	for _, p := range link.Addresses {
		if netip.MustParsePrefix(subnet).Contains(p.Addr()) {
			return p.Addr()
		}
	}
	return netip.Addr{}
}

// resolves reports whether the resolver's file has all of the lines.
func (l *lab) resolves(lines ...string) bool {
	content, err := os.ReadFile(l.resolv)
	if err != nil {
		return false
	}
	for _, line := range lines {
		if !slices.Contains(strings.Split(string(content), "\n"), line) {
			return false
		}
	}
	return true
}

// Two links on networks without IPv4: one has addresses from DHCPv6, one from its router and only names from DHCPv6.
//
// Parity: R1 (IPv6)
func TestIPv6Only(t *testing.T) {
	l, inside := inNamespace(t, "dnsmasq")
	if !inside {
		return
	}
	// As where something else routes.
	if err := os.WriteFile("/proc/sys/net/ipv6/conf/all/forwarding", []byte("1"), 0); err != nil {
		t.Fatal(err)
	}
	l.Cable("nic0", "2001:db8:a::1/64")
	l.Cable("nic1", "2001:db8:b::1/64")
	l.Dnsmasq("--interface=peer-nic0", "--interface=peer-nic1", "--enable-ra",
		"--dhcp-range=set:a,2001:db8:a::10,2001:db8:a::20,64,1h", "--dhcp-range=set:b,2001:db8:b::,ra-stateless",
		"--dhcp-option=tag:a,option6:dns-server,[2001:db8:a::53]",
		"--dhcp-option=tag:b,option6:dns-server,[2001:db8:b::53]",
		"--dhcp-option=tag:a,option6:ntp-server,[2001:db8:a::123]",
		"--dhcp-option=tag:b,option6:domain-search,b.example")
	n := l.start()
	if err := n.WaitAddress(l.Ctx); err != nil {
		t.Fatal(err)
	}
	links := l.until(n, "both links have leases and addresses", func(links map[string]snapshot.Link) bool {
		a, b := links["nic0"].Lease6, links["nic1"].Lease6
		return a != nil && b != nil && within(links["nic1"], "2001:db8:b::/64").IsValid() &&
			len(a.Addresses) == 1 && has(links["nic0"], netip.PrefixFrom(a.Addresses[0], 128).String())
	})
	lease := links["nic0"].Lease6
	if got := lease.Addresses[0]; got.Less(addr("2001:db8:a::10")) || addr("2001:db8:a::20").Less(got) {
		t.Errorf("address: got %v, want one of the server's range", got)
	}
	if len(lease.NTP) != 1 || lease.NTP[0] != addr("2001:db8:a::123") || lease.Duration != time.Hour {
		t.Errorf("lease: got %+v, want the time server and an hour", lease)
	}
	if got := links["nic1"].Lease6.Addresses; len(got) != 0 {
		t.Errorf("stateless: got addresses %v by DHCPv6, want none", got)
	}
	if !l.resolves("nameserver 2001:db8:a::53", "nameserver 2001:db8:b::53", "search b.example") {
		content, err := os.ReadFile(l.resolv)
		t.Errorf("resolv.conf: got %q, %v, want the name servers of both links", content, err)
	}
	for name, far := range map[string]string{"nic0": "2001:db8:a::1", "nic1": "2001:db8:b::1"} {
		source, err := route.SourceFor(l.Ctx, addr(far))
		if err != nil ||
			!slices.ContainsFunc(links[name].Addresses, func(p netip.Prefix) bool { return p.Addr() == source }) {
			t.Errorf("source towards %s: got %v, %v, want an address of %s", far, source, err, name)
		}
	}
}

// An address that somebody else has is not used.
func TestDuplicateIPv6Address(t *testing.T) {
	l, inside := inNamespace(t)
	if !inside {
		return
	}
	l.Cable("nic0", "2001:db8::10/64")
	r := l.router("nic0")
	r.answer(radv.Managed)
	s := l.dhcp6("nic0", func(m *dhcpv6.Message) []dhcpv6.Modifier { return grant(m, "2001:db8::10", time.Hour) })
	n := l.start()
	l.until(n, "lease", func(links map[string]snapshot.Link) bool { return links["nic0"].Lease6 != nil })
	s(func(m *dhcpv6.Message) []dhcpv6.Modifier { return grant(m, "2001:db8::11", time.Hour) })
	links := l.until(n, "the address that nobody else has", func(links map[string]snapshot.Link) bool {
		return within(links["nic0"], "2001:db8::11/128").IsValid()
	})
	if within(links["nic0"], "2001:db8::10/128").IsValid() {
		t.Errorf("addresses: got %v, want none that the peer has", links["nic0"].Addresses)
	}
}

// A lease is renewed, also with another address, rebound with another server's consent, and ends when nobody renews
// it.
func TestDHCPv6Renewal(t *testing.T) {
	l, inside := inNamespace(t)
	if !inside {
		return
	}
	l.Cable("nic0", "2001:db8::1/64")
	l.router("nic0").answer(radv.Managed)
	serve := l.dhcp6("nic0",
		func(m *dhcpv6.Message) []dhcpv6.Modifier { return grant(m, "2001:db8::10", 12*time.Second) })
	n := l.start()
	first := l.until(n, "first address",
		func(links map[string]snapshot.Link) bool { return has(links["nic0"], "2001:db8::10/128") })
	l.until(n, "renewed", func(links map[string]snapshot.Link) bool {
		lease := links["nic0"].Lease6
		return lease != nil && lease.Obtained.After(first["nic0"].Lease6.Obtained)
	})
	serve(func(m *dhcpv6.Message) []dhcpv6.Modifier { return grant(m, "2001:db8::11", 12*time.Second) })
	l.until(n, "second address alone", func(links map[string]snapshot.Link) bool {
		return has(links["nic0"], "2001:db8::11/128") && !has(links["nic0"], "2001:db8::10/128")
	})
	serve(func(m *dhcpv6.Message) []dhcpv6.Modifier {
		if m.MessageType != dhcpv6.MessageTypeRebind {
			return nil
		}
		return grant(m, "2001:db8::11", 12*time.Second)
	})
	before := l.until(n, "lease",
		func(links map[string]snapshot.Link) bool { return links["nic0"].Lease6 != nil })["nic0"].Lease6.Obtained
	l.until(n, "rebound", func(links map[string]snapshot.Link) bool {
		lease := links["nic0"].Lease6
		return lease != nil && lease.Obtained.After(before)
	})
	serve(func(*dhcpv6.Message) []dhcpv6.Modifier { return nil })
	l.until(n, "the lease is over", func(links map[string]snapshot.Link) bool {
		return links["nic0"].Lease6 == nil && !has(links["nic0"], "2001:db8::11/128")
	})
}

// When the cable leads elsewhere, a server there says that the address does not fit.
func TestDHCPv6Confirm(t *testing.T) {
	l, inside := inNamespace(t)
	if !inside {
		return
	}
	l.Cable("nic0", "2001:db8::1/64")
	l.router("nic0").answer(radv.Managed)
	serve := l.dhcp6("nic0", func(m *dhcpv6.Message) []dhcpv6.Modifier { return grant(m, "2001:db8::10", time.Hour) })
	n := l.start()
	l.until(n, "first address",
		func(links map[string]snapshot.Link) bool { return has(links["nic0"], "2001:db8::10/128") })
	serve(func(m *dhcpv6.Message) []dhcpv6.Modifier {
		if m.MessageType == dhcpv6.MessageTypeConfirm {
			return []dhcpv6.Modifier{dhcpv6.WithOption(&dhcpv6.OptStatusCode{StatusCode: iana.StatusNotOnLink})}
		}
		return grant(m, "2001:db8:1::10", time.Hour)
	})
	l.SetPeer("nic0", false)
	l.until(n, "carrier lost", func(links map[string]snapshot.Link) bool { return !links["nic0"].Carrier })
	l.SetPeer("nic0", true)
	l.until(n, "the new network's address", func(links map[string]snapshot.Link) bool {
		return has(links["nic0"], "2001:db8:1::10/128") && !has(links["nic0"], "2001:db8::10/128")
	})
}

// Name servers come from the router itself, hold for as long as it says, and may be on the link only.
func TestRouterNamesServers(t *testing.T) {
	l, inside := inNamespace(t)
	if !inside {
		return
	}
	l.Cable("nic0", "2001:db8::1/64")
	r := l.router("nic0")
	r.answer(0, rdnss(3600, "2001:db8::53", "fe80::53"), rdnss(1, "2001:db8::54"),
		dnssl(3600, "example.com", "example.net"))
	n := l.start()
	l.eventually("name servers", func() bool {
		return l.resolves("nameserver 2001:db8::53", "nameserver fe80::53%nic0", "search example.com example.net")
	})
	l.eventually("the short one is gone", func() bool { return !l.resolves("nameserver 2001:db8::54") })
	r.answer(0, rdnss(0, "2001:db8::53"))
	r.send()
	l.eventually("the router takes one back", func() bool {
		return !l.resolves("nameserver 2001:db8::53") && l.resolves("nameserver fe80::53%nic0")
	})
	if links := n.Links(); links[0].Lease6 != nil {
		t.Errorf("got %+v by DHCPv6, which the router does not offer", links[0].Lease6)
	}
}

func (l *lab) eventually(what string, reached func() bool) {
	l.T.Helper()
	for end := time.Now().Add(nettest.Timeout); !reached(); time.Sleep(20 * time.Millisecond) { // a file has no events
		if time.Now().After(end) {
			l.T.Fatalf("%s: not so after %v", what, nettest.Timeout)
		}
	}
}

// testRouter advertises on the other end of a cable.
type testRouter struct {
	lab     *lab
	conn    *ipv6.PacketConn
	message chan []byte
	now     chan struct{}
}

func (l *lab) router(name string) *testRouter {
	l.T.Helper()
	r := &testRouter{lab: l, message: make(chan []byte, 1), now: make(chan struct{})}
	var raw net.PacketConn
	l.Peer(func() error {
		link, err := net.InterfaceByName("peer-" + name)
		if err != nil {
			return err
		}
		if raw, err = net.ListenPacket("ip6:ipv6-icmp", "::"); err != nil {
			return err
		}
		r.conn = ipv6.NewPacketConn(raw)
		var filter ipv6.ICMPFilter
		filter.SetAll(true)
		filter.Accept(ipv6.ICMPTypeRouterSolicitation)
		return errors.Join(r.conn.SetICMPFilter(&filter), r.conn.SetMulticastInterface(link),
			r.conn.SetMulticastHopLimit(255), r.conn.JoinGroup(link, &net.IPAddr{IP: net.IPv6linklocalallrouters}))
	})
	l.T.Cleanup(func() { _ = raw.Close() })
	go func() {
		buffer := make([]byte, 1500)
		for {
			if _, _, _, err := r.conn.ReadFrom(buffer); err != nil {
				return
			}
			r.send()
		}
	}()
	return r
}

// answer sets what the router advertises from now on.
func (r *testRouter) answer(flags radv.Flags, options ...[]byte) {
	message := make([]byte, 16)
	message[0], message[4], message[5] = byte(ipv6.ICMPTypeRouterAdvertisement), 64, 0
	if flags == radv.Managed {
		message[5] = 0x80
	}
	if flags == radv.Other {
		message[5] = 0x40
	}
	message = append(message, slices.Concat(options...)...)
	select {
	case <-r.message:
	default:
	}
	r.message <- message
}

func (r *testRouter) send() {
	message := <-r.message
	r.message <- message
	// The link may be down at this moment.
	_, _ = r.conn.WriteTo(message, nil, &net.IPAddr{IP: net.IPv6linklocalallnodes})
}

func rdnss(lifetime uint32, servers ...string) []byte {
	option := []byte{25, byte(1 + 2*len(servers)), 0, 0}
	option = binary.BigEndian.AppendUint32(option, lifetime)
	for _, server := range servers {
		option = append(option, addr(server).AsSlice()...)
	}
	return option
}

func dnssl(lifetime uint32, names ...string) []byte {
	option := binary.BigEndian.AppendUint32([]byte{31, 0, 0, 0}, lifetime)
	for _, name := range names {
		for label := range strings.SplitSeq(name, ".") {
			option = append(append(option, byte(len(label))), label...)
		}
		option = append(option, 0)
	}
	for len(option)%8 != 0 {
		option = append(option, 0)
	}
	option[1] = byte(len(option) / 8)
	return option
}

// grant is the part of an answer that gives an address.
func grant(m *dhcpv6.Message, address string, lifetime time.Duration) []dhcpv6.Modifier {
	ia := m.Options.OneIANA()
	if ia == nil {
		return nil
	}
	return []dhcpv6.Modifier{dhcpv6.WithOption(&dhcpv6.OptIANA{
		IaId: ia.IaId, Options: dhcpv6.IdentityOptions{Options: dhcpv6.Options{&dhcpv6.OptIAAddress{
			IPv6Addr: addr(address).AsSlice(), PreferredLifetime: lifetime / 3 * 2, ValidLifetime: lifetime,
		}}},
	})}
}

// dhcp6 serves on the other end of a cable what answer says, nothing when that is nil; the function it returns changes
// the answers.
func (l *lab) dhcp6(
	name string, answer func(*dhcpv6.Message) []dhcpv6.Modifier,
) func(func(*dhcpv6.Message) []dhcpv6.Modifier) {
	l.T.Helper()
	answers := make(chan func(*dhcpv6.Message) []dhcpv6.Modifier, 1)
	answers <- answer
	var s *server6.Server
	l.Peer(func() (err error) {
		s, err = server6.NewServer("peer-"+name,
			&net.UDPAddr{IP: dhcpv6.AllDHCPRelayAgentsAndServers, Port: dhcpv6.DefaultServerPort},
			func(conn net.PacketConn, peer net.Addr, d dhcpv6.DHCPv6) {
				m, ok := d.(*dhcpv6.Message)
				if !ok {
					return
				}
				current := <-answers
				answers <- current
				if modifiers := current(m); modifiers != nil {
					_, _ = conn.WriteTo(reply6(m, modifiers...).ToBytes(), peer) // the client asks again
				}
			})
		return err
	})
	go func() { _ = s.Serve() }()
	l.T.Cleanup(func() { _ = s.Close() })
	return func(next func(*dhcpv6.Message) []dhcpv6.Modifier) {
		<-answers
		answers <- next
	}
}

// reply6 answers a solicitation by an advertisement and all else by a reply.
func reply6(m *dhcpv6.Message, modifiers ...dhcpv6.Modifier) *dhcpv6.Message {
	answer := &dhcpv6.Message{MessageType: dhcpv6.MessageTypeReply, TransactionID: m.TransactionID}
	if m.MessageType == dhcpv6.MessageTypeSolicit {
		answer.MessageType = dhcpv6.MessageTypeAdvertise
	}
	answer.AddOption(dhcpv6.OptClientID(m.Options.ClientID()))
	answer.AddOption(dhcpv6.OptServerID(&dhcpv6.DUIDLL{
		HWType: iana.HWTypeEthernet, LinkLayerAddr: net.HardwareAddr{2, 0, 0, 0, 0, 1},
	}))
	for _, modify := range modifiers {
		modify(answer)
	}
	return answer
}

// A network without DHCPv4 is no fault of the link: what was tried is told, and that nothing is wrong.
func TestIPv6OnlyLinkIsWell(t *testing.T) {
	l, inside := inNamespace(t, "dnsmasq")
	if !inside {
		return
	}
	l.Cable("nic0", "2001:db8:1::1/64")
	l.Cable("silent", "")
	l.Dnsmasq("--interface=peer-nic0", "--enable-ra", "--dhcp-range=2001:db8:1::,ra-only")
	n := l.start()
	failed := func(name string) func(map[string]snapshot.Link) bool {
		return func(links map[string]snapshot.Link) bool { return links[name].History.LastErr != nil }
	}
	l.until(n, "the silent link fails", failed("silent"))
	l.until(n, "DHCPv4 fails on the other one", failed("nic0"))
	links := l.until(n, "it has an address", func(links map[string]snapshot.Link) bool {
		return len(links["nic0"].Addresses) > 1 && links["silent"].Err != nil
	})
	if err := links["nic0"].Err; err != nil {
		t.Errorf("IPv6-only link: got error %v, want none", err)
	}
	l.neighbour("nic0", "leaf")
	links = l.until(n, "its neighbour is heard",
		func(links map[string]snapshot.Link) bool { return links["nic0"].History.Neighbour.System == "leaf" })
	h := links["nic0"].History
	if h.DHCP.Sent < 3 || h.DHCP.Since.Before(h.Found) || h.Carrier.Before(h.Found) || h.DHCP6.Sent != 0 {
		t.Errorf("history: got %+v, want what was tried", h)
	}
	got := strings.Join(snapshot.Report([]snapshot.Link{links["nic0"]}, time.Now()), "\n")
	if !strings.Contains(got, "IPv6: 2001:db8:1:") {
		t.Errorf("report: got %s, want the address", got)
	}
}
