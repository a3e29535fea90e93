package server

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/netip"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/insomniacslk/dhcp/dhcpv4"
	"golang.org/x/net/ipv6"

	"ironroot/internal/testenv/nettest"
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
		Boot: &Boot{File: func(Client) string { return "file" }},
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
		if diff := cmp.Diff(want, probe(), cmpopts.EquateComparable(netip.Addr{})); diff != "" {
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

// A client with an address gets its replies there. A refusal is a broadcast. What has no reply is logged.
func TestRepliesOnCable(t *testing.T) {
	l, inside := nettest.New(t)
	if !inside {
		return
	}
	l.Cable("eth0", "192.0.2.2/24")
	nettest.Configure(t, "eth0", "192.0.2.1/24")
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
	l.AddPeerAddress("eth0", "fe80::2/64")
	nettest.Configure(t, "eth0", "fe80::1/64")
	a, err := ListenAdvertiser(t.Context(),
		slog.New(slog.NewTextHandler(&l.Log, &slog.HandlerOptions{Level: slog.LevelDebug})), "eth0")
	if err != nil {
		t.Fatal(err)
	}
	var raw net.PacketConn
	var link *net.Interface
	l.Peer(func() (err error) {
		if link, err = net.InterfaceByName("peer-eth0"); err != nil {
			return err
		}
		raw, err = net.ListenPacket("ip6:ipv6-icmp", "fe80::2%peer-eth0")
		return err
	})
	defer raw.Close()
	conn := ipv6.NewPacketConn(raw)
	solicitation := []byte{byte(ipv6.ICMPTypeRouterSolicitation), 0, 0, 0, 0, 0, 0, 0}
	routers := &net.IPAddr{IP: net.IPv6linklocalallrouters}
	for _, hops := range []int{64, 255} { // the first one could come from another network
		if err := conn.SetMulticastHopLimit(hops); err != nil {
			t.Fatal(err)
		}
		if _, err := conn.WriteTo(solicitation, &ipv6.ControlMessage{IfIndex: link.Index}, routers); err != nil {
			t.Fatal(err)
		}
	}
	if err := conn.SetReadDeadline(time.Now().Add(nettest.Timeout)); err != nil {
		t.Fatal(err)
	}
	buffer := make([]byte, maxMessage)
	for {
		n, _, _, err := conn.ReadFrom(buffer)
		if err != nil {
			t.Fatal(err)
		}
		if n == 0 || buffer[0] != byte(ipv6.ICMPTypeRouterAdvertisement) {
			continue
		}
		if n != 16 || buffer[6] != 0 || buffer[7] != 0 {
			t.Errorf("got advertisement %v, want the lifetime 0 and no prefixes", buffer[:n])
		}
		break
	}
	if err := a.Close(); err != nil {
		t.Error(err)
	}
	const line = `(?s)msg="router advertisement" interface=eth0 client=fe80::2.*`
	if found, _ := l.Log.Matches(line); !found {
		t.Error("the advertisement was not logged")
	}
	if found, _ := l.Log.Matches(line + line); found {
		t.Error("a solicitation of another network was answered")
	}
	if _, err := ListenAdvertiser(t.Context(), nil, "absent"); err == nil {
		t.Error("absent interface: got no error")
	}
}
