package agent

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"slices"
	"time"

	"ironroot/agent/clock"
	"ironroot/agent/fault"
	"ironroot/internal/pause"
)

// Timeouts for the replies of time servers: of the one that the operator configured, including the resolution of its
// name, and of those that the network announces.
const (
	clockTimeout        = 15 * time.Second
	networkClockTimeout = 3 * time.Second
)

// clockInterval is the time after which the operator's time server is queried again. A cheap oscillator is off by less
// than half a second after it.
const clockInterval = time.Hour

// clockTolerance is the difference from Ironic's clock up to which a clock is not set. A Date header and a hardware
// clock have whole seconds.
const clockTolerance = 2 * time.Second

// TimeServers knows the NTP servers that the machine's network names.
type TimeServers interface{ TimeServers() []netip.Addr }

// clocks are the clocks of a machine. [clock.Machine] implements it.
type clocks interface {
	Now() time.Time
	SetSystem(now time.Time) error
	Hardware() (time.Time, error) // fs.ErrNotExist if the machine has none
	SetHardware(now time.Time) error
}

// verifiedTime knows Ironic's time. *ironic.Client implements it.
type verifiedTime interface {
	// VerifiedTime is from the last response of Ironic that TLS has verified.
	VerifiedTime() (now time.Time, ok bool)
}

// ironicTime returns Ironic's time if TLS has verified it.
func (a *agent) ironicTime() (now time.Time, ok bool) {
	if a.ironicClock == nil {
		return time.Time{}, false
	}
	return a.ironicClock.VerifiedTime()
}

// setClock sets the clocks at the start, because certificates are not valid on a machine whose clock is years behind.
// A time server that the operator configured sets the system clock and the hardware clock. Time servers that DHCP or
// multicast DNS name are not trusted, because any host on the provisioning network can announce one: they are queried
// only if the system clock cannot be right, and never set the hardware clock. A clock that was not set is an error
// only if fail_if_clock_not_set is set.
func (a *agent) setClock(ctx context.Context) error {
	if !a.o.Destructive {
		return nil
	}
	if a.timeServer != "" {
		_, err := a.setNamedClock(ctx)
		return err
	}
	wrong := clock.Check(a.clocks.Now())
	if wrong == nil || len(a.networkTimeServers()) == 0 {
		return nil
	}
	changed := unchanged
	if a.o.Machine.Network != nil {
		changed = a.o.Machine.Network.Changed
	}
	a.log.Warn("system clock implausible, querying the network's time servers", "err", wrong)
	limited, cancel := context.WithTimeout(ctx, networkClockTimeout)
	defer cancel()
	err := a.setClockFrom(limited, a.networkTimeServers, changed, func(now time.Time) error {
		a.clockUnverified.Store(true)
		return a.clocks.SetSystem(now)
	})
	return a.clockFault(ctx, err)
}

// SetClocks implements [extension.Stop]. It sets the clocks for the operating system that starts next. A time server
// that the operator configured sets both. Without one, or if it fails, Ironic's time sets the hardware clock.
func (a *agent) SetClocks(ctx context.Context) error {
	if !a.o.Destructive {
		return nil
	}
	if a.timeServer != "" {
		if set, err := a.setNamedClock(ctx); set || err != nil {
			return err
		}
	}
	a.setHardwareByIronic()
	return nil
}

// keepClock sets the clocks every clockInterval from the time server that the operator configured, until ctx ends. The
// clock of a node that waits in fast track for months would otherwise drift until certificates are not valid. Failures
// are logged and ignored: steps do not depend on the clock.
func (a *agent) keepClock(ctx context.Context) error {
	if !a.o.Destructive || a.timeServer == "" {
		<-ctx.Done()
		return ctx.Err()
	}
	for {
		if err := pause.For(ctx, clockInterval); err != nil {
			return err
		}
		_, _ = a.setNamedClock(ctx) // it logs failures, which are errors only at start and stop
	}
}

// setNamedClock sets both clocks from the server that the operator configured, and reports whether they were set.
func (a *agent) setNamedClock(ctx context.Context) (set bool, err error) {
	limited, cancel := context.WithTimeout(ctx, clockTimeout)
	defer cancel()
	err = a.setClockFrom(limited, func() []string { return []string{a.timeServer} }, unchanged,
		func(now time.Time) error {
			if err := a.clocks.SetSystem(now); err != nil {
				return err
			}
			a.clockUnverified.Store(false)
			return a.clocks.SetHardware(now)
		})
	return err == nil, a.clockFault(ctx, err)
}

// clockFault returns ctx's error once ctx has ended. Otherwise it returns err if the configuration requires a clock
// that is set, and nil if it does not.
func (a *agent) clockFault(ctx context.Context, err error) error {
	if err == nil || ctx.Err() != nil {
		return ctx.Err()
	}
	if a.config.Get().FailIfClockNotSet {
		return fault.ClockSync("%w", err)
	}
	return nil
}

// networkTimeServers returns the time servers that DHCP and multicast DNS named, each once.
func (a *agent) networkTimeServers() []string {
	var servers []string
	if server := a.config.Get().NTPServer; server != "" { // set by multicast DNS, because the operator configured none
		servers = append(servers, server)
	}
	network, ok := a.o.Machine.Network.(TimeServers)
	if !ok {
		return servers
	}
	for _, address := range network.TimeServers() {
		if server := address.String(); !slices.Contains(servers, server) {
			servers = append(servers, server)
		}
	}
	return servers
}

// unchanged is the Changed function of a network that never changes.
func unchanged() <-chan struct{} { return nil }

// setClockFrom queries time servers and calls set with the current time.
func (a *agent) setClockFrom(
	ctx context.Context, servers func() []string, changed func() <-chan struct{}, set func(time.Time) error,
) error {
	answer, server, err := clock.Ask(ctx, servers, changed, a.log)
	if err != nil {
		a.log.Warn("clock not set, no usable time server", "servers", servers()) // Ask has logged the reasons
		return err
	}
	off := answer.Offset()
	if err := set(answer.Now()); err != nil {
		a.log.Warn("clock not set", "server", server, "err", err)
		return err
	}
	a.log.Info("clock set", "server", server, "off_by", off.Round(time.Millisecond))
	return nil
}

// unverifiedClock sets the system clock from a Date header of an unverified Ironic. The client sets it if the clock
// cannot be right, because certificates cannot be verified with such a clock.
type unverifiedClock struct{ a *agent }

// SetSystem implements [ironic.Clock].
func (c unverifiedClock) SetSystem(now time.Time) error {
	c.a.clockUnverified.Store(true)
	return c.a.clocks.SetSystem(now)
}

// checkClocks compares the clocks with Ironic's after a lookup, if TLS has verified Ironic. It sets the hardware
// clock. It sets the system clock only if an unverified source has set it before. It does nothing if the operator
// configured a time server and that server has set the system clock.
func (a *agent) checkClocks() {
	if !a.o.Destructive || a.timeServer != "" && !a.clockUnverified.Load() {
		return
	}
	now, ok := a.ironicTime()
	if !ok {
		return
	}
	off := now.Sub(a.clocks.Now())
	switch {
	case !a.clockUnverified.Load() && off.Abs() > clockTolerance:
		a.log.Warn("system clock differs from Ironic's, not set; set ipa-ntp-server to correct it",
			"off_by", off.Round(time.Second))
	case a.clockUnverified.Load() && off.Abs() > clockTolerance:
		if err := a.clocks.SetSystem(now); err != nil {
			a.log.Warn("clock not set from Ironic's time", "err", err)
			return
		}
		a.log.Info("clock set from Ironic's time", "off_by", off.Round(time.Second))
		fallthrough
	default:
		a.clockUnverified.Store(false)
	}
	a.setHardwareByIronic()
}

// setHardwareByIronic sets the hardware clock to Ironic's time if TLS has verified a response of Ironic and the clock
// differs.
func (a *agent) setHardwareByIronic() {
	now, ok := a.ironicTime()
	if !ok {
		return
	}
	shown, err := a.clocks.Hardware()
	if errors.Is(err, fs.ErrNotExist) {
		return
	}
	if err == nil && now.Sub(shown).Abs() <= clockTolerance {
		return
	}
	was := shown.Format(time.RFC3339)
	if err != nil {
		was = fmt.Sprintf("unreadable: %v", err)
	}
	if err := a.clocks.SetHardware(now); err != nil {
		a.log.Warn("hardware clock not set", "err", err)
		return
	}
	a.log.Info("hardware clock set from Ironic's time", "was", was)
}
