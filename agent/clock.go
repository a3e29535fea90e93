package agent

import (
	"context"
	"net/netip"
	"slices"
	"time"

	"ironroot/agent/clock"
	"ironroot/agent/fault"
)

// How long the answers of time servers are waited for: of one that the operator named, with its name to be resolved, and
// of those that the network names, which nobody asked for.
const (
	clockTime        = 15 * time.Second
	networkClockTime = 3 * time.Second
)

// TimeServers knows the NTP servers that the machine's network names.
type TimeServers interface{ TimeServers() []netip.Addr }

// setClock sets the system's clock and the hardware clock from the configured NTP server, or else from those that DHCP
// named: once at the start, as a certificate is not valid on a machine whose clock stands years back, and once before the
// machine stops, for the operating system that is started next. That it failed is an error only where the operator wants
// it to be.
func (a *agent) setClock(ctx context.Context) error {
	c := a.config.Get()
	servers, changed, limit := func() []string { return []string{c.NTPServer} }, unchanged, clockTime
	if c.NTPServer == "" {
		servers, limit = a.networkTimeServers, networkClockTime
		if a.o.Network != nil {
			changed = a.o.Network.Changed
		}
	}
	if len(servers()) == 0 || !a.o.Destructive {
		return nil
	}
	limited, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	err := a.setClockFrom(limited, servers, changed)
	if err == nil || ctx.Err() != nil {
		return ctx.Err()
	}
	if c.FailIfClockNotSet {
		return fault.ClockSync("%w", err)
	}
	return nil
}

// networkTimeServers returns the time servers that DHCP named, each once.
func (a *agent) networkTimeServers() []string {
	network, ok := a.o.Network.(TimeServers)
	if !ok {
		return nil
	}
	var servers []string
	for _, address := range network.TimeServers() {
		if server := address.String(); !slices.Contains(servers, server) {
			servers = append(servers, server)
		}
	}
	return servers
}

// unchanged is a network that does not change.
func unchanged() <-chan struct{} { return nil }

func (a *agent) setClockFrom(ctx context.Context, servers func() []string, changed func() <-chan struct{}) error {
	answer, server, err := clock.Ask(ctx, servers, changed, a.log)
	if err != nil {
		a.log.Warn("clock not set: no time server is followed", "servers", servers()) // Ask has said why
		return err
	}
	off := answer.Offset()
	if err := a.setTime(answer.Now()); err != nil {
		a.log.Warn("clock not set", "server", server, "err", err)
		return err
	}
	a.log.Info("clock set", "server", server, "off_by", off.Round(time.Millisecond))
	return nil
}

// setTime sets the system's clock and the hardware clock.
func setTime(now time.Time) error {
	if err := clock.SetSystem(now); err != nil {
		return err
	}
	return clock.SetHardware(now)
}
