package dhcp4

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

	"ironroot/internal/test/testenv/nettest"
	"ironroot/netboot/dhcp"
	"ironroot/netboot/dhcp/dhcptest"
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
		"InfiniBand": {
			infiniBandPort(t), "01 20 00 00",
			"3d 14 ff 00 00 00 00 00 02 00 00 02 c9 00 7c fe 90 03 00 29 26 52", "80 00",
		},
		"Ethernet": {card, "01 01 06 00", "3d 07 01 52 54 00 12 34 56", "00 00"},
	} {
		t.Run(name, func(t *testing.T) {
			m, err := newMessage(c.mac, dhcpv4.MessageTypeDiscover,
				dhcpv4.WithTransactionID(dhcpv4.TransactionID{1, 2, 3, 4}))
			if err != nil {
				t.Fatal(err)
			}
			chaddr := make([]byte, 16)
			if name == "Ethernet" {
				copy(chaddr, card)
			}
			want := fromHex(t, c.head+" 01 02 03 04 00 00 "+c.flags, strings.Repeat("00", 16),
				hex.EncodeToString(chaddr),
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
}

func fromHex(t *testing.T, parts ...string) []byte {
	t.Helper()
	data, err := hex.DecodeString(strings.ReplaceAll(strings.Join(parts, ""), " ", ""))
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// A server that identifies its clients by option 61 grants the port its address. No kernel has virtual links with
// addresses of InfiniBand's length: here the link is Ethernet, and the client is told that it is InfiniBand.
func TestInfiniBandLease(t *testing.T) {
	l, inside := nettest.New(t, "dnsmasq")
	if !inside {
		return
	}
	l.Cable("ib0", "192.0.2.1/24")
	l.Dnsmasq("--interface=peer-ib0", "--dhcp-range=192.0.2.10,192.0.2.20,1h",
		"--dhcp-host=id:ff:00:00:00:00:00:02:00:00:02:c9:00:7c:fe:90:03:00:29:26:52,192.0.2.77")
	port := l.Raise("ib0")
	port.HardwareAddr = infiniBandPort(t)
	c := New(Config{
		Link: fixed{port}, Timing: dhcptest.Quick,
		Log: slog.New(slog.DiscardHandler), Handler: &recorder{},
	})
	ctx, cancel := context.WithTimeout(l.Ctx, nettest.Timeout)
	defer cancel()
	lease, _ := c.acquire(ctx)
	if lease == nil || lease.Address != netip.MustParsePrefix("192.0.2.77/24") {
		t.Fatalf("got %+v, want the address for the port's client identifier", lease)
	}
	// The kernel accepts an address that is longer than its own structure.
	conn, err := broadcastInfiniBand(port.Index, dhcpv4.ClientPort)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	raw := conn.(*nclient4.BroadcastRawUDPConn).PacketConn.(*infiniBandConn)
	raw.broadcast = append(raw.broadcast, make([]byte, dhcp.InfiniBandLen-len(raw.broadcast))...)
	if _, err := raw.WriteTo([]byte("nonsense"), nil); err != nil {
		t.Error(err)
	}
}
