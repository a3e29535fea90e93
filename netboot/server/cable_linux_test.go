package server

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/insomniacslk/dhcp/dhcpv4"
	"golang.org/x/net/ipv6"

	"ironroot/internal/test/testenv/nettest"
)

// A server on a cable answers the machine at its other end, and only as long as it runs. A probe finds it.
func TestServerOnCable(t *testing.T) {
	l, inside := nettest.New(t)
	if !inside {
		return
	}
	l.Cable("eth0", "192.0.2.2/24")
	nettest.Configure(t, "eth0", "192.0.2.1/24")
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	address := netip.MustParseAddr("192.0.2.10")
	config := DHCPConfig{
		Log: slog.New(slog.NewTextHandler(&l.Log, nil)), Interface: "eth0", Exclusive: true,
		Address: netip.MustParsePrefix("192.0.2.1/24"), First: address, Last: address,
		Boot: &Boot{Files: &oneFile{name: "file"}},
	}
	probe := func() []Other {
		t.Helper()
		var found []Other
		l.Peer(func() (err error) {
			found, err = Probe(t.Context(), "peer-eth0", 2*time.Second)
			return err
		})
		return found
	}
	// A busy machine can answer after the end of one probe.
	await := func() []Other {
		t.Helper()
		for end := time.Now().Add(nettest.Timeout); ; {
			if found := probe(); len(found) > 0 || time.Now().After(end) {
				return found
			}
		}
	}
	for _, stop := range []func(*DHCP) error{(*DHCP).Close, func(d *DHCP) error {
		cancel()
		return d.Close() // waits for the end of the socket
	}} {
		d, err := ListenDHCP(ctx, config)
		if err != nil {
			t.Fatal(err)
		}
		if other, err := ListenDHCP(ctx, config); !errors.Is(err, syscall.EADDRINUSE) {
			t.Errorf("second server: got %v, %v, want %v", other, err, syscall.EADDRINUSE)
		}
		want := []Other{{Server: netip.MustParseAddr("192.0.2.1"), Addresses: true, BootFile: "file"}}
		if diff := cmp.Diff(want, await(), cmpopts.EquateComparable(netip.Addr{})); diff != "" {
			t.Errorf("servers (-want +got):\n%s", diff)
		}
		if got := d.Leases(); len(got) != 1 || got[0].Address != address {
			t.Errorf("got leases %v, want one of %s", got, address)
		}
		if err := stop(d); err != nil {
			t.Error(err)
		}
	}
	if found := probe(); len(found) > 0 {
		t.Errorf("got servers %v after their end, want none", found)
	}
}

// A client with an address gets its replies there. A refusal is a broadcast. A request without a reply is logged.
func TestRepliesOnCable(t *testing.T) {
	l, inside := nettest.New(t)
	if !inside {
		return
	}
	l.Cable("eth0", "192.0.2.2/24")
	nettest.Configure(t, "eth0", "192.0.2.1/24")
	l.Active("eth0")
	address := netip.MustParseAddr("192.0.2.10")
	d, err := ListenDHCP(t.Context(), DHCPConfig{
		Log: slog.New(slog.NewTextHandler(&l.Log, nil)), Interface: "eth0", First: address, Last: address,
		Address: netip.MustParsePrefix("192.0.2.1/24"),
	})
	if err != nil {
		t.Fatal(err)
	}
	var conn net.PacketConn
	l.Peer(func() (err error) {
		conn, err = net.ListenPacket("udp4", ":68")
		return err
	})
	defer conn.Close()
	send := func(m *dhcpv4.DHCPv4) {
		t.Helper()
		if _, err := conn.WriteTo(m.ToBytes(), &net.UDPAddr{IP: net.IPv4(192, 0, 2, 255), Port: 67}); err != nil {
			t.Fatal(err)
		}
	}
	receive := func() *dhcpv4.DHCPv4 {
		t.Helper()
		if err := conn.SetReadDeadline(time.Now().Add(nettest.Timeout)); err != nil {
			t.Fatal(err)
		}
		buffer := make([]byte, maxMessage)
		n, _, err := conn.ReadFrom(buffer)
		if err != nil {
			t.Fatal(err)
		}
		m, err := dhcpv4.FromBytes(buffer[:n])
		if err != nil {
			t.Fatal(err)
		}
		return m
	}
	if _, err := conn.WriteTo([]byte("garbage"), &net.UDPAddr{IP: net.IPv4(192, 0, 2, 255), Port: 67}); err != nil {
		t.Fatal(err)
	}
	send(message(t, machine, dhcpv4.MessageTypeDiscover))
	if got := receive(); got.MessageType() != dhcpv4.MessageTypeOffer {
		t.Errorf("got %v, want an offer", got)
	}
	send(message(t, another, dhcpv4.MessageTypeDiscover))
	l.WaitLog(`dhcp message not answered.*mac=` + another.String() + `.*no free address`)
	send(message(t, machine, dhcpv4.MessageTypeRequest,
		dhcpv4.WithOption(dhcpv4.OptRequestedIPAddress(net.IPv4(192, 0, 2, 11)))))
	if got := receive(); got.MessageType() != dhcpv4.MessageTypeNak {
		t.Errorf("got %v, want a refusal", got)
	}
	l.WaitLog(`msg=dhcp .*mac=` + machine.String() + `.*message=DISCOVER answer=OFFER address=192.0.2.10`)
	if err := d.Close(); err != nil {
		t.Error(err)
	}
}

// An advertiser tells a machine that solicits a router that there is none.
func TestAdvertiserOnCable(t *testing.T) {
	l, inside := nettest.New(t)
	if !inside {
		return
	}
	l.Cable("eth0", "192.0.2.2/24")
	l.Peer(func() error { // only the test solicits routers
		return os.WriteFile("/proc/sys/net/ipv6/conf/peer-eth0/router_solicitations", []byte("0"), 0)
	})
	for _, address := range []string{"fe80::2/64", "fe80::3/64", "fe80::4/64"} {
		l.AddPeerAddress("eth0", address)
	}
	nettest.Configure(t, "eth0", "fe80::1/64")
	a, err := ListenAdvertiser(t.Context(),
		slog.New(slog.NewTextHandler(&l.Log, &slog.HandlerOptions{Level: slog.LevelDebug})), "eth0")
	if err != nil {
		t.Fatal(err)
	}
	first := newSolicitor(t, l, "fe80::2", 255)
	for deadline := time.Now().Add(nettest.Timeout); ; { // packets get lost until the kernel has activated the link
		first.solicit()
		if got := first.advertisement(); got != nil {
			if len(got) != 16 || got[6] != 0 || got[7] != 0 {
				t.Errorf("got advertisement %v, want the lifetime 0 and no prefixes", got)
			}
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("got no advertisement")
		}
	}
	newSolicitor(t, l, "fe80::3", 64).solicit() // could be in another network
	newSolicitor(t, l, "fe80::4", 255).solicit()
	const line = `msg="router advertisement" interface=eth0 client=fe80::`
	l.WaitLog(line + "4") // solicitations are handled in turn
	if err := a.Close(); err != nil {
		t.Error(err)
	}
	if found, _ := l.Log.Matches(line + "2"); !found {
		t.Error("the first advertisement was not logged")
	}
	if found, _ := l.Log.Matches(line + "3"); found {
		t.Error("a solicitation of another network was answered")
	}
	if _, err := ListenAdvertiser(t.Context(), nil, "absent"); err == nil {
		t.Error("absent interface: got no error")
	}
}

// solicitor is a machine at the peer's end of the cable that solicits routers.
type solicitor struct {
	t    *testing.T
	link *net.Interface
	conn *ipv6.PacketConn
}

// newSolicitor returns a machine with an address of the peer. Its packets have a hop limit.
func newSolicitor(t *testing.T, l *nettest.Lab, address string, hops int) *solicitor {
	t.Helper()
	s := &solicitor{t: t}
	var raw net.PacketConn
	l.Peer(func() (err error) {
		if s.link, err = net.InterfaceByName("peer-eth0"); err != nil {
			return err
		}
		raw, err = net.ListenPacket("ip6:ipv6-icmp", address+"%peer-eth0")
		return err
	})
	t.Cleanup(func() { _ = raw.Close() })
	s.conn = ipv6.NewPacketConn(raw)
	if err := s.conn.SetMulticastHopLimit(hops); err != nil {
		t.Fatal(err)
	}
	return s
}

// solicit solicits routers.
func (s *solicitor) solicit() {
	s.t.Helper()
	solicitation := []byte{byte(ipv6.ICMPTypeRouterSolicitation), 0, 0, 0, 0, 0, 0, 0}
	routers := &net.IPAddr{IP: net.IPv6linklocalallrouters}
	if _, err := s.conn.WriteTo(solicitation, &ipv6.ControlMessage{IfIndex: s.link.Index}, routers); err != nil {
		s.t.Fatal(err)
	}
}

// advertisement waits shortly for a router advertisement. It returns nil if none arrives.
func (s *solicitor) advertisement() []byte {
	s.t.Helper()
	if err := s.conn.SetReadDeadline(time.Now().Add(100 * time.Millisecond)); err != nil {
		s.t.Fatal(err)
	}
	buffer := make([]byte, maxMessage)
	for {
		n, _, _, err := s.conn.ReadFrom(buffer)
		if errors.Is(err, os.ErrDeadlineExceeded) {
			return nil
		}
		if err != nil {
			s.t.Fatal(err)
		}
		if n > 0 && buffer[0] == byte(ipv6.ICMPTypeRouterAdvertisement) {
			return buffer[:n]
		}
	}
}
