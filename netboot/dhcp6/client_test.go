package dhcp6

import (
	"context"
	"encoding/hex"
	"log/slog"
	"net"
	"net/netip"
	"runtime"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/insomniacslk/dhcp/dhcpv6"
	"github.com/insomniacslk/dhcp/iana"

	"ironroot/internal/test/testenv"
	"ironroot/internal/test/testenv/nettest"
	"ironroot/netboot/dhcp"
	"ironroot/netboot/dhcp/dhcptest"
)

// recorder is a handler that records its calls.
type recorder struct{ dhcptest.Handler }

func (r *recorder) Use(lease *Lease) error {
	r.Addf("use %v", lease.Addresses)
	return nil
}

// protocol is the protocol of the server.
type protocol struct{}

func (protocol) Parse(raw []byte) (*dhcpv6.Message, error) { return dhcpv6.MessageFromBytes(raw) }

func (protocol) Describe(m *dhcpv6.Message, _ string, _ net.Addr) string {
	return m.MessageType.String()
}

// fixed is a link.
type fixed struct{ link *net.Interface }

func (f fixed) Interface() *net.Interface { return f.link }

// sockets leads to the server.
type sockets struct {
	kernelTransport
	server *dhcptest.Server[*dhcpv6.Message]
}

func (s sockets) listen(context.Context, string) (net.PacketConn, error) {
	return s.server.Open(""), nil
}

func newServer(answer func(m *dhcpv6.Message) *dhcpv6.Message) *dhcptest.Server[*dhcpv6.Message] {
	return dhcptest.NewServer(protocol{}, answer)
}

// reply answers a solicitation by an advertisement and other messages by a reply.
func reply(m *dhcpv6.Message, options ...dhcpv6.Option) *dhcpv6.Message {
	answer := &dhcpv6.Message{MessageType: dhcpv6.MessageTypeReply, TransactionID: m.TransactionID}
	if m.MessageType == dhcpv6.MessageTypeSolicit {
		answer.MessageType = dhcpv6.MessageTypeAdvertise
	}
	answer.AddOption(dhcpv6.OptClientID(m.Options.ClientID()))
	answer.AddOption(dhcpv6.OptServerID(serverDUID))
	for _, option := range options {
		answer.AddOption(option)
	}
	return answer
}

var serverDUID = &dhcpv6.DUIDLL{HWType: iana.HWTypeEthernet, LinkLayerAddr: net.HardwareAddr{2, 0, 0, 0, 0, 1}}

// grant answers as a server that grants an address for an hour.
func grant(address string) func(*dhcpv6.Message) *dhcpv6.Message {
	return func(m *dhcpv6.Message) *dhcpv6.Message {
		ia := m.Options.OneIANA()
		if ia == nil {
			return reply(m)
		}
		granted := association(0, 0, address6(address, 40*time.Minute, time.Hour))
		granted.IaId = ia.IaId
		return reply(m, granted)
	}
}

func silence(*dhcpv6.Message) *dhcpv6.Message { return nil }

// newTest returns a client whose sockets lead to the server.
func newTest(
	s *dhcptest.Server[*dhcpv6.Message],
) (c *Client, handler *recorder, carrier, duplicate chan struct{}) {
	handler, carrier, duplicate = &recorder{}, make(chan struct{}, 1), make(chan struct{}, 1)
	nic := &net.Interface{Index: 2, Name: "eth0", HardwareAddr: net.HardwareAddr{0x52, 0x54, 0, 0x12, 0x34, 0x56}}
	c = New(Config{
		Link: fixed{nic}, Carrier: carrier, Duplicate: duplicate,
		Timing: dhcp.DefaultTiming, Log: slog.New(slog.DiscardHandler), Handler: handler,
	})
	c.transport = sockets{server: s}
	return c, handler, carrier, duplicate
}

// A lease is obtained, renewed at T1, rebound at T2, and lost when it expires.
func TestRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(grant("2001:db8::10"))
		c, handler, carrier, _ := newTest(s)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go c.Run(ctx)
		time.Sleep(21 * time.Minute) // T1 is half of the preferred time
		synctest.Wait()
		s.Received.Check(t, "renewal: messages", "SOLICIT", "REQUEST", "RENEW")
		handler.Check(t, "renewal: events", "use [2001:db8::10]", "use [2001:db8::10]")
		carrier <- struct{}{}
		synctest.Wait()
		s.Received.Check(t, "carrier: messages", "CONFIRM")
		s.SetAnswer(silence)
		time.Sleep(58 * time.Minute)
		synctest.Wait()
		sent, calls := s.Received.Take(), handler.Take()
		if !slices.Contains(sent, "RENEW") || !slices.Contains(sent, "REBIND") || slices.Contains(calls, "drop") {
			t.Errorf("silent server: got messages %q and events %q, want renewals and rebindings", sent, calls)
		}
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		calls = handler.Take()
		i := slices.Index(calls, "no DHCPv6 lease: lease expired")
		if i < 0 || i+1 >= len(calls) || calls[i+1] != "drop" {
			t.Errorf("expiry: got events %q, want the lease lost and dropped", calls)
		}
	})
}

// An address that another machine has is declined, and another one requested.
func TestDuplicate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(grant("2001:db8::10"))
		c, handler, _, duplicate := newTest(s)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go c.Run(ctx)
		time.Sleep(time.Second)
		s.SetAnswer(grant("2001:db8::11"))
		duplicate <- struct{}{}
		time.Sleep(time.Minute)
		synctest.Wait()
		s.Received.Check(t, "messages", "SOLICIT", "REQUEST", "DECLINE", "SOLICIT", "REQUEST")
		lost := "no DHCPv6 lease: one of the addresses [2001:db8::10] is in use by another machine"
		handler.Check(t, "events", "use [2001:db8::10]", lost, "drop", "use [2001:db8::11]")
	})
}

// Information is requested again when its refresh time is over, and a lease without addresses is used.
func TestInform(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(grant("2001:db8::10"))
		c, handler, _, _ := newTest(s)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go c.Inform(ctx)
		time.Sleep(25 * time.Hour)
		synctest.Wait()
		s.Received.Check(t, "messages", "INFORMATION-REQUEST", "INFORMATION-REQUEST")
		handler.Check(t, "events", "use []", "use []")
	})
}

// The whole messages, written down by RFC 8415: the client's DUID, 12.3 s, the requested options, a server's DUID or
// rapid commit, and an association with two addresses, without any, or none.
func TestMessages(t *testing.T) {
	const (
		head     = "0001000a00030001525400123456" + "0008000204ce" + "0006000a001700180038001f0020"
		serverID = "0002000a00030001020000000001"
		ia       = "00030044" + "00123456" + "00000000" + "00000000"
		first    = "00050018" + "20010db8000000000000000000000010" + "00000000" + "00000000"
		second   = "00050018" + "20010db8000000000000000000000011" + "00000000" + "00000000"
		binding  = ia + first + second
		emptyIA  = "0003000c" + "00123456" + "00000000" + "00000000"
		commit   = "000e0000"
		transact = "010203"
	)
	c, _, _, _ := newTest(newServer(silence))
	lease := &Lease{Addresses: []netip.Addr{addr("2001:db8::10"), addr("2001:db8::11")}}
	sid := []dhcpv6.Option{dhcpv6.OptServerID(serverDUID)}
	for want, e := range map[string]exchange{
		"01" + transact + head + commit + emptyIA: {
			kind: dhcpv6.MessageTypeSolicit, addresses: &Lease{},
			options: []dhcpv6.Option{&dhcpv6.OptionGeneric{OptionCode: dhcpv6.OptionRapidCommit}},
		},
		"03" + transact + head + serverID + binding: {kind: dhcpv6.MessageTypeRequest, addresses: lease, options: sid},
		"04" + transact + head + binding:            {kind: dhcpv6.MessageTypeConfirm, addresses: lease},
		"05" + transact + head + serverID + binding: {kind: dhcpv6.MessageTypeRenew, addresses: lease, options: sid},
		"06" + transact + head + binding:            {kind: dhcpv6.MessageTypeRebind, addresses: lease},
		"09" + transact + head + serverID + binding: {kind: dhcpv6.MessageTypeDecline, addresses: lease, options: sid},
		"0b" + transact + head:                      {kind: dhcpv6.MessageTypeInformationRequest},
	} {
		t.Run(e.kind.String(), func(t *testing.T) {
			got := hex.EncodeToString(c.message(e, 0x030201, 12300*time.Millisecond).ToBytes())
			if got != want {
				t.Errorf("message:\ngot  %s\nwant %s", got, want)
			}
		})
	}
	long := c.message(exchange{kind: dhcpv6.MessageTypeSolicit}, 0, 24*time.Hour)
	if got, want := long.Options.ElapsedTime(), 65535*10*time.Millisecond; got != want {
		t.Errorf("elapsed time after a day: got %v, want %v", got, want)
	}
}

// A malformed option that the client does not use, and a malformed list of name servers, do not cost the lease.
func TestMalformedOptions(t *testing.T) {
	m := answer(association(0, 0, address6("2001:db8::10", time.Hour, time.Hour)),
		dhcpv6.WithOption(&dhcpv6.OptionGeneric{OptionCode: dhcpv6.OptionVendorOpts, OptionData: []byte{1}}),
		dhcpv6.WithOption(&dhcpv6.OptionGeneric{
			OptionCode: dhcpv6.OptionDNSRecursiveNameServer, OptionData: []byte{1, 2, 3},
		}))
	parsed, err := parseMessage(m.ToBytes())
	if err != nil {
		t.Fatal(err)
	}
	lease, _, err := parseLease(parsed, [4]byte{1}, true, time.Now(), 0)
	if err != nil || len(lease.Addresses) != 1 || len(lease.DNS) != 0 {
		t.Errorf("got %+v, %v, want the address alone", lease, err)
	}
}

// Options that are nested as deep as an answer allows are parsed with little memory.
func TestNestedOptions(t *testing.T) {
	var nested []byte
	const header = 16         // of an association: code, length, IAID, T1, T2
	const maxParsed = 8 << 20 // bytes; 2.4 MB were measured, and 145 MB for an answer of 64 KiB
	for len(nested)+header < maxMessageBytes-4 {
		size := len(nested) + 12
		nested = append([]byte{0, 3, byte(size >> 8), byte(size), 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0}, nested...)
	}
	raw := append([]byte{7, 1, 2, 3}, nested...)
	const runs = 10
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	allocated := testing.AllocsPerRun(runs-1, func() { // it calls the function once more
		if _, err := parseMessage(raw); err != nil {
			t.Error(err)
		}
	})
	runtime.ReadMemStats(&after)
	if allocated > 100*maxMessageBytes/header {
		t.Errorf("got %v allocations", allocated)
	}
	if size := (after.TotalAlloc - before.TotalAlloc) / runs; size > maxParsed {
		t.Errorf("got %d bytes for a message of %d, want at most %d", size, len(raw), maxParsed)
	}
}

// faultyParser panics at the first message.
type faultyParser struct {
	kernelTransport
	parsed int
}

func (f *faultyParser) parse(raw []byte) (*dhcpv6.Message, error) {
	if f.parsed++; f.parsed == 1 {
		panic("in the parser")
	}
	return parseMessage(raw)
}

// A message that causes a panic is dropped; the next one is the answer.
func TestReceiveContainsPanics(t *testing.T) {
	testenv.ExpectPanics(t)
	c, _, _, _ := newTest(newServer(silence))
	parser := &faultyParser{}
	c.transport = parser
	e := exchange{kind: dhcpv6.MessageTypeInformationRequest}
	request := c.message(e, 7, 0)
	read := nettest.Packet(reply(request).ToBytes())
	conn := &nettest.Conn{Reads: []func([]byte) (int, error){read, read}}
	ctx, cancel := context.WithTimeout(t.Context(), nettest.Timeout)
	defer cancel()
	lease, err := c.receive(ctx, conn, "eth0", e, request, time.Now())
	if err != nil || lease == nil || parser.parsed != 2 {
		t.Errorf("got %+v and %v after %d messages, want the answer of the second one", lease, err, parser.parsed)
	}
}
