package netboot

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"slices"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"ironroot/internal/goroutine"
)

var errNoAnswer6 = errors.New("no answer from a DHCPv6 server")

// client6 is the DHCPv6 client of one link.
type client6 struct {
	link  *link
	duid  []byte
	iaid  [4]byte
	parse func(raw []byte) (*message6, error) // parseMessage6, except in tests
}

// newClient6 identifies the client by its MAC address alone (RFC 8415, section 11.4): it stays the same from boot to
// boot without a memory, and servers that know machines by their MAC address find it there.
func newClient6(l *link) *client6 {
	c := &client6{link: l, parse: parseMessage6}
	mac := l.snapshot().MAC
	const linkLayer = 3 // type of DUID
	c.duid = append([]byte{0, linkLayer}, linkLayerID(mac)...)
	if len(mac) >= len(c.iaid) {
		copy(c.iaid[:], mac[len(mac)-len(c.iaid):])
	}
	return c
}

// inform keeps the link's name servers and the like until ctx ends; addresses are not asked for.
func (c *client6) inform(ctx context.Context) {
	for ctx.Err() == nil {
		lease, err := c.ask(ctx, exchange6{kind: informationRequest})
		if err != nil {
			return // ctx has ended: without a limit of tries there is no other error
		}
		if err := c.link.use6(lease); err != nil {
			c.link.fail(partDHCP6, "DHCPv6 information not used", err)
		}
		c.wait(ctx, lease.Renew)
	}
}

// lease keeps the link's addresses until ctx ends, through the states of RFC 8415, section 18.2.
func (c *client6) lease(ctx context.Context) {
	for ctx.Err() == nil {
		lease, err := c.acquire(ctx)
		if err == nil {
			err = c.link.use6(lease)
		}
		if err == nil {
			c.log("DHCPv6 lease obtained", lease)
			err = c.hold(ctx, lease)
		}
		if ctx.Err() != nil {
			return
		}
		c.link.fail(partDHCP6, "no DHCPv6 lease", err)
		c.link.drop6()
		c.wait(ctx, c.link.network.timing.first)
	}
}

func (c *client6) log(message string, lease *Lease6) {
	c.link.network.log.Info(message, "interface", c.link.name(), "address", fmt.Sprint(lease.Addresses), "duration", lease.Duration)
}

// acquire solicits until a server offers an address and then requests it; a server may also grant it at once (rapid
// commit). The first offer that can be used is taken: to wait for better ones would cost every boot a second.
func (c *client6) acquire(ctx context.Context) (*Lease6, error) {
	offer, err := c.ask(ctx, exchange6{
		kind: solicit, addresses: &Lease6{}, accept: advertise6,
		options: []option6{{code: optRapidCommit}},
	})
	if err != nil || offer.committed {
		return offer, err
	}
	return c.ask(ctx, exchange6{
		kind: request6, addresses: offer, tries: c.link.network.timing.requests,
		options: []option6{{optServerID, offer.server}},
	})
}

// hold renews a lease at T1 with its server and rebinds it at T2 with any. After the carrier was away it asks whether
// the addresses still belong to where the cable leads. It returns why the lease is lost.
func (c *client6) hold(ctx context.Context, lease *Lease6) error {
	t := c.link.network.timing
	wait := lease.Renew
	for ctx.Err() == nil {
		age := time.Since(lease.Obtained)
		if lease.Duration != Forever {
			wait = min(wait, max(lease.Duration-age, 0))
		}
		switch c.wait(ctx, wait) {
		case carrierBack:
			if err := c.confirm(ctx, lease); err != nil {
				return err
			}
			wait = max(lease.Renew-time.Since(lease.Obtained), t.minRenewal)
			continue
		case addressTaken:
			return c.decline(ctx, lease)
		case timeUp:
		}
		if age = time.Since(lease.Obtained); age >= lease.Duration {
			return errExpired
		}
		e := exchange6{kind: rebind, addresses: lease, tries: 1}
		if age < lease.Rebind {
			e.kind, e.options = renew, []option6{{optServerID, lease.server}}
		}
		next, err := c.ask(ctx, e)
		var declined *refusal6
		switch {
		case err == nil:
			if err := c.link.use6(next); err != nil {
				return err
			}
			c.log("DHCPv6 lease renewed", next)
			lease, wait = next, next.Renew
		case errors.As(err, &declined):
			return err
		case ctx.Err() == nil:
			c.link.fail(partDHCP6, "DHCPv6 lease not renewed", err)
			wait = t.minRenewal
		}
	}
	return ctx.Err()
}

// confirm asks any server whether the addresses fit the link (RFC 8415, section 18.2.3). No answer is no refusal.
func (c *client6) confirm(ctx context.Context, lease *Lease6) error {
	const tries = 5 // behind a switch that has just come up, the first ones are lost
	e := exchange6{kind: confirm, addresses: lease, tries: tries}
	_, err := c.ask(ctx, e)
	var declined *refusal6
	if errors.As(err, &declined) {
		return err
	}
	if err != nil {
		c.link.network.log.Debug("lease not confirmed", "interface", c.link.name(), "err", err)
	}
	return nil
}

// decline tells the server that its address has an owner already (RFC 8415, section 18.2.8), so that it gives another.
func (c *client6) decline(ctx context.Context, lease *Lease6) error {
	e := exchange6{
		kind: decline, addresses: lease, tries: 1,
		options: []option6{{optServerID, lease.server}},
	}
	_, err := c.ask(ctx, e)
	c.link.network.log.Debug("address declined", "interface", c.link.name(), "err", err)
	return fmt.Errorf("one of the addresses %v has another owner on the link", lease.Addresses)
}

// wake is why a wait is over.
type wake int

const (
	timeUp wake = iota // or the context has ended
	carrierBack
	addressTaken
)

func (c *client6) wait(ctx context.Context, d time.Duration) wake {
	timer := time.NewTimer(max(d, 0))
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	case <-c.link.carrier6:
		return carrierBack
	case <-c.link.taken:
		return addressTaken
	}
	return timeUp
}

// exchange6 is one message that is sent until it is answered.
type exchange6 struct {
	kind      kind6
	addresses *Lease6 // nil: none are asked for; else those to ask for
	options   []option6
	accept    kind6 // beside a reply; 0 = nothing
	tries     int   // 0 = forever
}

// ask sends a message and waits for its answer, longer each time. Answers that cannot be used are passed over, so that
// a broken server beside a good one does no harm; the refusal of the server that gave the lease is an error.
func (c *client6) ask(ctx context.Context, e exchange6) (*Lease6, error) {
	t := c.link.network.timing
	started := time.Now()
	timeout := t.first
	var err error
	transaction := rand.Uint32()
	for try := 0; e.tries == 0 || try < e.tries; try++ {
		message := c.message(e, transaction, time.Since(started))
		c.link.sent(&c.link.state.History.DHCP6, started)
		var lease *Lease6
		// A tenth more or less keeps machines that are switched on together apart.
		lease, err = c.attempt(ctx, e, message, timeout+time.Duration(rand.Int64N(int64(timeout/5)+1))-timeout/10)
		var declined *refusal6
		if err == nil || errors.As(err, &declined) {
			return lease, err
		}
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		if try == 2 && e.tries == 0 {
			c.link.fail(partDHCP6, "no answer by DHCPv6 yet", err)
		}
		timeout = min(2*timeout, t.longest)
	}
	return nil, err
}

// attempt sends once and waits for a usable answer.
func (c *client6) attempt(ctx context.Context, e exchange6, message *message6, limit time.Duration) (*Lease6, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, limit, errNoAnswer6)
	defer cancel()
	asked := time.Now()
	conn, name, err := c.open(ctx)
	if err == nil {
		defer conn.Close() //nolint:errcheck // a socket that is thrown away
		_, err = conn.WriteTo(message.bytes(), &net.UDPAddr{IP: net.ParseIP(allServers6), Port: port6Server, Zone: name})
	}
	if err != nil {
		<-ctx.Done() // the link may come back; and not sooner again than without an answer
		return nil, fmt.Errorf("send DHCPv6 message: %w", err)
	}
	defer goroutine.AfterContext(ctx, func() { _ = conn.Close() })()
	return c.receive(ctx, conn, name, e, message, asked)
}

// receive returns the first usable answer that arrives before ctx ends.
func (c *client6) receive(
	ctx context.Context, conn net.PacketConn, name string, e exchange6, message *message6, asked time.Time,
) (*Lease6, error) {
	binding := e.kind != solicit && e.kind != informationRequest
	passed := errNoAnswer6
	buffer := make([]byte, 1<<16)
	for {
		size, _, err := conn.ReadFrom(buffer)
		if err != nil {
			<-ctx.Done()
			if errors.Is(context.Cause(ctx), errNoAnswer6) {
				return nil, passed
			}
			return nil, context.Cause(ctx)
		}
		var lease *Lease6
		var warnings []string
		err = goroutine.Catch(func() (err error) { // an answer that panics is dropped: another server may answer
			lease, warnings, err = c.read(e, message, buffer[:size], asked)
			return err
		})
		var refused *refusal6
		switch {
		case err == nil:
			for _, warning := range warnings {
				c.link.network.log.Warn("part of the DHCPv6 answer not used", "interface", name, "err", warning)
			}
			return lease, nil
		case binding && errors.As(err, &refused):
			return nil, err
		case !errors.Is(err, errForeign):
			c.link.rejected(&c.link.state.History.DHCP6, err)
			passed = fmt.Errorf("DHCPv6 answer not used: %v", err) //nolint:errorlint // it does not bind
		}
	}
}

var errForeign = errors.New("not an answer for this client")

// read returns the lease of an answer, and warnings about the parts of it that are not used. The error is errForeign if
// the answer is not for this client or this exchange.
func (c *client6) read(e exchange6, sent *message6, raw []byte, asked time.Time) (*Lease6, []string, error) {
	m, err := c.parse(slices.Clone(raw))
	if err != nil {
		return nil, nil, err
	}
	if m.transaction != sent.transaction || m.kind != reply && m.kind != e.accept ||
		!bytes.Equal(option(m.options, optClientID), c.duid) {
		return nil, nil, errForeign
	}
	wanted := e.addresses != nil && e.kind != confirm && e.kind != decline
	lease, warnings, err := parseLease6(m, c.iaid, wanted, asked, c.link.network.timing.minLease)
	if err == nil && e.kind == solicit && m.kind == reply {
		if !has6(m.options, optRapidCommit) {
			return nil, nil, errForeign
		}
		lease.committed = true
	}
	return lease, warnings, err
}

// message makes a message with what all of the client's messages have.
func (c *client6) message(e exchange6, transaction uint32, elapsed time.Duration) *message6 {
	var requested, hundredths []byte
	for _, code := range []uint16{optDNS, optSearch, optNTP, optSNTP, optRefresh} {
		requested = binary.BigEndian.AppendUint16(requested, code)
	}
	hundredths = binary.BigEndian.AppendUint16(hundredths, uint16(min(elapsed/(10*time.Millisecond), 0xffff)))
	m := &message6{kind: e.kind, options: slices.Concat([]option6{
		{optClientID, c.duid}, {optElapsed, hundredths}, {optRequested, requested},
	}, e.options)}
	m.transaction = [3]byte{byte(transaction), byte(transaction >> 8), byte(transaction >> 16)}
	if e.addresses != nil {
		association := append(c.iaid[:], make([]byte, 8)...) // the server chooses the times
		for _, address := range e.addresses.Addresses {
			value := append(address.AsSlice(), make([]byte, 8)...)
			association = appendOptions6(association, []option6{{optIAAddress, value}})
		}
		m.options = append(m.options, option6{optIANA, association})
	}
	return m
}

// open opens a socket of this link alone.
func (c *client6) open(ctx context.Context) (conn net.PacketConn, name string, err error) {
	state := c.link.snapshot()
	config := net.ListenConfig{Control: func(_, _ string, raw syscall.RawConn) error {
		var failed error
		err := raw.Control(func(fd uintptr) {
			failed = errors.Join(
				unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_REUSEADDR, 1),
				unix.BindToDevice(int(fd), state.Name))
		})
		return errors.Join(err, failed)
	}}
	conn, err = config.ListenPacket(ctx, "udp6", "[::]:"+strconv.Itoa(port6Client))
	return conn, state.Name, err
}
