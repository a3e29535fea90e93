package server

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"

	"golang.org/x/net/ipv6"

	"ironroot/internal/goroutine"
)

// Advertiser replies to router solicitations that there is no router and that there are no IPv6 addresses (RFC 4861,
// section 4.2). Without a reply iPXE repeats its solicitations for 15 to 20 seconds before it continues with IPv4.
type Advertiser struct {
	log   *slog.Logger
	link  *net.Interface
	conn  *ipv6.PacketConn
	ended chan struct{}

	closeOnce sync.Once
	closeErr  error
}

// ListenAdvertiser replies on an interface until ctx ends or Close is called. The interface needs an IPv6 link-local
// address, which the kernel assigns.
func ListenAdvertiser(ctx context.Context, log *slog.Logger, name string) (*Advertiser, error) {
	link, err := net.InterfaceByName(name)
	if err != nil {
		return nil, fmt.Errorf("router advertisements: %s: %w", name, err)
	}
	var listen net.ListenConfig
	raw, err := listen.ListenPacket(ctx, "ip6:ipv6-icmp", "::")
	if err != nil {
		return nil, fmt.Errorf("router advertisements: %s: %w", name, err)
	}
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	a := &Advertiser{log: log, link: link, conn: ipv6.NewPacketConn(raw), ended: make(chan struct{})}
	if err := a.prepare(); err != nil {
		return nil, fmt.Errorf("router advertisements: %s: %w", name, errors.Join(err, raw.Close()))
	}
	stop := goroutine.AfterContext(ctx, func() { _ = a.close() })
	goroutine.Go(func() error {
		a.serve()
		return nil
	}, func(error) {
		stop()
		close(a.ended)
	})
	return a, nil
}

// prepare configures the socket to receive only router solicitations of the interface.
func (a *Advertiser) prepare() error {
	var filter ipv6.ICMPFilter
	filter.SetAll(true)
	filter.Accept(ipv6.ICMPTypeRouterSolicitation)
	return errors.Join(
		a.conn.SetICMPFilter(&filter),
		a.conn.SetControlMessage(ipv6.FlagInterface|ipv6.FlagHopLimit, true),
		a.conn.JoinGroup(a.link, &net.IPAddr{IP: net.IPv6linklocalallrouters}),
		a.conn.SetMulticastInterface(a.link),
		a.conn.SetMulticastHopLimit(255),
		a.conn.SetMulticastLoopback(false),
	)
}

func (a *Advertiser) serve() {
	buffer := make([]byte, 1500)
	everybody := &net.IPAddr{IP: net.IPv6linklocalallnodes, Zone: a.link.Name}
	for {
		_, control, from, err := a.conn.ReadFrom(buffer)
		if err != nil {
			if !errors.Is(err, net.ErrClosed) {
				a.log.Error("router advertisements ended", "interface", a.link.Name, "err", err)
			}
			return
		}
		// A packet with a hop limit below 255 has passed a router (RFC 4861, section 6.1.1).
		if control == nil || control.IfIndex != a.link.Index || control.HopLimit != 255 {
			continue
		}
		if _, err := a.conn.WriteTo(noRouter(), nil, everybody); err != nil {
			a.log.Warn("router advertisement not sent", "interface", a.link.Name, "err", err)
			continue
		}
		a.log.Debug("router advertisement", "interface", a.link.Name, "client", from.String())
	}
}

// noRouter returns an advertisement with a router lifetime of zero and without prefixes. The kernel sets the checksum.
func noRouter() []byte {
	message := make([]byte, 16)
	message[0] = byte(ipv6.ICMPTypeRouterAdvertisement)
	message[4] = 64 // hop limit of the hosts' packets
	return message
}

// Close stops the advertiser and waits until its socket is closed.
func (a *Advertiser) Close() error {
	err := a.close()
	<-a.ended
	return err
}

// close closes the socket once. Each call returns when the socket is closed.
func (a *Advertiser) close() error {
	a.closeOnce.Do(func() { a.closeErr = a.conn.Close() })
	return a.closeErr
}
