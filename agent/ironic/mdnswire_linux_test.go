package ironic

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/net/dns/dnsmessage"
	"golang.org/x/net/ipv4"
	"golang.org/x/net/ipv6"

	"ironroot/internal/test/testenv"
	"ironroot/internal/test/testenv/nettest"
)

// ownNetwork puts this test's thread into a network namespace with a link "wire" that has an IPv4 address and no IPv6.
func ownNetwork(t *testing.T, more ...string) {
	t.Helper()
	testenv.Programs(t, "ip")
	nettest.EnterNamespace(t)
	for _, args := range append([]string{
		"link add wire type veth peer name cable", "link set wire addrgenmode none", "link set cable addrgenmode none",
		"link set cable up multicast off", "link set wire multicast on up", "link set lo up",
		"address add 192.0.2.1/24 dev wire",
	}, more...) {
		testenv.Run(t, "ip", strings.Fields(args)...)
	}
}

// responder receives the queries on a link. It answers them from a given number on, counted from 1.
type responder struct {
	ids  []uint16 // of the questions
	hops []int    // their TTL or hop limit
}

// respond answers queries until the connection is closed.
func (r *responder) respond(t *testing.T, network string, from int) {
	t.Helper()
	link, err := net.InterfaceByName("wire")
	if err != nil {
		t.Fatal(err)
	}
	group := map[string]string{"udp4": "224.0.0.251", "udp6": "ff02::fb"}[network]
	conn, err := net.ListenMulticastUDP(network, link, &net.UDPAddr{IP: net.ParseIP(group), Port: mdnsPort})
	if err != nil {
		t.Fatal(err)
	}
	var read func([]byte) (n, hops int, sender net.Addr, err error)
	if network == "udp4" {
		p := ipv4.NewPacketConn(conn)
		err = p.SetControlMessage(ipv4.FlagTTL, true)
		read = func(b []byte) (int, int, net.Addr, error) {
			n, control, sender, err := p.ReadFrom(b)
			if err != nil {
				return 0, 0, nil, err
			}
			return n, control.TTL, sender, nil
		}
	} else {
		p := ipv6.NewPacketConn(conn)
		err = p.SetControlMessage(ipv6.FlagHopLimit, true)
		read = func(b []byte) (int, int, net.Addr, error) {
			n, control, sender, err := p.ReadFrom(b)
			if err != nil {
				return 0, 0, nil, err
			}
			return n, control.HopLimit, sender, nil
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for buffer := make([]byte, mdnsMaxPacket); ; {
			n, hops, sender, err := read(buffer)
			if err != nil {
				return
			}
			var p dnsmessage.Parser
			header, err := p.Start(buffer[:n])
			if err != nil {
				t.Errorf("question: %v", err)
				continue
			}
			r.ids, r.hops = append(r.ids, header.ID), append(r.hops, hops)
			if len(r.ids) < from {
				continue
			}
			srv := target("ironic.example.")
			txt := record(instance, dnsmessage.TypeTXT, &dnsmessage.TXTResource{TXT: []string{"path=/"}})
			if _, err := conn.WriteTo(packet(t, header.ID, []dnsmessage.Resource{srv, txt}), sender); err != nil {
				t.Errorf("answer: %v", err)
			}
		}
	}()
	t.Cleanup(func() {
		_ = conn.Close()
		<-done
	})
}

// target is the SRV record of the service.
func target(host string) dnsmessage.Resource {
	return record(instance, dnsmessage.TypeSRV,
		&dnsmessage.SRVResource{Port: 6385, Target: dnsmessage.MustNewName(host)})
}

func never() <-chan struct{} { return nil }

// A lost query is repeated with the same id on the same socket. Queries have TTL 255, and their sockets are closed at
// the end.
func TestQuestionsAreRepeated(t *testing.T) {
	ownNetwork(t)
	var r responder
	r.respond(t, "udp4", 2)
	sockets := func() int {
		t.Helper()
		list, err := os.ReadFile("/proc/thread-self/net/udp")
		if err != nil {
			t.Fatal(err)
		}
		return strings.Count(string(list), "\n")
	}
	before := sockets()
	s, err := askService(t.Context(), time.Minute, instance, nil, never)
	if err != nil || s.host != "ironic.example." || s.port != 6385 {
		t.Fatalf("got %+v, %v, want the service", s, err)
	}
	if got := sockets(); got != before {
		t.Errorf("got %d sockets after the answer, want %d as before", got-1, before-1)
	}
	if len(r.ids) < 2 || r.ids[0] != r.ids[1] || r.hops[0] != 255 {
		t.Errorf("got questions %v with TTL %v, want one repeated with TTL 255", r.ids, r.hops)
	}
}

// A responder with only IPv6 is found, too.
func TestQuestionsByIPv6(t *testing.T) {
	ownNetwork(t, "address flush dev wire", "address add fe80::1/64 dev wire nodad")
	var r responder
	r.respond(t, "udp6", 1)
	s, err := askService(t.Context(), time.Minute, instance, []string{"fe80::1"}, never)
	if err != nil || s.host != "ironic.example." {
		t.Fatalf("got %+v, %v, want the service", s, err)
	}
	if r.hops[0] != 255 {
		t.Errorf("got hop limits %v, want 255", r.hops)
	}
}

// The error of a search contains the number of queries, and each failure to send one only once.
func TestNoAnswer(t *testing.T) {
	ownNetwork(t)
	_, err := askService(t.Context(), mdnsRepeatInterval+mdnsRepeatInterval/2, instance, nil, never)
	if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "no response to 1 queries") ||
		strings.Count(err.Error(), "wire, udp6: ") != 1 {
		t.Errorf("got %v, want one question, and the failure of the other", err)
	}
}

// Queries are sent on links that are up and support multicast, and that have one of the configured addresses, if any.
func TestMDNSLinks(t *testing.T) {
	ownNetwork(t)
	for addresses, want := range map[string]string{
		"": "wire", "192.0.2.1": "wire", "192.0.2.9 192.0.2.1": "wire", "192.0.2.9": "", "127.0.0.1": "",
	} {
		links, err := mdnsLinks(strings.Fields(addresses))
		if err != nil {
			t.Fatal(err)
		}
		var names []string
		for _, link := range links {
			names = append(names, link.Name)
		}
		if got := strings.Join(names, " "); got != want {
			t.Errorf("addresses %q: got links %q, want %q", addresses, got, want)
		}
	}
	if address, err := interfaceAddress("cable"); err == nil || !strings.Contains(err.Error(), "cable: no address") {
		t.Errorf("link without address: got %v, %v, want an error", address, err)
	}
}

// A query on a link that no longer exists is an error.
func TestQuestionsOnAMissingLink(t *testing.T) {
	for _, network := range []string{"udp4", "udp6"} {
		if _, _, err := openMDNS(t.Context(), net.Interface{Index: 1 << 30, Name: "gone"}, network); err == nil {
			t.Errorf("%s: got a socket for a link that does not exist, want an error", network)
		}
	}
}

// A listener ends with its context, and when its socket is closed.
func TestListenEnds(t *testing.T) {
	for _, end := range []string{"context", "socket"} {
		conn, err := net.ListenPacket("udp4", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() {
			defer close(done)
			(&question{conn: conn, name: dnsmessage.MustNewName(instance)}).listen(ctx, make(chan service))
		}()
		if end == "context" {
			cancel()
			<-done
		}
		if err := conn.Close(); err != nil {
			t.Error(err)
		}
		<-done
		cancel()
	}
}

// A truncated packet is ignored, wherever it ends.
func TestAnswersCutOff(t *testing.T) {
	srv := target("ironic.example.")
	txt := record(instance, dnsmessage.TypeTXT, &dnsmessage.TXTResource{TXT: []string{"path=/"}})
	a := record("other.example.", dnsmessage.TypeA, &dnsmessage.AResource{A: [4]byte{192, 0, 2, 1}})
	other := netip.MustParseAddr("2001:db8::1").As16()
	aaaa := record("other.example.", dnsmessage.TypeAAAA, &dnsmessage.AAAAResource{AAAA: other})
	ns := record("example.", dnsmessage.TypeNS, &dnsmessage.NSResource{NS: dnsmessage.MustNewName("ns.example.")})
	m := dnsmessage.Message{
		Header:  dnsmessage.Header{ID: 7, Response: true},
		Answers: []dnsmessage.Resource{srv, txt, a, srv, txt, ns}, Authorities: []dnsmessage.Resource{ns, ns},
		Additionals: []dnsmessage.Resource{aaaa, ns, a},
	}
	data, err := m.Pack()
	if err != nil {
		t.Fatal(err)
	}
	for n := range len(data) + 1 {
		q := &question{name: dnsmessage.MustNewName(instance), id: 7}
		if got, want := q.take(data[:n]), n == len(data); got != want {
			t.Errorf("%d of %d bytes: taken %v, want %v", n, len(data), got, want)
		}
	}
}

// recorder is a socket that records what is sent.
type recorder struct {
	net.PacketConn
	sent []dnsmessage.Message
}

func (r *recorder) WriteTo(p []byte, _ net.Addr) (int, error) {
	var m dnsmessage.Message
	err := m.Unpack(p)
	r.sent = append(r.sent, m)
	return len(p), err
}

// The addresses of a host in .local are queried once.
func TestAddressesAreAskedFor(t *testing.T) {
	srv := target("host.local.")
	txt := record(instance, dnsmessage.TypeTXT, &dnsmessage.TXTResource{TXT: []string{"path=/"}})
	a := record("host.local.", dnsmessage.TypeA, &dnsmessage.AResource{A: [4]byte{192, 0, 2, 1}})
	conn := &recorder{}
	q := &question{conn: conn, name: dnsmessage.MustNewName(instance), id: 7}
	for range 2 {
		if q.take(packet(t, 7, []dnsmessage.Resource{srv, txt})) {
			t.Error("got complete without an address")
		}
	}
	var kinds []dnsmessage.Type
	for _, m := range conn.sent {
		for _, question := range m.Questions {
			if question.Name.String() != "host.local." {
				t.Errorf("got a question for %v, want host.local.", question.Name)
			}
			kinds = append(kinds, question.Type)
		}
	}
	if diff := cmp.Diff([]dnsmessage.Type{dnsmessage.TypeA, dnsmessage.TypeAAAA}, kinds); diff != "" {
		t.Errorf("questions (-want +got):\n%s", diff)
	}
	if !q.take(packet(t, 7, []dnsmessage.Resource{a})) || len(q.result().addresses) != 1 {
		t.Errorf("got incomplete, %+v, want the service with its address", q.result())
	}
}
