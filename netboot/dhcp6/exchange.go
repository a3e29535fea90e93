package dhcp6

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"net"
	"slices"
	"time"

	"github.com/insomniacslk/dhcp/dhcpv6"
	"github.com/insomniacslk/dhcp/iana"

	"ironroot/internal/goroutine"
	"ironroot/netboot/dhcp"
)

// maxMessageBytes limits an answer. The library copies the rest of a message at each level of nested options: an
// answer of 64 KiB could take 100 MiB.
const maxMessageBytes = 8 << 10

// exchange describes a message that is sent until it is answered.
type exchange struct {
	kind      dhcpv6.MessageType
	addresses *Lease // nil: none are requested; otherwise those to request
	options   []dhcpv6.Option
	accept    dhcpv6.MessageType // besides a reply; 0 = nothing
	tries     int                // 0 = forever
}

// wantsAddress reports whether an answer needs an address.
func (e exchange) wantsAddress() bool {
	return e.addresses != nil && e.kind != dhcpv6.MessageTypeConfirm && e.kind != dhcpv6.MessageTypeDecline
}

// ask sends a message until it is answered. The time between two transmissions doubles each time. Answers that cannot
// be used are rejected, so that the client uses a working server although a broken one answers first. The refusal of
// the server that granted the lease is a *statusError.
func (c *Client) ask(ctx context.Context, e exchange) (*Lease, error) {
	started := time.Now()
	timeout := c.Timing.First
	var err error
	transaction := rand.Uint32()
	for try := 0; e.tries == 0 || try < e.tries; try++ {
		message := c.message(e, transaction, time.Since(started))
		c.Handler.Sent(started)
		var lease *Lease
		lease, err = c.attempt(ctx, e, message, dhcp.Jitter(timeout))
		var refused *statusError
		if err == nil || errors.As(err, &refused) {
			return lease, err
		}
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		if try == 2 && e.tries == 0 {
			c.Handler.Failed("no answer by DHCPv6 yet", err)
		}
		timeout = min(2*timeout, c.Timing.Longest)
	}
	return nil, err
}

// message returns a message with the options that all of the client's messages have.
func (c *Client) message(e exchange, transaction uint32, elapsed time.Duration) *dhcpv6.Message {
	const maxElapsed = math.MaxUint16 * 10 * time.Millisecond
	m := &dhcpv6.Message{
		MessageType:   e.kind,
		TransactionID: dhcpv6.TransactionID{byte(transaction), byte(transaction >> 8), byte(transaction >> 16)},
	}
	m.AddOption(dhcpv6.OptClientID(c.duid))
	m.AddOption(dhcpv6.OptElapsedTime(min(elapsed, maxElapsed)))
	m.AddOption(dhcpv6.OptRequestedOption(dhcpv6.OptionDNSRecursiveNameServer, dhcpv6.OptionDomainSearchList,
		dhcpv6.OptionNTPServer, dhcpv6.OptionSNTPServerList, dhcpv6.OptionInformationRefreshTime))
	for _, option := range e.options {
		m.AddOption(option)
	}
	if e.addresses != nil {
		association := &dhcpv6.OptIANA{IaId: c.iaid} // the server chooses the times
		for _, address := range e.addresses.Addresses {
			association.Options.Add(&dhcpv6.OptIAAddress{IPv6Addr: address.AsSlice()})
		}
		m.AddOption(association)
	}
	return m
}

// attempt sends once and waits for a usable answer.
func (c *Client) attempt(
	ctx context.Context, e exchange, message *dhcpv6.Message, limit time.Duration,
) (*Lease, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, limit, errNoAnswer)
	defer cancel()
	asked := time.Now()
	name := c.Link.Interface().Name
	conn, err := c.transport.listen(ctx, name)
	if err == nil {
		defer conn.Close() //nolint:errcheck // the socket is no longer used
		servers := &net.UDPAddr{IP: dhcpv6.AllDHCPRelayAgentsAndServers, Port: dhcpv6.DefaultServerPort, Zone: name}
		_, err = conn.WriteTo(message.ToBytes(), servers)
	}
	if err != nil {
		<-ctx.Done() // the interface may come back; the next attempt is not earlier than without an answer
		return nil, fmt.Errorf("send DHCPv6 message: %w", err)
	}
	defer goroutine.AfterContext(ctx, func() { _ = conn.Close() })()
	return c.receive(ctx, conn, name, e, message, asked)
}

// receive returns the first usable answer that arrives before ctx ends.
func (c *Client) receive(
	ctx context.Context, conn net.PacketConn, name string, e exchange, message *dhcpv6.Message, asked time.Time,
) (*Lease, error) {
	binding := e.kind != dhcpv6.MessageTypeSolicit && e.kind != dhcpv6.MessageTypeInformationRequest
	rejected := errNoAnswer
	buffer := make([]byte, maxMessageBytes)
	for {
		size, _, err := conn.ReadFrom(buffer)
		if err != nil {
			<-ctx.Done()
			if errors.Is(context.Cause(ctx), errNoAnswer) {
				return nil, rejected
			}
			return nil, context.Cause(ctx)
		}
		var lease *Lease
		var warnings dhcp.Warnings
		// An answer that causes a panic is dropped: another server may answer.
		err = goroutine.Catch(func() (err error) {
			lease, warnings, err = c.read(e, message, buffer[:size], asked)
			return err
		})
		var refused *statusError
		switch {
		case err == nil:
			for _, warning := range warnings {
				c.Log.Warn("value of the DHCPv6 answer ignored", "interface", name, "err", warning)
			}
			return lease, nil
		case binding && errors.As(err, &refused):
			return nil, err
		case !errors.Is(err, errForeign):
			c.Handler.Rejected(err)
			//nolint:errorlint // a *statusError is not binding here
			rejected = fmt.Errorf("DHCPv6 answer rejected: %v", err)
		}
	}
}

var errForeign = errors.New("not an answer for this client")

// read returns the lease of an answer, and warnings about the values of it that are dropped. The error is errForeign
// if the answer is not for this client or this exchange.
func (c *Client) read(
	e exchange, sent *dhcpv6.Message, raw []byte, asked time.Time,
) (*Lease, dhcp.Warnings, error) {
	m, err := c.transport.parse(slices.Clone(raw))
	if err != nil {
		return nil, nil, err
	}
	id := m.Options.ClientID()
	if m.TransactionID != sent.TransactionID || id == nil || !id.Equal(c.duid) ||
		m.MessageType != dhcpv6.MessageTypeReply && (e.accept == 0 || m.MessageType != e.accept) {
		return nil, nil, errForeign
	}
	lease, warnings, err := parseLease(m, c.iaid, e.wantsAddress(), asked, c.Timing.MinLease)
	if err == nil && e.kind == dhcpv6.MessageTypeSolicit && m.MessageType == dhcpv6.MessageTypeReply {
		if m.GetOneOption(dhcpv6.OptionRapidCommit) == nil {
			return nil, nil, errForeign
		}
		lease.committed = true
	}
	return lease, warnings, err
}

// parseMessage parses an answer. Options that the client does not use, and malformed ones, stay generic: a fault in
// them must not cost the lease. Only malformed identifiers are an error.
func parseMessage(raw []byte) (*dhcpv6.Message, error) {
	m := &dhcpv6.Message{}
	const headerBytes = 4
	if len(raw) < headerBytes {
		return nil, fmt.Errorf("DHCPv6 message has %d bytes, want at least %d", len(raw), headerBytes)
	}
	m.MessageType, m.TransactionID = dhcpv6.MessageType(raw[0]), dhcpv6.TransactionID(raw[1:headerBytes])
	if err := m.Options.FromBytesWithParser(raw[headerBytes:], parseOption); err != nil {
		return nil, fmt.Errorf("parse DHCPv6 options: %w", err)
	}
	return m, nil
}

func parseOption(code dhcpv6.OptionCode, value []byte) (dhcpv6.Option, error) {
	switch code {
	case dhcpv6.OptionClientID, dhcpv6.OptionServerID: // the library expects their types
		return dhcpv6.ParseOption(code, value)
	case dhcpv6.OptionIANA, dhcpv6.OptionStatusCode, dhcpv6.OptionDNSRecursiveNameServer,
		dhcpv6.OptionDomainSearchList, dhcpv6.OptionNTPServer, dhcpv6.OptionSNTPServerList,
		dhcpv6.OptionInformationRefreshTime:
		if option, err := dhcpv6.ParseOption(code, value); err == nil {
			return option, nil
		}
	}
	return &dhcpv6.OptionGeneric{OptionCode: code, OptionData: slices.Clone(value)}, nil
}

// newDUID returns a DUID-LL (RFC 8415, section 11.4). Of an InfiniBand address it has the part that does not change.
func newDUID(mac net.HardwareAddr) dhcpv6.DUID {
	if dhcp.IsInfiniBand(mac) {
		return &dhcpv6.DUIDLL{HWType: iana.HWTypeInfiniband, LinkLayerAddr: dhcp.PortGUID(mac)}
	}
	return &dhcpv6.DUIDLL{HWType: iana.HWTypeEthernet, LinkLayerAddr: mac}
}
