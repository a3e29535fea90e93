// Package dhcptest has what the tests of the DHCPv4 and DHCPv6 clients share: a server in memory, a recorder of
// events, and a timing without long delays.
package dhcptest

import (
	"fmt"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"ironroot/netboot/dhcp"
)

// Quick is a timing for tests in network namespaces: shorter delays, and leases of seconds.
var Quick = dhcp.Timing{
	First: 200 * time.Millisecond, Longest: time.Second, Requests: 3,
	MinRenewal: 300 * time.Millisecond, MinLease: time.Second, Declined: 300 * time.Millisecond,
}

// Record is a list of lines. Its methods may be called concurrently.
type Record struct {
	mu    sync.Mutex
	lines []string
}

// Addf adds a line.
func (r *Record) Addf(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.lines = append(r.lines, fmt.Sprintf(format, args...))
}

// Take returns the lines since the last Take.
func (r *Record) Take() (lines []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	lines, r.lines = r.lines, nil
	return lines
}

// Check fails the test unless the lines since the last Take are those wanted. what is a phase of the test and the kind
// of lines.
func (r *Record) Check(t *testing.T, what string, want ...string) {
	t.Helper()
	if diff := cmp.Diff(want, r.Take()); diff != "" {
		t.Errorf("%s (-want +got):\n%s", what, diff)
	}
}

// Handler records the events that the handlers of both clients receive, except for Use and Sent.
type Handler struct{ Record }

var _ dhcp.Observer = (*Handler)(nil)

// Sent is not recorded: the server records the messages.
func (h *Handler) Sent(time.Time) {}

// Rejected records the cause.
func (h *Handler) Rejected(cause error) { h.Addf("rejected: %v", cause) }

// Failed records the message and the error.
func (h *Handler) Failed(message string, err error) { h.Addf("%s: %v", message, err) }

// Drop records that it was called.
func (h *Handler) Drop() { h.Addf("drop") }

// Message is a pointer to a message of the DHCP library.
type Message interface {
	comparable
	ToBytes() []byte
}

// Server is the other end of a client's sockets.
type Server[M Message] struct {
	Received Record // the messages, as the protocol describes them

	protocol Protocol[M]
	mu       sync.Mutex
	answer   func(m M) M
}

// Protocol parses and describes messages.
type Protocol[M Message] interface {
	Parse(raw []byte) (M, error)
	// Describe returns the line that a message adds to Received. via describes the client's socket.
	Describe(m M, via string, to net.Addr) string
}

// NewServer returns a server that answers messages; an answer of nil is none.
func NewServer[M Message](protocol Protocol[M], answer func(m M) M) *Server[M] {
	return &Server[M]{protocol: protocol, answer: answer}
}

// SetAnswer replaces the function that answers.
func (s *Server[M]) SetAnswer(answer func(m M) M) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.answer = answer
}

// Open returns a socket of the client. via describes it.
func (s *Server[M]) Open(via string) net.PacketConn {
	return &conn[M]{server: s, via: via, answers: make(chan []byte, 1), closed: make(chan struct{})}
}

type conn[M Message] struct {
	net.PacketConn
	server  *Server[M]
	via     string
	answers chan []byte
	closed  chan struct{}
	once    sync.Once
}

func (c *conn[M]) WriteTo(p []byte, to net.Addr) (int, error) {
	m, err := c.server.protocol.Parse(p)
	if err != nil {
		return 0, err
	}
	c.server.mu.Lock()
	defer c.server.mu.Unlock()
	c.server.Received.Addf("%s", c.server.protocol.Describe(m, c.via, to))
	var none M
	if answer := c.server.answer(m); answer != none {
		c.answers <- answer.ToBytes()
	}
	return len(p), nil
}

func (c *conn[M]) ReadFrom(p []byte) (int, net.Addr, error) {
	select {
	case answer := <-c.answers:
		return copy(p, answer), &net.UDPAddr{}, nil
	case <-c.closed:
		return 0, nil, net.ErrClosed
	}
}

func (c *conn[M]) Close() error {
	c.once.Do(func() { close(c.closed) })
	return nil
}
