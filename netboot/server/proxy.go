package server

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"

	"github.com/insomniacslk/dhcp/dhcpv4"
)

// proxyPort is the port at which PXE firmware requests the boot file after it has an address (PXE 2.1, section 2.1).
const proxyPort = 4011

// ProxyConfig describes a proxy DHCP server.
type ProxyConfig struct {
	Log       *slog.Logger // may be nil
	Interface string       // the only interface that is served
	Address   netip.Addr   // the server's address on it
	Boot      Boot
}

// Proxy is a running proxy DHCP server (PXE 2.1, section 2.2.5). It adds boot files to the addresses that the network's
// own DHCP server assigns, and replies only to clients that boot from the network.
type Proxy struct {
	config ProxyConfig
	// offers receives what clients broadcast, requests what they send to this machine when they have an address.
	offers, requests *listener
}

// ListenProxy starts a proxy DHCP server that runs until ctx ends or Close is called. It opens its sockets before it
// returns, in the network namespace of the calling thread. It fails if another DHCP server on this machine listens on
// the interface.
func ListenProxy(ctx context.Context, config ProxyConfig) (*Proxy, error) {
	if config.Interface == "" || !config.Address.Is4() {
		return nil, fmt.Errorf("proxy dhcp server: got interface %q with address %s, want one with an IPv4 address",
			config.Interface, config.Address)
	}
	if config.Log == nil {
		config.Log = slog.New(slog.DiscardHandler)
	}
	offers, err := listen(config.Interface, dhcpv4.ServerPort, true)
	if err != nil {
		return nil, fmt.Errorf("proxy dhcp server: %w", err)
	}
	requests, err := listen(config.Interface, proxyPort, true)
	if err != nil {
		return nil, fmt.Errorf("proxy dhcp server: %w", errors.Join(err, offers.close()))
	}
	p := &Proxy{config: config, offers: offers, requests: requests}
	offers.serve(ctx, config.Log, func(peer *net.UDPAddr, m *dhcpv4.DHCPv4) {
		p.reply(offers, peer, m, dhcpv4.MessageTypeDiscover, dhcpv4.MessageTypeOffer)
	})
	requests.serve(ctx, config.Log, func(peer *net.UDPAddr, m *dhcpv4.DHCPv4) {
		p.reply(requests, peer, m, dhcpv4.MessageTypeRequest, dhcpv4.MessageTypeAck)
	})
	return p, nil
}

// Close stops the server and waits until its sockets are closed.
func (p *Proxy) Close() error {
	if err := errors.Join(p.offers.close(), p.requests.close()); err != nil {
		return fmt.Errorf("proxy dhcp server: close: %w", err)
	}
	return nil
}

// reply replies to a message of the type want with one of the type kind.
func (p *Proxy) reply(l *listener, peer *net.UDPAddr, m *dhcpv4.DHCPv4, want, kind dhcpv4.MessageType) {
	answer, err := p.answer(m, want, kind)
	if err != nil {
		p.config.Log.Warn("dhcp message not answered", "interface", p.config.Interface,
			"mac", m.ClientHWAddr.String(), "message", m.MessageType().String(), "err", err)
		return
	}
	if answer != nil {
		l.send(peer, m, answer)
	}
}

// answer returns the reply to a message, nil if there is none. It never contains an address.
func (p *Proxy) answer(m *dhcpv4.DHCPv4, want, kind dhcpv4.MessageType) (*dhcpv4.DHCPv4, error) {
	if m.MessageType() != want || !m.GatewayIPAddr.IsUnspecified() {
		return nil, nil // the network of a relay agent is another one
	}
	client, file := p.config.Boot.choose(m)
	if file == "" {
		return nil, nil
	}
	options := append([]dhcpv4.Modifier{
		dhcpv4.WithMessageType(kind),
		dhcpv4.WithOption(dhcpv4.OptServerIdentifier(p.config.Address.AsSlice())),
	}, p.config.Boot.options(m, client, file, p.config.Address, true)...)
	return dhcpv4.NewReplyFromRequest(m, options...)
}
