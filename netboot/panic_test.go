package netboot

import (
	"log/slog"
	"net"
	"testing"
	"time"

	"github.com/insomniacslk/dhcp/dhcpv4"

	"ironroot/internal/goroutine"
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
