package netboot

import (
	"bytes"
	"context"
	"encoding/hex"
	"log/slog"
	"net"
	"net/netip"
	"strings"
	"testing"

	"github.com/insomniacslk/dhcp/dhcpv4"
	"github.com/insomniacslk/dhcp/dhcpv4/nclient4"
	"github.com/vishvananda/netlink"
)

// infiniBandPort is a ConnectX-4's address: the GUID is 7c:fe:90:03:00:29:26:52.
func infiniBandPort(t *testing.T) net.HardwareAddr {
	t.Helper()
	mac, err := net.ParseMAC("a0:00:02:20:fe:80:00:00:00:00:00:00:7c:fe:90:03:00:29:26:52")
	if err != nil {
		t.Fatal(err)
	}
	return mac
}

// The whole message of an InfiniBand port, and the same of an Ethernet card, written down by RFC 2131, 2132 and 4390.
//
// Parity: F7
func TestInfiniBandMessage(t *testing.T) {
	card := net.HardwareAddr{0x52, 0x54, 0, 0x12, 0x34, 0x56}
	for name, c := range map[string]struct {
		mac             net.HardwareAddr
		head, id, flags string
	}{
		"InfiniBand": {infiniBandPort(t), "01 20 00 00", "3d 14 ff 00 00 00 00 00 02 00 00 02 c9 00 7c fe 90 03 00 29 26 52", "80 00"},
		"Ethernet":   {card, "01 01 06 00", "3d 07 01 52 54 00 12 34 56", "00 00"},
	} {
		t.Run(name, func(t *testing.T) {
			m, err := newMessage(c.mac, dhcpv4.MessageTypeDiscover, dhcpv4.WithTransactionID(dhcpv4.TransactionID{1, 2, 3, 4}))
			if err != nil {
				t.Fatal(err)
			}
			chaddr := make([]byte, 16)
			if name == "Ethernet" {
				copy(chaddr, card)
			}
			want := slicesOf(t, c.head+" 01 02 03 04 00 00 "+c.flags, strings.Repeat("00", 16), hex.EncodeToString(chaddr),
				strings.Repeat("00", 64+128), "63 82 53 63", // names, and the magic cookie
				"35 01 01",                                  // discover
				"37 0b 01 79 03 06 0c 0f 77 1a 2a 3a 3b",    // what is asked for
				"39 02 05 dc",                               // 1500 bytes
				"3c 08 69 72 6f 6e 72 6f 6f 74", c.id, "ff") // "ironroot"
			got := m.ToBytes()
			if !bytes.Equal(bytes.TrimRight(got, "\x00"), want) {
				t.Errorf("message:\ngot  %x\nwant %x", bytes.TrimRight(got, "\x00"), want)
			}
		})
	}
	if got, want := linkLayerID(infiniBandPort(t)), slicesOf(t, "00 20 7c fe 90 03 00 29 26 52"); !bytes.Equal(got, want) {
		t.Errorf("DHCPv6: got %x, want %x", got, want)
	}
}

func slicesOf(t *testing.T, parts ...string) []byte {
	t.Helper()
	data, err := hex.DecodeString(strings.ReplaceAll(strings.Join(parts, ""), " ", ""))
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// A server that knows its clients by their identifiers gives the port its address. No kernel makes up a link that has
// addresses of InfiniBand's length: here the link is Ethernet, and the client believes otherwise.
func TestInfiniBandLease(t *testing.T) {
	l, inside := inNamespace(t, "dnsmasq")
	if !inside {
		return
	}
	l.cable("ib0", "192.0.2.1/24")
	l.dnsmasq("--interface=peer-ib0", "--dhcp-range=192.0.2.10,192.0.2.20,1h",
		"--dhcp-host=id:ff:00:00:00:00:00:02:00:00:02:c9:00:7c:fe:90:03:00:29:26:52,192.0.2.77")
	kernel, err := netlink.LinkByName("ib0")
	if err == nil {
		err = netlink.LinkSetUp(kernel)
	}
	if err != nil {
		t.Fatal(err)
	}
	n := &Network{timing: quick, log: slog.New(slog.DiscardHandler), changed: make(chan struct{})}
	port := newLink(n, kernel.Attrs().Index)
	port.state.Name, port.state.Index, port.state.MAC = "ib0", kernel.Attrs().Index, infiniBandPort(t)
	ctx, cancel := context.WithTimeout(l.ctx, patience)
	defer cancel()
	lease := port.acquire(ctx)
	if lease == nil || lease.Address != netip.MustParsePrefix("192.0.2.77/24") {
		t.Fatalf("got %+v, want the address for the port's client identifier", lease)
	}
	// The kernel takes an address longer than its own structure has room for.
	conn, err := broadcastInfiniBand(port.index, dhcpv4.ClientPort)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	raw := conn.(*nclient4.BroadcastRawUDPConn).PacketConn.(*infiniBandConn)
	raw.everybody = append(raw.everybody, make([]byte, infiniBandLen-len(raw.everybody))...)
	if _, err := raw.WriteTo([]byte("nonsense"), nil); err != nil {
		t.Error(err)
	}
}
