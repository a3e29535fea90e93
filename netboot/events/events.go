//go:build linux

// Package events receives the kernel's events of links, addresses and routers (rtnetlink(7)).
package events

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/vishvananda/netlink"

	"ironroot/internal/goroutine"
	"ironroot/internal/pause"
	"ironroot/netboot/radv"
)

// Subscription receives events. Its channels are closed when the kernel dropped some.
type Subscription struct {
	Links     <-chan netlink.LinkUpdate
	Addresses <-chan netlink.AddrUpdate
	Routers   <-chan radv.Advertisement
	done      chan struct{}
}

// receiveBuffer is the requested size of the socket's buffer, in bytes: all links of a machine may appear at once.
const receiveBuffer = 1 << 20

// Subscribe starts to receive events. The subscription must be closed.
func Subscribe() (*Subscription, error) {
	s := &Subscription{done: make(chan struct{})}
	if err := s.subscribe(); err != nil {
		s.Close()
		return nil, err
	}
	return s, nil
}

// subscribe sets the channels that events are sent to, up to the first error.
func (s *Subscription) subscribe() error {
	links := make(chan netlink.LinkUpdate, 64)
	linkOptions := netlink.LinkSubscribeOptions{ReceiveBufferSize: receiveBuffer}
	if err := netlink.LinkSubscribeWithOptions(links, s.done, linkOptions); err != nil {
		return fmt.Errorf("watch links: %w", err)
	}
	s.Links = links
	addresses := make(chan netlink.AddrUpdate, 64)
	addressOptions := netlink.AddrSubscribeOptions{ReceiveBufferSize: receiveBuffer}
	if err := netlink.AddrSubscribeWithOptions(addresses, s.done, addressOptions); err != nil {
		return fmt.Errorf("watch addresses: %w", err)
	}
	s.Addresses = addresses
	routers := make(chan radv.Advertisement, 64)
	if err := radv.Subscribe(routers, s.done); err != nil {
		return err
	}
	s.Routers = routers
	return nil
}

// Resubscribe subscribes until it succeeds. It returns nil if ctx ends before.
func Resubscribe(ctx context.Context, log *slog.Logger) *Subscription {
	for {
		s, err := Subscribe()
		if err == nil {
			return s
		}
		log.Warn("link events were lost", "err", err)
		if pause.For(ctx, time.Second) != nil {
			return nil
		}
	}
}

// Close ends the subscription. The library's readers notice that only if their channels are emptied.
func (s *Subscription) Close() {
	close(s.done)
	empty(s.Links)
	empty(s.Addresses)
	empty(s.Routers)
}

// empty drops all values of a channel until it is closed. Nil is a channel that nothing is sent to.
func empty[T any](events <-chan T) {
	if events == nil {
		return
	}
	goroutine.Go(func() error {
		for range events { //nolint:revive // dropped on purpose
		}
		return nil
	}, nil)
}
