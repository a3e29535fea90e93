package dhcp4

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/netip"
	"time"

	"github.com/insomniacslk/dhcp/dhcpv4"

	"ironroot/internal/goroutine"
	"ironroot/internal/pause"
	"ironroot/netboot/arp"
	"ironroot/netboot/dhcp"
)

// Handler receives the events of a client. The client calls its methods one at a time, and waits until they return.
type Handler interface {
	dhcp.Observer
	// Use applies a lease in place of the one before. renewed reports whether the server changed or extended a lease
	// that was still valid. If Use fails, the client drops the lease and asks for another one.
	Use(lease *Lease, renewed bool) error
	// Drop removes what Use applied.
	Drop()
}

// Config describes a client.
type Config struct {
	Link dhcp.Link
	// Carrier receives a value each time when the interface gets its carrier back: the client then asks at once.
	Carrier <-chan struct{}
	// Moved receives a value when the interface can have been connected to another network while it kept its carrier.
	// The client then asks at once. It keeps the lease until a server refuses it or grants another one.
	Moved   <-chan struct{}
	Timing  dhcp.Timing
	Log     *slog.Logger
	Handler Handler
}

// Client keeps the IPv4 address of one interface.
type Client struct {
	Config
	sockets  sockets
	declines int // in a row
}

// New returns a client. It does nothing until Run.
func New(c Config) *Client { return &Client{Config: c, sockets: kernelSockets{}} }

var (
	errNoAnswer = errors.New("no answer from a DHCP server")
	errCarrier  = errors.New("carrier came back")
)

// Run asks for a lease and keeps it until ctx ends. The last lease is not dropped then. Run may be called again.
func (c *Client) Run(ctx context.Context) {
	for ctx.Err() == nil {
		lease, started := c.acquire(ctx)
		if lease == nil {
			return
		}
		err := c.Handler.Use(lease, false)
		if err == nil {
			c.Log.Info("lease obtained", "interface", c.Link.Interface().Name, "address", lease.Address.String(),
				"server", lease.Server.String(), "lifetime", lease.Duration,
				"duration", time.Since(started).Round(time.Millisecond))
			err = c.hold(ctx, lease)
		}
		if ctx.Err() != nil {
			return
		}
		c.Handler.Failed("lease lost", err)
		c.Handler.Drop()
		delay := c.Timing.First
		var conflict *arp.ConflictError
		if errors.As(err, &conflict) {
			delay = c.Timing.Declined
		}
		_ = pause.For(ctx, delay) // the loop ends with ctx
	}
}

// acquire asks for an address until it has one, and returns when it started to ask, with a carrier. A nil lease means
// that ctx ended. It follows the states INIT, SELECTING and REQUESTING of RFC 2131, section 4.4.1.
func (c *Client) acquire(ctx context.Context) (lease *Lease, started time.Time) {
	started = time.Now()
	delay := c.Timing.First
	for ctx.Err() == nil {
		lease, err := c.discover(ctx, started, 0)
		switch {
		case err == nil:
			return lease, started
		case errors.Is(err, errCarrier):
			started, delay = time.Now(), c.Timing.First
			continue
		case ctx.Err() != nil:
			return nil, started
		}
		c.Handler.Failed("no lease", err)
		if pause.For(ctx, delay) != nil {
			return nil, started
		}
		delay = min(2*delay, c.Timing.Longest)
	}
	return nil, started
}

// discover does one exchange of four messages. Offers that cannot be used are rejected, so that the client uses a
// working server although a broken one answers first. It sends the first message at most tries times; 0 has no limit.
func (c *Client) discover(ctx context.Context, started time.Time, tries int) (*Lease, error) {
	message, err := newMessage(c.Link.Interface().HardwareAddr, dhcpv4.MessageTypeDiscover)
	if err != nil {
		return nil, err
	}
	offer, err := c.exchange(ctx, exchange{
		message: message, started: started, tries: tries, logged: map[string]bool{},
	})
	if err != nil {
		return nil, err
	}
	return c.request(ctx, request{
		exchange: exchange{started: started, tries: c.Timing.Requests, server: offer.ServerIdentifier()},
		options: []dhcpv4.Modifier{
			dhcpv4.WithTransactionID(offer.TransactionID),
			dhcpv4.WithOption(dhcpv4.OptRequestedIPAddress(offer.YourIPAddr)),
			dhcpv4.WithOption(dhcpv4.OptServerIdentifier(offer.ServerIdentifier())),
		},
	})
}

// hold keeps a lease: it renews at T1 with the server that granted it, rebinds at T2 with any server, and asks again
// when the carrier came back, because the cable may lead to another network (RFC 2131, sections 4.4.5 and 4.4.2). If
// the interface can have been moved, it also asks for another lease when no server confirms the present one. It returns
// why the lease is lost.
func (c *Client) hold(ctx context.Context, lease *Lease) error {
	c.drainCarrier()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	conflict := c.watchConflict(ctx, lease.Address.Addr())
	var retry time.Duration // until the next try within a phase
	var next *Lease
	var err error
	reason := renewal
	for ctx.Err() == nil {
		if reason == renewal {
			if reason, err = c.wait(ctx, lease, retry, conflict); err != nil {
				c.decline(lease)
				return err
			}
		}
		if ctx.Err() != nil {
			break
		}
		if time.Since(lease.Obtained) >= lease.Duration {
			return dhcp.ErrExpired
		}
		next, err = c.extend(ctx, lease, reason != renewal)
		var refused *refusedError
		if err != nil && reason == moved && !errors.As(err, &refused) && !errors.Is(err, errCarrier) {
			next, err = c.discover(ctx, time.Now(), c.Timing.Requests)
		}
		switch {
		case err == nil:
			if err := c.Handler.Use(next, reason == renewal); err != nil {
				return err
			}
			level := slog.LevelInfo
			if reason == moved && next.Address == lease.Address { // is asked often
				level = slog.LevelDebug
			}
			c.Log.Log(ctx, level, "lease renewed", "interface", c.Link.Interface().Name,
				"address", next.Address.String(), "server", next.Server.String(), "lifetime", next.Duration)
			if next.Address != lease.Address {
				conflict = c.watchConflict(ctx, next.Address.Addr())
			}
			lease, retry, reason, c.declines = next, 0, renewal, 0
		case errors.As(err, &refused):
			return err
		case errors.Is(err, errCarrier):
			retry, reason = 0, carrierBack
		default:
			// A server that does not confirm may be down: the lease is valid until it expires (RFC 2131, section 3.2).
			retry = 0
			if reason == renewal && ctx.Err() == nil {
				retry = c.untilRetry(lease)
				c.Handler.Failed("lease not renewed", err)
			}
			reason = renewal
		}
	}
	return ctx.Err()
}

// reason is why the client asks a server about its lease.
type reason int

const (
	renewal     reason = iota // it is time to
	carrierBack               // the carrier came back
	moved                     // the interface can be on another network
)

// wait waits until the lease has to be renewed, it expires, or ctx ends. It returns earlier if there is another reason
// to ask, or with the error of a conflict.
func (c *Client) wait(
	ctx context.Context, lease *Lease, retry time.Duration, conflict <-chan error,
) (reason, error) {
	age := time.Since(lease.Obtained)
	wait := max(lease.Renew-age, retry)
	if lease.Duration != dhcp.Forever {
		wait = min(wait, lease.Duration-age)
	}
	timer := time.NewTimer(max(wait, 0))
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	case <-c.Carrier:
		return carrierBack, nil
	case <-c.Moved:
		return moved, nil
	case err := <-conflict:
		return renewal, err
	}
	return renewal, nil
}

func (c *Client) drainCarrier() {
	select {
	case <-c.Carrier:
	default:
	}
}

// untilRetry returns half of the time that is left of the phase, but at least MinRenewal.
func (c *Client) untilRetry(lease *Lease) time.Duration {
	age := time.Since(lease.Obtained)
	end := lease.Duration
	if age < lease.Rebind {
		end = lease.Rebind
	}
	if end == dhcp.Forever {
		return c.Timing.MinRenewal
	}
	return min(max((end-age)/2, c.Timing.MinRenewal), max(end-age, 0))
}

// extend asks once to extend a lease.
func (c *Client) extend(ctx context.Context, lease *Lease, confirm bool) (*Lease, error) {
	address := lease.Address.Addr()
	r := request{exchange: exchange{started: time.Now(), tries: 1}, before: lease}
	switch age := time.Since(lease.Obtained); {
	case confirm: // INIT-REBOOT
		r.tries = c.Timing.Requests
		r.options = []dhcpv4.Modifier{dhcpv4.WithOption(dhcpv4.OptRequestedIPAddress(address.AsSlice()))}
		return c.request(ctx, r)
	case age < lease.Rebind: // RENEWING; otherwise REBINDING
		r.server = lease.Server.AsSlice()
		r.destination = lease.Server
	}
	r.source = address
	r.options = []dhcpv4.Modifier{dhcpv4.WithClientIP(address.AsSlice())}
	return c.request(ctx, r)
}

// maxDeclines limits how often in a row an address that another machine has is declined. The next one is used despite
// the conflict: a machine that is reachable half of the time is better than one that is never reachable.
const maxDeclines = 2

const ethernetLen = 6 // of a MAC address

// watchConflict probes an address in the background. The channel receives the error if another machine has the
// address.
func (c *Client) watchConflict(ctx context.Context, address netip.Addr) <-chan error {
	found := make(chan error, 1)
	on := c.Link.Interface()
	if c.declines >= maxDeclines {
		c.Log.Warn("address used despite a conflict", "interface", on.Name, "address", address)
		return found
	}
	if len(on.HardwareAddr) != ethernetLen {
		return found
	}
	goroutine.Go(func() error { return c.sockets.detect(ctx, on, address, c.Timing.First) }, func(err error) {
		var conflict *arp.ConflictError
		switch {
		case ctx.Err() != nil:
		case errors.As(err, &conflict):
			found <- err
		default:
			c.Log.Debug("no address conflict detected", "interface", on.Name, "address", address, "err", err)
		}
	})
	return found
}

// decline tells the server that its address is in use (RFC 2131, section 4.4.4). The server does not answer.
func (c *Client) decline(lease *Lease) {
	c.declines++
	on := c.Link.Interface()
	message, err := newMessage(on.HardwareAddr, dhcpv4.MessageTypeDecline,
		dhcpv4.WithOption(dhcpv4.OptRequestedIPAddress(lease.Address.Addr().AsSlice())),
		dhcpv4.WithOption(dhcpv4.OptServerIdentifier(lease.Server.AsSlice())))
	if err == nil {
		var conn net.PacketConn
		if conn, err = c.sockets.broadcast(on); err == nil {
			_, err = conn.WriteTo(message.ToBytes(), &net.UDPAddr{IP: net.IPv4bcast, Port: dhcpv4.ServerPort})
			err = errors.Join(err, conn.Close())
		}
	}
	if err != nil {
		c.Log.Debug("address not declined", "interface", on.Name, "err", err)
	}
}
