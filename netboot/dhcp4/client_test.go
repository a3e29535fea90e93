package dhcp4

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/insomniacslk/dhcp/dhcpv4"

	"ironroot/internal/test/testenv"
	"ironroot/internal/test/testenv/nettest"
	"ironroot/netboot/arp"
	"ironroot/netboot/dhcp"
	"ironroot/netboot/dhcp/dhcptest"
)

// recorder is a handler that records its calls.
type recorder struct{ dhcptest.Handler }

func (r *recorder) Use(lease *Lease, renewed bool) error {
	r.Addf("use %v, renewed: %v", lease.Address, renewed)
	return nil
}

// fixed is a link.
type fixed struct{ link *net.Interface }

func (f fixed) Interface() *net.Interface { return f.link }

// server opens the client's sockets.
type server struct {
	*dhcptest.Server[*dhcpv4.DHCPv4]
	conflict bool // each address belongs to another machine, too
}

// protocol is the protocol of the server.
type protocol struct{}

func (protocol) Parse(raw []byte) (*dhcpv4.DHCPv4, error) { return dhcpv4.FromBytes(raw) }

func (protocol) Describe(m *dhcpv4.DHCPv4, via string, to net.Addr) string {
	return fmt.Sprintf("%v %s to %v", m.MessageType(), via, to)
}

func (s server) detect(_ context.Context, _ *net.Interface, address netip.Addr, _ time.Duration) error {
	if s.conflict {
		return &arp.ConflictError{Address: address, Owner: net.HardwareAddr{2, 0, 0, 0, 0, 9}}
	}
	return nil
}

func newServer(answer func(m *dhcpv4.DHCPv4) *dhcpv4.DHCPv4) server {
	return server{Server: dhcptest.NewServer(protocol{}, answer)}
}

func (s server) broadcast(*net.Interface) (net.PacketConn, error) {
	return s.Open("broadcast"), nil
}

func (s server) unicast(_ *net.Interface, source netip.Addr) (net.PacketConn, error) {
	return s.Open("from " + source.String()), nil
}

// grant answers as a server that grants an address for an hour.
func grant(address string) func(*dhcpv4.DHCPv4) *dhcpv4.DHCPv4 {
	return func(m *dhcpv4.DHCPv4) *dhcpv4.DHCPv4 {
		kind := dhcpv4.MessageTypeAck
		switch m.MessageType() {
		case dhcpv4.MessageTypeDiscover:
			kind = dhcpv4.MessageTypeOffer
		case dhcpv4.MessageTypeRequest:
		default:
			return nil
		}
		answer, err := dhcpv4.NewReplyFromRequest(m, dhcpv4.WithMessageType(kind), dhcpv4.WithLeaseTime(3600),
			dhcpv4.WithYourIP(addr(address).AsSlice()), dhcpv4.WithNetmask(net.CIDRMask(24, 32)),
			dhcpv4.WithOption(dhcpv4.OptServerIdentifier(net.IPv4(192, 0, 2, 1))))
		if err != nil {
			panic(err)
		}
		return answer
	}
}

// newTest returns a client whose sockets lead to the server. No address has a conflict.
func newTest(s server) (c *Client, handler *recorder, carrier chan struct{}) {
	handler, carrier = &recorder{}, make(chan struct{}, 1)
	nic := &net.Interface{Index: 2, Name: "eth0", HardwareAddr: net.HardwareAddr{2, 0, 0, 0, 0, 1}}
	c = New(Config{
		Link: fixed{nic}, Carrier: carrier, Timing: dhcp.DefaultTiming,
		Log: slog.New(slog.DiscardHandler), Handler: handler,
	})
	c.sockets = s
	return c, handler, carrier
}

// A lease is obtained, renewed at T1 from the leased address, rebound at T2, and lost when it expires.
func TestRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(grant("192.0.2.10"))
		c, handler, _ := newTest(s)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go c.Run(ctx)
		time.Sleep(31 * time.Minute)
		synctest.Wait()
		s.Received.Check(t, "renewal: messages", "DISCOVER broadcast to 255.255.255.255:67",
			"REQUEST broadcast to 255.255.255.255:67", "REQUEST from 192.0.2.10 to 192.0.2.1:67")
		handler.Check(t, "renewal: events", "use 192.0.2.10/24, renewed: false", "use 192.0.2.10/24, renewed: true")
		s.SetAnswer(func(*dhcpv4.DHCPv4) *dhcpv4.DHCPv4 { return nil })
		time.Sleep(28 * time.Minute)
		synctest.Wait()
		s.Received.Check(t, "before T1: messages")
		handler.Check(t, "before T1: events")
		time.Sleep(30 * time.Minute)
		sent, calls := s.Received.Take(), handler.Take()
		renewal, rebinding := "REQUEST from 192.0.2.10 to 192.0.2.1:67", "REQUEST from 192.0.2.10 to 255.255.255.255:67"
		if !slices.Contains(sent, renewal) || !slices.Contains(sent, rebinding) {
			t.Errorf("silent server: got messages %q, want renewals and rebindings", sent)
		}
		if slices.Contains(calls, "drop") {
			t.Errorf("silent server: got events %q before the lease expired", calls)
		}
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		calls = handler.Take()
		lost := slices.Index(calls, "lease lost: lease expired")
		if lost < 0 || lost+1 >= len(calls) || calls[lost+1] != "drop" {
			t.Errorf("expiry: got events %q, want the lease lost and dropped", calls)
		}
	})
}

// logged records the lines of a log among the events of a handler.
type logged struct{ *recorder }

func (l logged) Write(line []byte) (int, error) {
	l.Addf("log: %s", line)
	return len(line), nil
}

// The log names a lease when the handler has configured it.
func TestLeaseLogged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, handler, _ := newTest(newServer(grant("192.0.2.10")))
		c.Log = slog.New(slog.NewTextHandler(logged{handler}, nil))
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go c.Run(ctx)
		time.Sleep(time.Minute)
		synctest.Wait()
		got := handler.Take()
		if len(got) != 2 || got[0] != "use 192.0.2.10/24, renewed: false" ||
			!strings.Contains(got[1], `msg="lease obtained" interface=eth0 address=192.0.2.10/24`) {
			t.Errorf("got events %q, want the use of the lease, then its log line", got)
		}
	})
}

// When the carrier comes back, the server is asked at once; its refusal ends the lease.
func TestCarrierComesBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(grant("192.0.2.10"))
		c, handler, carrier := newTest(s)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go c.Run(ctx)
		time.Sleep(time.Minute)
		carrier <- struct{}{}
		synctest.Wait()
		s.SetAnswer(func(m *dhcpv4.DHCPv4) *dhcpv4.DHCPv4 {
			if m.MessageType() != dhcpv4.MessageTypeRequest || m.ServerIdentifier() != nil {
				return grant("192.0.2.11")(m)
			}
			nak, err := dhcpv4.NewReplyFromRequest(m, dhcpv4.WithMessageType(dhcpv4.MessageTypeNak),
				dhcpv4.WithOption(dhcpv4.OptServerIdentifier(net.IPv4(192, 0, 2, 1))))
			if err != nil {
				panic(err)
			}
			return nak
		})
		carrier <- struct{}{}
		time.Sleep(2 * time.Second)
		synctest.Wait()
		refused := "DHCP server 192.0.2.1 refused the address"
		handler.Check(t, "events", "use 192.0.2.10/24, renewed: false", "use 192.0.2.10/24, renewed: false",
			"rejected: "+refused, "lease lost: "+refused, "drop", "use 192.0.2.11/24, renewed: false")
	})
}

// A client that can have been moved to another network asks at once. If no server confirms its lease, it asks for
// another one, and keeps the old one until then.
func TestMoved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(grant("192.0.2.10"))
		c, handler, _ := newTest(s)
		moved := make(chan struct{}, 1)
		c.Moved = moved
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go c.Run(ctx)
		time.Sleep(time.Minute)
		moved <- struct{}{}
		synctest.Wait()
		handler.Check(t, "same network: events", "use 192.0.2.10/24, renewed: false",
			"use 192.0.2.10/24, renewed: false")
		s.Received.Take()
		s.SetAnswer(func(*dhcpv4.DHCPv4) *dhcpv4.DHCPv4 { return nil })
		moved <- struct{}{}
		time.Sleep(10 * time.Minute)
		sent := s.Received.Take()
		if confirm := slices.Index(sent, "REQUEST broadcast to 255.255.255.255:67"); confirm != 0 ||
			!slices.Contains(sent, "DISCOVER broadcast to 255.255.255.255:67") {
			t.Errorf("no server: got messages %q, want a request, then a search for servers", sent)
		}
		handler.Check(t, "no server: events")
		// The server of the other network ignores requests for addresses of other servers.
		s.SetAnswer(func(m *dhcpv4.DHCPv4) *dhcpv4.DHCPv4 {
			if m.MessageType() == dhcpv4.MessageTypeRequest && m.ServerIdentifier() == nil {
				return nil
			}
			return grant("192.0.2.11")(m)
		})
		moved <- struct{}{}
		time.Sleep(time.Minute)
		synctest.Wait()
		handler.Check(t, "other network: events", "use 192.0.2.11/24, renewed: false")
	})
}

// An address with a conflict is declined twice; then it is used.
func TestConflict(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(grant("192.0.2.10"))
		s.conflict = true
		c, handler, _ := newTest(s)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go c.Run(ctx)
		time.Sleep(25 * time.Minute)
		synctest.Wait()
		declines := 0
		for _, message := range s.Received.Take() {
			if message == "DECLINE broadcast to 255.255.255.255:67" {
				declines++
			}
		}
		lost := "lease lost: address 192.0.2.10 is in use by MAC address 02:00:00:00:00:09"
		use := "use 192.0.2.10/24, renewed: false"
		handler.Check(t, "events", use, lost, "drop", use, lost, "drop", use)
		if declines != 2 {
			t.Errorf("got %d declines, want 2", declines)
		}
	})
}

// A lease that the handler cannot use is dropped, and the client asks again.
func TestUseFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(grant("192.0.2.10"))
		c, handler, _ := newTest(s)
		c.Handler = &failingOnce{recorder: handler}
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go c.Run(ctx)
		time.Sleep(time.Minute)
		synctest.Wait()
		handler.Check(t, "events", "lease lost: no such link", "drop", "use 192.0.2.10/24, renewed: false")
	})
}

type failingOnce struct {
	*recorder
	failed bool
}

func (h *failingOnce) Use(lease *Lease, renewed bool) error {
	if !h.failed {
		h.failed = true
		return errors.New("no such link")
	}
	return h.recorder.Use(lease, renewed)
}

// A DHCP message that causes a panic is dropped; the next one is the answer.
func TestDHCPContainsPanics(t *testing.T) {
	testenv.ExpectPanics(t)
	mac := net.HardwareAddr{2, 0, 0, 0, 0, 1}
	handler := &recorder{}
	c := New(Config{Link: fixed{&net.Interface{HardwareAddr: mac}}, Log: slog.New(panicking{}), Handler: handler})
	request, err := newMessage(mac, dhcpv4.MessageTypeDiscover)
	if err != nil {
		t.Fatal(err)
	}
	answer := grant("192.0.2.10")(request)
	unusable, err := dhcpv4.NewReplyFromRequest(request, dhcpv4.WithMessageType(dhcpv4.MessageTypeOffer))
	if err != nil {
		t.Fatal(err)
	}
	foreign, err := dhcpv4.NewReplyFromRequest(request)
	if err != nil {
		t.Fatal(err)
	}
	foreign.TransactionID[0]++
	send := nettest.Packet
	conn := &nettest.Conn{Reads: []func([]byte) (int, error){
		func([]byte) (int, error) { panic("in the socket") },
		send([]byte("no DHCP message")), send(request.ToBytes()), send(foreign.ToBytes()),
		send(unusable.ToBytes()), send(answer.ToBytes()),
	}}
	got, err := c.receive(conn, exchange{message: request, logged: map[string]bool{}})
	if err != nil || got == nil || !got.YourIPAddr.Equal(answer.YourIPAddr) {
		t.Errorf("got answer %v, want the second offer", got)
	}
	if calls := handler.Take(); len(calls) != 2 || !strings.Contains(calls[1], "in the log") {
		t.Errorf("got events %q, want two rejected answers", calls)
	}
	if got, err := c.receive(conn, exchange{message: request}); got != nil || err != nil {
		t.Errorf("got answer %v and %v of a closed socket, want none", got, err)
	}
}

// A rejected offer is logged once for each server. An offer that arrives during a request is of a slower server: it is
// neither an answer nor rejected.
func TestOffers(t *testing.T) {
	mac := net.HardwareAddr{2, 0, 0, 0, 0, 1}
	message := func(kind dhcpv4.MessageType) *dhcpv4.DHCPv4 {
		t.Helper()
		m, err := newMessage(mac, kind)
		if err != nil {
			t.Fatal(err)
		}
		return m
	}
	discover, request := message(dhcpv4.MessageTypeDiscover), message(dhcpv4.MessageTypeRequest)
	unusable, err := dhcpv4.NewReplyFromRequest(discover, dhcpv4.WithMessageType(dhcpv4.MessageTypeOffer))
	if err != nil {
		t.Fatal(err)
	}
	late, err := dhcpv4.NewReplyFromRequest(request, dhcpv4.WithMessageType(dhcpv4.MessageTypeOffer))
	if err != nil {
		t.Fatal(err)
	}
	var log bytes.Buffer
	handler := &recorder{}
	c := New(Config{
		Link: fixed{&net.Interface{HardwareAddr: mac}}, Log: slog.New(slog.NewTextHandler(&log, nil)), Handler: handler,
	})
	conn := func(messages ...*dhcpv4.DHCPv4) net.PacketConn {
		conn := &nettest.Conn{}
		for _, m := range messages {
			conn.Reads = append(conn.Reads, nettest.Packet(m.ToBytes()))
		}
		return conn
	}
	got, err := c.receive(conn(unusable, unusable), exchange{message: discover, logged: map[string]bool{}})
	if got != nil || err == nil || len(handler.Take()) != 2 || strings.Count(log.String(), "offer rejected") != 1 {
		t.Errorf("got answer %v, %v and log %q, want the offer rejected twice and logged once", got, err, &log)
	}
	got, err = c.receive(conn(late, grant("192.0.2.10")(request)), exchange{message: request})
	if err != nil || got == nil || got.MessageType() != dhcpv4.MessageTypeAck {
		t.Errorf("got answer %v and %v, want the ACK", got, err)
	}
	if calls := handler.Take(); len(calls) > 0 {
		t.Errorf("got events %q, want none for a late offer", calls)
	}
}

// panicking is a log that panics.
type panicking struct{ slog.Handler }

func (panicking) Enabled(context.Context, slog.Level) bool { panic("in the log") }
