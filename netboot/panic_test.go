package netboot

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/insomniacslk/dhcp/dhcpv4"
	"golang.org/x/sys/unix"

	"ironroot/internal/goroutine"
	"ironroot/netboot/networkdata"
)

// scriptedConn is a socket whose packets are read by functions, one after the other.
type scriptedConn struct {
	net.PacketConn
	reads []func(p []byte) (int, error)
}

func (c *scriptedConn) ReadFrom(p []byte) (int, net.Addr, error) {
	if len(c.reads) == 0 {
		return 0, nil, net.ErrClosed
	}
	read := c.reads[0]
	c.reads = c.reads[1:]
	n, err := read(p)
	return n, &net.UDPAddr{}, err
}

// panicLink returns a link that does not exist in the kernel.
func panicLink() *link {
	n := &Network{log: slog.New(slog.DiscardHandler), timing: defaultTiming, links: map[int]*link{}, changed: make(chan struct{})}
	n.timing.first = time.Millisecond
	l := newLink(n, 1)
	l.state.MAC = net.HardwareAddr{2, 0, 0, 0, 0, 1}
	return l
}

// A DHCP message that causes a panic is dropped; the next one is the answer.
func TestDHCPContainsPanics(t *testing.T) {
	l := panicLink()
	request, err := newMessage(l.state.MAC, dhcpv4.MessageTypeDiscover)
	if err != nil {
		t.Fatal(err)
	}
	answer, err := dhcpv4.NewReplyFromRequest(request, dhcpv4.WithMessageType(dhcpv4.MessageTypeOffer))
	if err != nil {
		t.Fatal(err)
	}
	foreign, err := dhcpv4.NewReplyFromRequest(request)
	if err != nil {
		t.Fatal(err)
	}
	foreign.TransactionID[0]++
	send := func(data []byte) func([]byte) (int, error) {
		return func(p []byte) (int, error) { return copy(p, data), nil }
	}
	conn := &scriptedConn{reads: []func([]byte) (int, error){
		func([]byte) (int, error) { panic("in the socket") },
		send([]byte("no DHCP message")), send(request.ToBytes()), send(foreign.ToBytes()),
		send(answer.ToBytes()), send(answer.ToBytes()),
	}}
	seen := 0
	got := l.receive(conn, exchange{message: request, accept: func(*dhcpv4.DHCPv4) bool {
		if seen++; seen == 1 {
			panic("in the parser")
		}
		return true
	}})
	if got == nil || got.MessageType() != dhcpv4.MessageTypeOffer || seen != 2 {
		t.Errorf("got answer %v after %d answers, want the second offer", got, seen)
	}
	if got := l.receive(conn, exchange{message: request}); got != nil {
		t.Errorf("got answer %v of a closed socket, want none", got)
	}
}

// A DHCPv6 message that causes a panic is dropped; the next one is the answer.
func TestDHCP6ContainsPanics(t *testing.T) {
	c := newClient6(panicLink())
	parsed := 0
	c.parse = func(raw []byte) (*message6, error) {
		if parsed++; parsed == 1 {
			panic("in the parser")
		}
		return parseMessage6(raw)
	}
	e := exchange6{kind: informationRequest}
	request := c.message(e, 7, 0)
	answer := &message6{kind: reply, transaction: request.transaction, options: []option6{{optClientID, c.duid}, {optServerID, []byte("server")}}}
	read := func(p []byte) (int, error) { return copy(p, answer.bytes()), nil }
	conn := &scriptedConn{reads: []func([]byte) (int, error){read, read}}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if lease, err := c.receive(ctx, conn, "eth0", e, request, time.Now()); err != nil || lease == nil || parsed != 2 {
		t.Errorf("got %+v and %v after %d messages, want the answer of the second one", lease, err, parsed)
	}
}

// A router advertisement that causes a panic is dropped; the next one is used.
func TestAdvertisementsContainPanics(t *testing.T) {
	messages := []syscall.NetlinkMessage{{Header: syscall.NlMsghdr{Type: 1}}, {Header: syscall.NlMsghdr{Type: 2}}}
	received := 0
	receive := func() ([]syscall.NetlinkMessage, *unix.SockaddrNetlink, error) {
		if received++; received > 1 {
			return nil, nil, net.ErrClosed
		}
		return messages, &unix.SockaddrNetlink{}, nil
	}
	parse := func(kind uint16, _ []byte) (advertisement, bool) {
		if kind == 1 {
			panic("in the parser")
		}
		return advertisement{index: 7}, true
	}
	events := make(chan advertisement, len(messages))
	if err := readAdvertisements(receive, parse, events); !errors.Is(err, net.ErrClosed) {
		t.Errorf("got error %v, want that of the socket", err)
	}
	close(events)
	var got []advertisement
	for a := range events {
		got = append(got, a)
	}
	if len(got) != 1 || got[0].index != 7 {
		t.Errorf("got %+v, want the second advertisement", got)
	}
}

// An ARP frame that causes a panic is dropped; the next one shows another owner of the address.
func TestAwaitOwnerContainsPanics(t *testing.T) {
	address := addr("192.0.2.9")
	claim := arpProbe(net.HardwareAddr{2, 0xde, 0xad, 0xbe, 0xef, 1}, address)
	copy(claim[etherLen+8+macLen:], address.AsSlice()) // the sender's address
	broken := func([]byte) (int, error) { panic("in the socket") }
	send := func(p []byte) (int, error) { return copy(p, claim), nil }
	over := func([]byte) (int, error) { return 0, os.ErrDeadlineExceeded }
	var conflict *conflictError
	conn := &scriptedConn{reads: []func([]byte) (int, error){broken, send}}
	if err := awaitOwner(conn, make([]byte, 1<<11), address); !errors.As(err, &conflict) {
		t.Errorf("got %v, want the conflict", err)
	}
	conn = &scriptedConn{reads: []func([]byte) (int, error){broken, over}}
	if err := awaitOwner(conn, make([]byte, 1<<11), address); err != nil {
		t.Errorf("got %v at the end of the wait, want no error", err)
	}
}

// panicOnce is a log handler that panics at the first record with a message.
type panicOnce struct {
	slog.Handler
	message string
	done    atomic.Bool
}

func (h *panicOnce) Handle(ctx context.Context, r slog.Record) error {
	if r.Message == h.message && !h.done.Swap(true) {
		panic("at a link")
	}
	return h.Handler.Handle(ctx, r)
}

// After a panic while links are taken over from static data, the network reads the kernel's state again and uses the
// links that are there and those that appear later.
func TestWatchContainsPanics(t *testing.T) {
	l, inside := inNamespace(t)
	if !inside {
		return
	}
	l.cable("eth0", "")
	handler := &panicOnce{Handler: slog.NewTextHandler(l.t.Output(), nil), message: "link found"}
	n, err := Start(l.ctx, Config{
		Log: slog.New(handler), Interface: func(string) bool { return true }, ResolvConf: l.resolv,
		Data: &networkdata.Data{DNS: []netip.Addr{addr("192.0.2.53")}}, timing: quick,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		n.stop()
		<-n.watching
	})
	l.until(n, "a link that is up", func(links map[string]Link) bool { return links["eth0"].Up })
	if !handler.done.Load() {
		t.Error("there was no panic")
	}
	l.cable("eth1", "")
	l.until(n, "a second link that is up", func(links map[string]Link) bool { return links["eth1"].Up })
}

// A function that a link runs is called again after a panic.
func TestLinkContainsPanics(t *testing.T) {
	l := panicLink()
	ended := make(chan int)
	goroutine.Go(func() error {
		calls := 0
		l.persist(t.Context(), func() {
			if calls++; calls < 3 {
				panic("oops")
			}
		})
		ended <- calls
		return nil
	}, nil)
	if calls := <-ended; calls != 3 {
		t.Errorf("got %d calls, want 3", calls)
	}
}
