package dhcp4

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"time"

	"github.com/insomniacslk/dhcp/dhcpv4"

	"ironroot/internal/goroutine"
	"ironroot/netboot/dhcp"
)

// refusedError reports a DHCPNAK.
type refusedError struct{ server, message string }

func (e *refusedError) Error() string {
	if e.message == "" {
		return "DHCP server " + e.server + " refused the address"
	}
	return fmt.Sprintf("DHCP server %s refused the address: %q", e.server, e.message)
}

// request describes how one DHCPREQUEST differs from another.
type request struct {
	exchange
	before  *Lease // the lease to extend, nil for a new one
	options []dhcpv4.Modifier
}

// request sends a DHCPREQUEST and reads the answer.
func (c *Client) request(ctx context.Context, r request) (*Lease, error) {
	message, err := newMessage(c.Link.Interface().HardwareAddr, dhcpv4.MessageTypeRequest, r.options...)
	if err != nil {
		return nil, err
	}
	r.message = message
	asked := time.Now()
	answer, err := c.exchange(ctx, r.exchange)
	if err != nil {
		return nil, err
	}
	if answer.MessageType() == dhcpv4.MessageTypeNak {
		err := &refusedError{server: answer.ServerIdentifier().String(), message: answer.Message()}
		c.Handler.Rejected(err)
		return nil, err
	}
	if r.before != nil {
		complete(answer, r.before.ack)
	}
	lease, warnings, err := parseLease(answer, asked, c.Timing.MinLease)
	if err != nil {
		c.Handler.Rejected(err)
		return nil, fmt.Errorf("lease rejected: %w", err)
	}
	for _, warning := range warnings {
		c.Log.Warn("value of the lease ignored", "interface", c.Link.Interface().Name, "server", lease.Server.String(),
			"err", warning)
	}
	return lease, nil
}

// exchange describes a message that is sent until it is answered.
type exchange struct {
	message     *dhcpv4.DHCPv4
	started     time.Time  // of the search that the message belongs to
	tries       int        // 0 = forever
	source      netip.Addr // invalid = a socket that works without an address
	destination netip.Addr // invalid = broadcast
	server      net.IP     // the only server whose answer to a request is accepted; nil = any
	// logged contains the servers whose rejected offers were logged.
	logged map[string]bool
}

const maxLogged = 8 // servers whose rejected offers are logged

// accept returns why an answer is rejected.
func (c *Client) accept(e exchange, m *dhcpv4.DHCPv4) error {
	if e.message.MessageType() == dhcpv4.MessageTypeDiscover {
		return c.acceptOffer(e, m)
	}
	switch kind := m.MessageType(); {
	case kind == dhcpv4.MessageTypeOffer:
		return errForeign // of another server, which was slower
	case kind != dhcpv4.MessageTypeAck && kind != dhcpv4.MessageTypeNak:
		return fmt.Errorf("message type %s, want ACK or NAK", kind)
	case e.server != nil && !m.ServerIdentifier().Equal(e.server):
		return fmt.Errorf("%s of server %s, want %s", kind, serverText(m), e.server)
	}
	return nil
}

func (c *Client) acceptOffer(e exchange, m *dhcpv4.DHCPv4) error {
	if kind := m.MessageType(); kind != dhcpv4.MessageTypeOffer {
		return fmt.Errorf("message type %s of server %s, want OFFER", kind, serverText(m))
	}
	_, _, err := parseLease(m, time.Now(), c.Timing.MinLease)
	if server := m.ServerIdentifier().String(); err != nil && len(e.logged) < maxLogged && !e.logged[server] {
		e.logged[server] = true
		c.Log.Warn("offer rejected", "interface", c.Link.Interface().Name, "server", server, "err", err)
	}
	return err
}

// open opens the socket of an exchange.
func (c *Client) open(e exchange) (net.PacketConn, error) {
	on := c.Link.Interface()
	if e.source.IsValid() {
		return c.sockets.unicast(on, e.source)
	}
	return c.sockets.broadcast(on)
}

// errForeign is the error of messages that are not answers to the message that was sent.
var errForeign = errors.New("not an answer to this message")

// serverText returns the identifier of the server that sent a message, for errors.
func serverText(m *dhcpv4.DHCPv4) string {
	if id := m.ServerIdentifier(); id != nil {
		return id.String()
	}
	return "without identifier (option 54)"
}

// exchange sends the message until it is answered. The time between two transmissions doubles each time. If the
// carrier comes back meanwhile, the error is errCarrier, because earlier messages are lost.
func (c *Client) exchange(ctx context.Context, e exchange) (*dhcpv4.DHCPv4, error) {
	timeout := c.Timing.First
	var err error
	for try := 0; e.tries == 0 || try < e.tries; try++ {
		e.message.NumSeconds = uint16(min(time.Since(e.started)/time.Second, 0xffff))
		c.Handler.Sent(e.started)
		var answer *dhcpv4.DHCPv4
		answer, err = c.attempt(ctx, e, dhcp.Jitter(timeout))
		if err == nil || errors.Is(err, errCarrier) || ctx.Err() != nil {
			return answer, err
		}
		if try == 2 && e.tries == 0 {
			c.Handler.Failed("no lease yet", err)
		}
		timeout = min(2*timeout, c.Timing.Longest)
	}
	return nil, err
}

// attempt sends once and waits for the answer until the timeout, or until the carrier comes back.
func (c *Client) attempt(ctx context.Context, e exchange, timeout time.Duration) (*dhcpv4.DHCPv4, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, timeout, errNoAnswer)
	defer cancel()
	conn, err := c.open(e)
	if err != nil {
		<-ctx.Done() // the interface may come back
		return nil, fmt.Errorf("open DHCP socket: %w", err)
	}
	defer conn.Close() //nolint:errcheck // the socket is no longer used
	attempt, end := context.WithCancelCause(ctx)
	defer end(nil)
	goroutine.Go(func() error {
		select {
		case <-c.Carrier:
			end(errCarrier)
		case <-attempt.Done():
		}
		return nil
	}, nil)
	defer goroutine.AfterContext(attempt, func() { _ = conn.Close() })()
	destination := &net.UDPAddr{IP: net.IPv4bcast, Port: dhcpv4.ServerPort}
	if e.destination.IsValid() {
		destination.IP = e.destination.AsSlice()
	}
	if _, err := conn.WriteTo(e.message.ToBytes(), destination); err != nil {
		if cause := context.Cause(attempt); cause != nil {
			return nil, cause
		}
		<-ctx.Done() // the next attempt is not earlier than without an answer
		return nil, fmt.Errorf("send DHCP message: %w", err)
	}
	answer, rejected := c.receive(conn, e)
	if answer != nil {
		return answer, nil
	}
	<-attempt.Done() // a socket that failed, as when the interface goes down, receives no answer
	if err := context.Cause(attempt); rejected == nil || !errors.Is(err, errNoAnswer) {
		return nil, err
	}
	return nil, fmt.Errorf("DHCP answer rejected: %w", rejected)
}

// receive returns the first accepted answer to a message, or nil once the socket is closed or fails, and then why the
// latest answer was rejected, nil if there was none. The client of the library is not used because it parses messages
// in a goroutine that does not contain panics.
func (c *Client) receive(conn net.PacketConn, e exchange) (accepted *dhcpv4.DHCPv4, rejected error) {
	buffer := make([]byte, maxMessageSize)
	for {
		var answer *dhcpv4.DHCPv4
		var closed error
		err := goroutine.Catch(func() (err error) { // a message that causes a panic is rejected, too
			var size int
			if size, _, closed = conn.ReadFrom(buffer); closed != nil {
				return closed
			}
			answer, err = c.read(buffer[:size], e)
			return err
		})
		switch {
		case err == nil:
			return answer, nil
		case closed != nil:
			return nil, rejected
		case !errors.Is(err, errForeign):
			rejected = err
			c.Handler.Rejected(err)
		}
	}
}

// read parses an answer to a message.
func (c *Client) read(raw []byte, e exchange) (*dhcpv4.DHCPv4, error) {
	if !isAnswer(raw, e.message.TransactionID, answerAddress(c.Link.Interface().HardwareAddr)) {
		return nil, errForeign
	}
	m, err := parseMessage(raw)
	if err != nil {
		return nil, err
	}
	return m, c.accept(e, m)
}
