package netboot

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"strconv"
	"syscall"
	"time"

	"github.com/insomniacslk/dhcp/dhcpv4"
	"github.com/insomniacslk/dhcp/dhcpv4/nclient4"
	"golang.org/x/sys/unix"

	"ironroot/internal/goroutine"
)

// vendorClass is how servers can tell this client from firmware and from an installed system (option 60).
const vendorClass = "ironroot"

var (
	errNoAnswer = errors.New("no answer from a DHCP server")
	errCarrier  = errors.New("the carrier came back")
)

// declinedError is a server's refusal (DHCPNAK).
type declinedError struct{ server, message string }

func (e *declinedError) Error() string {
	if e.message == "" {
		return "DHCP server " + e.server + " refused the address"
	}
	return fmt.Sprintf("DHCP server %s refused the address: %q", e.server, e.message)
}

// acquire asks for an address until it has one; nil means that ctx ended. It follows the states INIT, SELECTING and
// REQUESTING of RFC 2131, section 4.4.1.
func (l *link) acquire(ctx context.Context) *Lease {
	t := l.network.timing
	started := time.Now()
	delay := t.first
	for ctx.Err() == nil {
		lease, err := l.discover(ctx, started)
		switch {
		case err == nil:
			l.network.log.Info("lease obtained", "interface", l.name(), "address", lease.Address.String(),
				"server", lease.Server.String(), "duration", lease.Duration, "took", time.Since(started).Round(time.Millisecond))
			return lease
		case errors.Is(err, errCarrier):
			started, delay = time.Now(), t.first
			continue
		case ctx.Err() != nil:
			return nil
		}
		l.fail(partDHCP, "no lease", err)
		if !l.pause(ctx, delay) {
			return nil
		}
		delay = min(2*delay, t.longest)
	}
	return nil
}

// discover does one exchange of four messages. Offers that cannot be used are passed over, so that a broken server
// beside a good one does no harm.
func (l *link) discover(ctx context.Context, started time.Time) (*Lease, error) {
	mac := l.snapshot().MAC
	message, err := newMessage(mac, dhcpv4.MessageTypeDiscover)
	if err != nil {
		return nil, err
	}
	complained := map[string]bool{}
	offer, err := l.exchange(ctx, exchange{
		message: message, started: started, open: l.broadcast,
		accept: func(m *dhcpv4.DHCPv4) bool {
			if m.MessageType() != dhcpv4.MessageTypeOffer {
				return false
			}
			_, _, err := parseLease(m, time.Now(), l.network.timing.minLease)
			if err != nil {
				l.rejected(&l.state.History.DHCP, err)
			}
			if server := m.ServerIdentifier().String(); err != nil && len(complained) < 8 && !complained[server] {
				complained[server] = true
				l.network.log.Warn("offer not used", "interface", l.name(), "server", server, "err", err)
			}
			return err == nil
		},
	})
	if err != nil {
		return nil, err
	}
	return l.request(ctx, requestParams{
		started: started,
		tries:   l.network.timing.requests,
		server:  offer.ServerIdentifier(),
		options: []dhcpv4.Modifier{
			dhcpv4.WithTransactionID(offer.TransactionID),
			dhcpv4.WithOption(dhcpv4.OptRequestedIPAddress(offer.YourIPAddr)),
			dhcpv4.WithOption(dhcpv4.OptServerIdentifier(offer.ServerIdentifier())),
		},
		open: l.broadcast,
	})
}

// hold keeps a lease alive: it renews at T1 with the server that gave it, rebinds at T2 with any server, and asks
// again when the carrier was lost in between, because the cable may lead elsewhere now (RFC 2131, sections 4.4.5 and
// 4.4.2). It returns why the lease is lost.
func (l *link) hold(ctx context.Context, lease *Lease) error {
	l.drainCarrier()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	conflict := l.detectConflict(ctx, lease.Address.Addr())
	retry := time.Duration(0) // until the next try within a phase
	for ctx.Err() == nil {
		age := time.Since(lease.Obtained)
		wait := max(lease.Renew-age, retry)
		if lease.Duration != Forever {
			wait = min(wait, lease.Duration-age)
		}
		confirm := false
		timer := time.NewTimer(max(wait, 0))
		select {
		case <-ctx.Done():
		case <-timer.C:
		case <-l.carrier:
			confirm = true
		case err := <-conflict:
			timer.Stop()
			l.decline(lease)
			return err
		}
		timer.Stop()
		if ctx.Err() != nil {
			break
		}
		if age = time.Since(lease.Obtained); age >= lease.Duration {
			return errExpired
		}
		next, err := l.extend(ctx, lease, confirm)
		var declined *declinedError
		switch {
		case err == nil:
			if err := l.use(next, !confirm); err != nil {
				return err
			}
			l.network.log.Info("lease renewed", "interface", l.name(), "address", next.Address.String(),
				"server", next.Server.String(), "duration", next.Duration)
			if next.Address != lease.Address {
				conflict = l.detectConflict(ctx, next.Address.Addr())
			}
			lease, retry, l.declines = next, 0, 0
		case errors.As(err, &declined):
			return err
		case errors.Is(err, errCarrier):
			signal(l.carrier)
			retry = 0
		default:
			// A server that does not confirm may be away: the lease holds to its end (RFC 2131, section 3.2).
			retry = 0
			if !confirm && ctx.Err() == nil {
				retry = l.untilRetry(lease)
				l.fail(partDHCP, "lease not renewed", err)
			}
		}
	}
	return ctx.Err()
}

// untilRetry is half of what is left of the phase, but not less than the least time between two tries.
func (l *link) untilRetry(lease *Lease) time.Duration {
	age := time.Since(lease.Obtained)
	end := lease.Duration
	if age < lease.Rebind {
		end = lease.Rebind
	}
	if end == Forever {
		return l.network.timing.minRenewal
	}
	return min(max((end-age)/2, l.network.timing.minRenewal), max(end-age, 0))
}

// extend asks once for a lease to go on.
func (l *link) extend(ctx context.Context, lease *Lease, confirm bool) (*Lease, error) {
	p := requestParams{started: time.Now(), tries: 1, before: lease}
	age := time.Since(lease.Obtained)
	switch {
	case confirm: // INIT-REBOOT
		p.tries = l.network.timing.requests
		p.open = l.broadcast
		p.options = []dhcpv4.Modifier{dhcpv4.WithOption(dhcpv4.OptRequestedIPAddress(lease.Address.Addr().AsSlice()))}
	case age < lease.Rebind: // RENEWING
		p.server = lease.Server.AsSlice()
		p.destination = lease.Server
		p.open = l.fromAddress(lease.Address.Addr())
		p.options = []dhcpv4.Modifier{dhcpv4.WithClientIP(lease.Address.Addr().AsSlice())}
	default: // REBINDING
		p.open = l.fromAddress(lease.Address.Addr())
		p.options = []dhcpv4.Modifier{dhcpv4.WithClientIP(lease.Address.Addr().AsSlice())}
	}
	return l.request(ctx, p)
}

// requestParams say how one DHCPREQUEST differs from another.
type requestParams struct {
	started     time.Time
	tries       int
	server      net.IP     // only its answer counts; nil = any server's
	destination netip.Addr // invalid = broadcast
	before      *Lease     // the lease that is to go on, nil for a new one
	options     []dhcpv4.Modifier
	open        func() (net.PacketConn, error)
}

// request sends a DHCPREQUEST and reads the answer.
func (l *link) request(ctx context.Context, p requestParams) (*Lease, error) {
	message, err := newMessage(l.snapshot().MAC, dhcpv4.MessageTypeRequest, p.options...)
	if err != nil {
		return nil, err
	}
	asked := time.Now()
	answer, err := l.exchange(ctx, exchange{
		message: message, started: p.started, tries: p.tries, destination: p.destination, open: p.open,
		accept: func(m *dhcpv4.DHCPv4) bool {
			if p.server != nil && !m.ServerIdentifier().Equal(p.server) {
				return false
			}
			return m.MessageType() == dhcpv4.MessageTypeAck || m.MessageType() == dhcpv4.MessageTypeNak
		},
	})
	if err != nil {
		return nil, err
	}
	if answer.MessageType() == dhcpv4.MessageTypeNak {
		err := &declinedError{server: answer.ServerIdentifier().String(), message: answer.Message()}
		l.rejected(&l.state.History.DHCP, err)
		return nil, err
	}
	if p.before != nil {
		complete(answer, p.before.ack)
	}
	lease, warnings, err := parseLease(answer, asked, l.network.timing.minLease)
	if err != nil {
		l.rejected(&l.state.History.DHCP, err)
		return nil, fmt.Errorf("lease not used: %w", err)
	}
	for _, warning := range warnings {
		l.network.log.Warn("part of the lease not used", "interface", l.name(), "server", lease.Server.String(), "err", warning)
	}
	return lease, nil
}

// exchange is one message that is sent until it is answered.
type exchange struct {
	message     *dhcpv4.DHCPv4
	started     time.Time
	tries       int        // 0 = forever
	destination netip.Addr // invalid = broadcast
	open        func() (net.PacketConn, error)
	accept      func(*dhcpv4.DHCPv4) bool
}

// exchange sends the message and waits, at first one second, then twice as long each time. A carrier that comes
// (back) meanwhile ends it with errCarrier, because what was sent before is lost.
func (l *link) exchange(ctx context.Context, e exchange) (*dhcpv4.DHCPv4, error) {
	t := l.network.timing
	timeout := t.first
	var err error
	for try := 0; e.tries == 0 || try < e.tries; try++ {
		e.message.NumSeconds = uint16(min(time.Since(e.started)/time.Second, 0xffff))
		l.sent(&l.state.History.DHCP, e.started)
		var answer *dhcpv4.DHCPv4
		// A tenth more or less keeps machines that are switched on together apart.
		wait := timeout + time.Duration(rand.Int64N(int64(timeout/5)+1)) - timeout/10
		answer, err = l.attempt(ctx, e, wait)
		if err == nil || errors.Is(err, errCarrier) || ctx.Err() != nil {
			return answer, err
		}
		if try == 2 && e.tries == 0 {
			l.fail(partDHCP, "no lease yet", err)
		}
		timeout = min(2*timeout, t.longest)
	}
	return nil, err
}

// attempt sends once and waits for the answer until the time is over or the carrier comes.
func (l *link) attempt(ctx context.Context, e exchange, wait time.Duration) (*dhcpv4.DHCPv4, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, wait, errNoAnswer)
	defer cancel()
	conn, err := e.open()
	if err != nil {
		<-ctx.Done() // the link may come back
		return nil, fmt.Errorf("open DHCP socket: %w", err)
	}
	defer conn.Close() //nolint:errcheck // nothing is lost
	attempt, end := context.WithCancelCause(ctx)
	defer end(nil)
	goroutine.Go(func() error {
		select {
		case <-l.carrier:
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
		<-ctx.Done() // the next attempt comes no sooner than without an answer
		return nil, fmt.Errorf("send DHCP message: %w", err)
	}
	if answer := l.receive(conn, e); answer != nil {
		return answer, nil
	}
	<-attempt.Done() // a socket that failed, as when the link goes down, receives no answer
	return nil, context.Cause(attempt)
}

// receive returns the first accepted answer to a message, or nil once the socket is closed or fails. The client of the
// library is not used because it parses messages in a goroutine that does not contain panics.
func (l *link) receive(conn net.PacketConn, e exchange) *dhcpv4.DHCPv4 {
	mac := answeredTo(l.snapshot().MAC)
	buffer := make([]byte, nclient4.MaxMessageSize)
	for {
		var answer *dhcpv4.DHCPv4
		err := goroutine.Catch(func() error {
			size, _, err := conn.ReadFrom(buffer)
			if err != nil {
				return err
			}
			m, err := dhcpv4.FromBytes(buffer[:size])
			if err == nil && m.OpCode == dhcpv4.OpcodeBootReply && bytes.Equal(m.ClientHWAddr, mac) &&
				m.TransactionID == e.message.TransactionID && e.accept(m) {
				answer = m
			}
			return nil //nolint:nilerr // what is no DHCP message is dropped
		})
		var caught *goroutine.PanicError // a message that panics is dropped: another server may answer
		if answer != nil || err != nil && !errors.As(err, &caught) {
			return answer
		}
	}
}

// broadcast opens a packet socket, which works on a link without an address.
func (l *link) broadcast() (net.PacketConn, error) {
	state := l.snapshot()
	if isInfiniBand(state.MAC) {
		return broadcastInfiniBand(state.Index, dhcpv4.ClientPort)
	}
	return nclient4.NewRawUDPConn(state.Name, dhcpv4.ClientPort)
}

// fromAddress opens an ordinary socket with the link's address as source.
func (l *link) fromAddress(address netip.Addr) func() (net.PacketConn, error) {
	return func() (net.PacketConn, error) {
		name := l.name()
		config := net.ListenConfig{Control: func(_, _ string, raw syscall.RawConn) error {
			var failed error
			err := raw.Control(func(fd uintptr) {
				failed = errors.Join(
					unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_REUSEADDR, 1),
					unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_BROADCAST, 1),
					unix.BindToDevice(int(fd), name))
			})
			return errors.Join(err, failed)
		}}
		host := net.JoinHostPort(address.String(), strconv.Itoa(dhcpv4.ClientPort))
		return config.ListenPacket(context.Background(), "udp4", host)
	}
}

// newMessage returns a message with what all of the client's messages have.
func newMessage(mac net.HardwareAddr, kind dhcpv4.MessageType, options ...dhcpv4.Modifier) (*dhcpv4.DHCPv4, error) {
	message, err := dhcpv4.New(dhcpv4.PrependModifiers(options,
		hardware(mac),
		dhcpv4.WithMessageType(kind),
		dhcpv4.WithOption(dhcpv4.OptClientIdentifier(clientID(mac))),
		dhcpv4.WithOption(dhcpv4.OptClassIdentifier(vendorClass)),
		dhcpv4.WithOption(dhcpv4.OptMaxMessageSize(nclient4.MaxMessageSize)),
		dhcpv4.WithRequestedOptions(
			// RFC 3442: option 121 is asked for before option 3.
			dhcpv4.OptionSubnetMask, dhcpv4.OptionClasslessStaticRoute, dhcpv4.OptionRouter,
			dhcpv4.OptionDomainNameServer, dhcpv4.OptionHostName, dhcpv4.OptionDomainName,
			dhcpv4.OptionDNSDomainSearchList, dhcpv4.OptionInterfaceMTU, dhcpv4.OptionNTPServers,
			dhcpv4.OptionRenewTimeValue, dhcpv4.OptionRebindingTimeValue,
		),
	)...)
	if err != nil {
		return nil, fmt.Errorf("make DHCP message: %w", err)
	}
	return message, nil
}
