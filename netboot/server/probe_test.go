package server

import (
	"net"
	"net/netip"
	"testing"

	"github.com/insomniacslk/dhcp/dhcpv4"
)

// offer returns the message of a server in reply to a transaction of zeros.
func offer(t testing.TB, kind dhcpv4.MessageType, options ...dhcpv4.Modifier) []byte {
	t.Helper()
	m, err := dhcpv4.New(append([]dhcpv4.Modifier{
		dhcpv4.WithMessageType(kind), dhcpv4.WithTransactionID(dhcpv4.TransactionID{}),
		func(m *dhcpv4.DHCPv4) { m.OpCode = dhcpv4.OpcodeBootReply },
	}, options...)...)
	if err != nil {
		t.Fatal(err)
	}
	return m.ToBytes()
}

// A server is one that offers an address, also without naming itself, or a boot file.
func TestOffered(t *testing.T) {
	server := dhcpv4.WithOption(dhcpv4.OptServerIdentifier(net.IPv4(192, 0, 2, 2)))
	address := dhcpv4.WithYourIP(net.IPv4(192, 0, 2, 100))
	own := netip.MustParseAddr("192.0.2.2")
	for name, c := range map[string]struct {
		message []byte
		want    Other
		ok      bool
	}{
		"offer": {offer(t, dhcpv4.MessageTypeOffer, server, address), Other{Server: own, Addresses: true}, true},
		"proxy": {
			offer(t, dhcpv4.MessageTypeOffer, server, dhcpv4.WithOption(dhcpv4.OptBootFileName("file"))),
			Other{Server: own, BootFile: "file"},
			true,
		},
		"boot file in the header": {
			offer(t, dhcpv4.MessageTypeOffer, server, func(m *dhcpv4.DHCPv4) { m.BootFileName = "file" }),
			Other{Server: own, BootFile: "file"},
			true,
		},
		"BOOTP": {
			offer(t, dhcpv4.MessageTypeNone, address, func(m *dhcpv4.DHCPv4) { m.Options = dhcpv4.Options{} }),
			Other{Addresses: true},
			true,
		},
		"refusal": {offer(t, dhcpv4.MessageTypeNak, server), Other{}, false},
		"other transaction": {
			offer(t, dhcpv4.MessageTypeOffer, dhcpv4.WithTransactionID(dhcpv4.TransactionID{1})), Other{}, false,
		},
		"request": {
			offer(t, dhcpv4.MessageTypeOffer, func(m *dhcpv4.DHCPv4) { m.OpCode = dhcpv4.OpcodeBootRequest }),
			Other{},
			false,
		},
		"garbage": {[]byte("garbage"), Other{}, false},
	} {
		if got, ok := offered(c.message, dhcpv4.TransactionID{}); got != c.want || ok != c.ok {
			t.Errorf("%s: got %+v and %t, want %+v and %t", name, got, ok, c.want, c.ok)
		}
	}
}

// The number of servers is limited, because each packet can name another one.
func TestMerge(t *testing.T) {
	var found []Other
	for i := range byte(2 * maxOthers) {
		server := netip.AddrFrom4([4]byte{192, 0, 2, i})
		found = merge(found, Other{Server: server})
		found = merge(found, Other{Server: server, BootFile: "last"})
	}
	if len(found) != maxOthers || found[0].BootFile != "last" {
		t.Errorf("got %d servers, the first %+v, want %d and the last message", len(found), found[0], maxOthers)
	}
}

func FuzzOffered(f *testing.F) {
	f.Add(offer(f, dhcpv4.MessageTypeOffer, dhcpv4.WithYourIP(net.IPv4(192, 0, 2, 100))))
	f.Add(offer(f, dhcpv4.MessageTypeOffer, dhcpv4.WithOption(dhcpv4.OptBootFileName("file"))))
	f.Fuzz(func(t *testing.T, message []byte) {
		if other, ok := offered(message, dhcpv4.TransactionID{}); !ok && other != (Other{}) {
			t.Errorf("got %+v of no offer", other)
		}
	})
}
