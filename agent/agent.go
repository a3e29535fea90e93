// Package agent is the deploy agent: it finds its node in Ironic, serves the REST API through which Ironic works on the
// machine, and sends heartbeats. The protocol is that of ironic-python-agent; Run is the way through it from top to
// bottom.
package agent

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	"golang.org/x/sys/unix"

	"ironroot/agent/config"
	"ironroot/agent/inventory"
	"ironroot/agent/journal"
	"ironroot/agent/pause"
	"ironroot/agent/power"
	"ironroot/agent/status"
	"ironroot/internal/goroutine"
	"ironroot/storage/block"
)

// Version is what the agent calls itself towards Ironic.
const Version = "1.0.0"

// Network is what the agent needs of the machine's network.
type Network interface {
	WaitAddress(ctx context.Context) error // until another machine can be reached
	Down(ctx context.Context) error        // every link
	Changed() <-chan struct{}              // closed at the next change
	// RestoreFirmwareLLDP switches on the LLDP agents in network cards that were switched off; with persistent, only
	// those that would stay off over a power cycle.
	RestoreFirmwareLLDP(persistent bool) error
}

// Options say where the agent runs and what it may do there.
type Options struct {
	Config  *config.Config
	Network Network // nil in an ordinary process, whose network is not the agent's business
	// Neighbours hears LLDP frames; nil listens only while an inspection or an inventory asks for them.
	Neighbours inventory.Neighbours
	Journal    *journal.Journal // nil keeps no log
	Power      power.Power      // nil or not Destructive: refuses
	System     block.System
	// BMC, when set, connects to the machine's BMC in place of the kernel's driver.
	BMC func() (inventory.BMC, error)
	// Destructive lets commands write to disks, take the network down and stop the machine.
	Destructive bool
	// Forever makes Run start over after every failure instead of returning it: the agent of PID 1 has nobody to
	// start it again, and another Run would not know the token any more.
	Forever bool
	Version string // "" is Version
	// Settled is closed when the machine's devices have their drivers; nil means that they have.
	Settled <-chan struct{}
	// Status, when set, is told the name of each phase of the start as it begins, and "ready" after the last one.
	Status func(phase string)
	// Board, when set, shows people what the agent is doing. Its network is the caller's to follow.
	Board *status.Board
	// Dial connects to Ironic; nil is a net.Dialer.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
	// Listen, when set, opens the API's port.
	Listen func(ctx context.Context, host string, port int) (net.Listener, error)
	// Reload, when set, is called before the agent starts over. It returns the configuration to go on with, nil for
	// the present one.
	Reload func(ctx context.Context) *config.Config
	// Pause is the time before the agent starts over; 0 is 30 s.
	Pause time.Duration
}

// Run starts the agent and serves until ctx ends, which is no error. Without Forever it returns what kept it from
// starting.
func Run(ctx context.Context, o Options) error {
	a := newAgent(o)
	defer a.close()
	if o.Board != nil {
		reporting, stop := context.WithCancel(ctx)
		defer stop()
		goroutine.Go(func() error {
			return a.keep(reporting, "report", func(ctx context.Context) error {
				status.Reporter{Board: o.Board, Log: a.log}.Run(ctx)
				return ctx.Err()
			})
		}, func(error) {}) // it ended with its context
	}
	for {
		err := goroutine.Catch(func() error { return a.life(ctx) })
		if ctx.Err() != nil {
			return nil
		}
		if err == nil || !a.o.Forever {
			return err
		}
		a.o.Board.Problem("start", err)
		a.log.Error("the agent could not start and will start over", "err", err, "pause", a.o.Pause)
		if pause.For(ctx, a.o.Pause) != nil {
			return nil
		}
		_ = goroutine.Catch(func() error { // a panic was logged; the present configuration remains
			a.reload(ctx)
			return nil
		})
	}
}

// life is the agent's way from its configuration to its end.
func (a *agent) life(ctx context.Context) error {
	for _, p := range []phase{
		{"configuration", a.configure}, // log level, token, client of Ironic
		{"hardware", a.loadHardware},   // managers, and with them the commands
		{"network", a.waitNetwork},     // an address, if there is anybody to talk to
		{"discovery", a.discover},      // Ironic by multicast DNS, if asked for
		{"clock", a.setClock},          // from the NTP server, if one is named
		{"inspection", a.inspect},      // if asked for; tells Ironic what the machine is
		{"lookup", a.lookup},           // which node this is, the token, the conductor's settings
		{"address", a.findAddress},     // where Ironic can call back
		{"api", a.listen},              // certificate, port, server
	} {
		err := a.enter(ctx, p)
		if errors.Is(err, errLocked) {
			a.lockdown(ctx)
			return nil
		}
		if err != nil {
			return fmt.Errorf("%s: %w", p.name, err)
		}
	}
	a.serve(ctx)
	return nil
}

// serve keeps API and heartbeats alive until ctx ends. If a command locks the agent down, it stops them, takes the
// network down and idles until ctx ends.
func (a *agent) serve(ctx context.Context) {
	a.status("ready")
	serving, stop := context.WithCancel(ctx)
	defer stop()
	parts := goroutine.NewGroup()
	parts.Go(func() error { return a.keep(serving, "api", a.serveAPI) })
	parts.Go(func() error { return a.keep(serving, "heartbeats", a.sendHeartbeats) })
	select {
	case <-ctx.Done():
	case <-a.locked:
	}
	stop()
	_ = parts.Wait() // the parts end with their context
	if ctx.Err() == nil {
		a.lockdown(ctx)
	}
}

// phase is one step of the start.
type phase struct {
	name string
	run  func(context.Context) error
}

// enter runs a phase and logs how long it took, so that the console shows where the time of a boot went.
func (a *agent) enter(ctx context.Context, p phase) error {
	a.status(p.name)
	started := time.Now()
	err := p.run(ctx)
	if ctx.Err() == nil {
		a.o.Board.Problem("start", err)
	}
	a.log.Info("start-up", "phase", p.name, "took", time.Since(started).Round(time.Millisecond),
		"uptime", uptime().Round(time.Millisecond), "ok", err == nil)
	return err
}

// uptime is the time since the kernel started.
func uptime() time.Duration {
	var now unix.Timespec
	if unix.ClockGettime(unix.CLOCK_BOOTTIME, &now) != nil {
		return 0 // every kernel since 2.6.39 has this clock
	}
	return time.Duration(now.Nano())
}

func (a *agent) status(phase string) {
	a.o.Board.Enter(status.Phase(phase))
	if a.o.Status != nil {
		a.o.Status(phase)
	}
}
