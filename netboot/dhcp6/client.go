package dhcp6

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"time"

	"github.com/insomniacslk/dhcp/dhcpv6"

	"ironroot/netboot/dhcp"
)

// Handler receives the events of a client. The client calls its methods one at a time, and waits until they return.
type Handler interface {
	dhcp.Observer
	// Use applies a lease in place of the one before. If Use fails, the client drops the lease and asks for another
	// one.
	Use(lease *Lease) error
	// Drop removes what Use applied.
	Drop()
}

// Mode selects the data requested by DHCPv6, from less to more.
type Mode int

// The modes.
const (
	Nothing   Mode = iota // routers advertise everything
	Stateless             // name servers and the like: see Inform
	Stateful              // addresses too: see Run
)

// Config describes a client.
type Config struct {
	Link dhcp.Link
	// Carrier receives a value each time when the interface gets its carrier back: the client then confirms its lease.
	Carrier <-chan struct{}
	// Duplicate receives a value when the kernel finds that another machine has an address of the lease (RFC 4862,
	// section 5.4).
	Duplicate <-chan struct{}
	Timing    dhcp.Timing
	Log       *slog.Logger
	Handler   Handler
}

// Client is the client of one interface.
type Client struct {
	Config
	duid      dhcpv6.DUID
	iaid      [4]byte
	transport transport
}

// transport opens the sockets of a client and parses its messages.
type transport interface {
	// listen opens a socket that is bound to an interface.
	listen(ctx context.Context, name string) (net.PacketConn, error)
	parse(raw []byte) (*dhcpv6.Message, error)
}

// kernelTransport opens sockets of the kernel.
type kernelTransport struct{}

func (kernelTransport) parse(raw []byte) (*dhcpv6.Message, error) { return parseMessage(raw) }

// New returns a client. It does nothing until Run or Inform. Its identifiers derive from the interface's present MAC
// address: they are the same at each boot, and servers that identify machines by their MAC address find it in them.
func New(c Config) *Client {
	mac := c.Link.Interface().HardwareAddr
	client := &Client{Config: c, duid: newDUID(mac), transport: kernelTransport{}}
	if len(mac) >= len(client.iaid) {
		copy(client.iaid[:], mac[len(mac)-len(client.iaid):])
	}
	return client
}

var errNoAnswer = errors.New("no answer from a DHCPv6 server")

// Inform keeps name servers and the like until ctx ends. It does not request addresses. The last lease is not dropped.
func (c *Client) Inform(ctx context.Context) {
	for ctx.Err() == nil {
		lease, err := c.ask(ctx, exchange{kind: dhcpv6.MessageTypeInformationRequest})
		if err != nil {
			return // ctx has ended: without a limit of tries there is no other error
		}
		if err := c.Handler.Use(lease); err != nil {
			c.Handler.Failed("DHCPv6 information not used", err)
		}
		c.wait(ctx, lease.Renew)
	}
}

// Run requests addresses and keeps them until ctx ends, through the states of RFC 8415, section 18.2. The last lease
// is not dropped.
func (c *Client) Run(ctx context.Context) {
	for ctx.Err() == nil {
		lease, err := c.acquire(ctx)
		if err == nil {
			err = c.Handler.Use(lease)
		}
		if err == nil {
			c.log("DHCPv6 lease obtained", lease)
			err = c.hold(ctx, lease)
		}
		if ctx.Err() != nil {
			return
		}
		c.Handler.Failed("no DHCPv6 lease", err)
		c.Handler.Drop()
		c.wait(ctx, c.Timing.First)
	}
}

func (c *Client) log(message string, lease *Lease) {
	c.Log.Info(message, "interface", c.Link.Interface().Name, "address", fmt.Sprint(lease.Addresses),
		"lifetime", lease.Duration)
}

// acquire solicits until a server offers an address and then requests it. A server may also grant it at once (rapid
// commit). The first usable offer is taken: to wait for better ones would delay each boot by a second.
func (c *Client) acquire(ctx context.Context) (*Lease, error) {
	offer, err := c.ask(ctx, exchange{
		kind: dhcpv6.MessageTypeSolicit, addresses: &Lease{}, accept: dhcpv6.MessageTypeAdvertise,
		options: []dhcpv6.Option{&dhcpv6.OptionGeneric{OptionCode: dhcpv6.OptionRapidCommit}},
	})
	if err != nil || offer.committed {
		return offer, err
	}
	return c.ask(ctx, exchange{
		kind: dhcpv6.MessageTypeRequest, addresses: offer, tries: c.Timing.Requests,
		options: []dhcpv6.Option{dhcpv6.OptServerID(offer.server)},
	})
}

// hold renews a lease at T1 with its server and rebinds it at T2 with any server. When the carrier comes back it asks
// whether the addresses still fit the link. It returns why the lease is lost.
func (c *Client) hold(ctx context.Context, lease *Lease) error {
	wait := lease.Renew
	for ctx.Err() == nil {
		if lease.Duration != dhcp.Forever {
			wait = min(wait, max(lease.Duration-time.Since(lease.Obtained), 0))
		}
		switch c.wait(ctx, wait) {
		case carrierBack:
			if err := c.confirm(ctx, lease); err != nil {
				return err
			}
			wait = max(lease.Renew-time.Since(lease.Obtained), c.Timing.MinRenewal)
			continue
		case duplicateAddress:
			return c.decline(ctx, lease)
		case timeout:
		}
		age := time.Since(lease.Obtained)
		if age >= lease.Duration {
			return dhcp.ErrExpired
		}
		e := exchange{kind: dhcpv6.MessageTypeRebind, addresses: lease, tries: 1}
		if age < lease.Rebind {
			e.kind, e.options = dhcpv6.MessageTypeRenew, []dhcpv6.Option{dhcpv6.OptServerID(lease.server)}
		}
		next, err := c.ask(ctx, e)
		var refused *statusError
		switch {
		case err == nil:
			if err := c.Handler.Use(next); err != nil {
				return err
			}
			c.log("DHCPv6 lease renewed", next)
			lease, wait = next, next.Renew
		case errors.As(err, &refused):
			return err
		case ctx.Err() == nil:
			c.Handler.Failed("DHCPv6 lease not renewed", err)
			wait = c.Timing.MinRenewal
		}
	}
	return ctx.Err()
}

// confirm asks any server whether the addresses fit the link (RFC 8415, section 18.2.3). Without an answer the lease
// stays valid.
func (c *Client) confirm(ctx context.Context, lease *Lease) error {
	const tries = 5 // a switch port that has just come up drops the first ones
	_, err := c.ask(ctx, exchange{kind: dhcpv6.MessageTypeConfirm, addresses: lease, tries: tries})
	var refused *statusError
	if errors.As(err, &refused) {
		return err
	}
	if err != nil {
		c.Log.Debug("DHCPv6 lease not confirmed", "interface", c.Link.Interface().Name, "err", err)
	}
	return nil
}

// decline tells the server that another machine has one of the addresses (RFC 8415, section 18.2.8), so that it grants
// another one.
func (c *Client) decline(ctx context.Context, lease *Lease) error {
	_, err := c.ask(ctx, exchange{
		kind: dhcpv6.MessageTypeDecline, addresses: lease, tries: 1,
		options: []dhcpv6.Option{dhcpv6.OptServerID(lease.server)},
	})
	c.Log.Debug("address declined", "interface", c.Link.Interface().Name, "err", err)
	return fmt.Errorf("one of the addresses %v is in use by another machine", lease.Addresses)
}

// event is why a wait is over.
type event int

const (
	timeout event = iota // or the context has ended
	carrierBack
	duplicateAddress
)

func (c *Client) wait(ctx context.Context, d time.Duration) event {
	timer := time.NewTimer(max(d, 0))
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	case <-c.Carrier:
		return carrierBack
	case <-c.Duplicate:
		return duplicateAddress
	}
	return timeout
}
