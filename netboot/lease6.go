//go:build linux

package netboot

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"ironroot/internal/goroutine"
	"ironroot/netboot/dhcp"
	"ironroot/netboot/dhcp6"
	"ironroot/netboot/ifconfig"
	"ironroot/netboot/plan"
	"ironroot/netboot/resolver"
)

// lease6 applies the leases of a link's DHCPv6 client and keeps its history. It must not be used concurrently.
type lease6 struct {
	link   *link
	source ifconfig.Source
	role   plan.Role
}

// run requests by DHCPv6 what the link's routers announce, until ctx ends. Without a router it does nothing. It
// requests more when a router announces more, but never less, because two routers may differ. Static data may require
// more than routers announce, or nothing.
func (a *lease6) run(ctx context.Context, r plan.Role) {
	a.role = r
	for mode := dhcp6.Nothing; ctx.Err() == nil; {
		for mode < a.wanted() && ctx.Err() == nil {
			mode = a.wanted()
			a.ask(ctx, mode)
		}
		select {
		case <-ctx.Done():
			return
		case <-a.link.advertised:
		}
	}
}

// ask runs the client in one mode until a router offers more.
func (a *lease6) ask(ctx context.Context, mode dhcp6.Mode) {
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	goroutine.Go(func() error {
		a.link.persist(ctx, func() {
			if client := a.client(); mode == dhcp6.Stateful {
				client.Run(ctx)
			} else {
				client.Inform(ctx)
			}
		})
		return nil
	}, func(error) { close(done) })
	defer func() {
		cancel()
		<-done
	}()
	for a.wanted() <= mode && ctx.Err() == nil {
		select {
		case <-ctx.Done():
		case <-a.link.advertised:
		}
	}
}

// wanted returns what is to be requested.
func (a *lease6) wanted() dhcp6.Mode {
	if !a.role.DHCP6 {
		return a.role.Ask6
	}
	return max(a.role.Ask6, a.link.State().offered)
}

func (a *lease6) client() *dhcp6.Client {
	l := a.link
	return dhcp6.New(dhcp6.Config{
		Link: l, Carrier: l.carrier6, Duplicate: l.duplicate, Timing: l.timing.DHCP,
		Log: l.log, Handler: a,
	})
}

// config6 returns what a lease configures. The addresses are single ones: which subnets are on the link, only routers
// say (RFC 5942).
func config6(l *dhcp6.Lease) ifconfig.Config {
	var c ifconfig.Config
	for _, address := range l.Addresses {
		c.Addresses = append(c.Addresses, netip.PrefixFrom(address, address.BitLen()))
	}
	if l.Duration != dhcp.Forever {
		c.Valid = max(time.Until(l.Obtained.Add(l.Duration)), time.Second)
	}
	if l.Preferred != dhcp.Forever {
		c.Preferred = max(time.Until(l.Obtained.Add(l.Preferred)), time.Second)
	}
	return c
}

// Use applies a lease in place of the one before.
func (a *lease6) Use(lease *dhcp6.Lease) error {
	l := a.link
	config := config6(lease)
	metric, before := l.metric(), a.source.Config()
	// The kernel may report a duplicate address before Replace returns.
	granted := slices.Concat(before.Addresses, config.Addresses)
	l.Change(func(s *state) { s.granted, s.names.dhcp6 = granted, lease.Names() })
	if last := l.State().link.Lease6; last != nil {
		config.Expiring = before.Replaced(expiry(last.Obtained, last.Duration), config, lease.Revoked)
		logReplaced(l, config)
	}
	l.names.write()
	err := a.source.Replace(metric, config)
	l.Change(func(s *state) {
		s.granted = a.source.Config().Addresses
		if err == nil {
			s.link.Lease6, s.failures[partDHCP6] = lease, nil
		}
	})
	if err != nil {
		return fmt.Errorf("use DHCPv6 lease: %w", err)
	}
	return nil
}

// Drop removes the addresses of the lease; addresses of routers stay.
func (a *lease6) Drop() {
	l := a.link
	if err := a.source.Clear(); err != nil {
		l.log.Error("addresses of the DHCPv6 lease not removed", "interface", l.name(), "err", err)
	}
	l.Change(func(s *state) { s.granted, s.names.dhcp6, s.link.Lease6 = nil, resolver.Names{}, nil })
	l.names.write()
}

// Sent counts a message of the client.
func (a *lease6) Sent(since time.Time) {
	a.link.Change(func(s *state) { s.link.History.DHCP6.Count(since) })
}

// Rejected records why an answer is not used.
func (a *lease6) Rejected(cause error) {
	a.link.Change(func(s *state) { s.link.History.DHCP6.Rejected = cause.Error() })
}

// Failed records and logs why there is no lease.
func (a *lease6) Failed(message string, err error) { a.link.fail(partDHCP6, message, err) }
