package agent

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	"ironroot/agent/clock"
	"ironroot/agent/config"
	"ironroot/agent/hardware"
	"ironroot/agent/inventory"
	"ironroot/agent/ironic"
	"ironroot/agent/journal"
	"ironroot/agent/rescue"
	"ironroot/agent/status"
	"ironroot/internal/goroutine"
	"ironroot/internal/pause"
	"ironroot/storage/sysfs"
)

// Version is the version that the agent reports to Ironic.
const Version = "1.0.0"

// Options configure an agent.
type Options struct {
	Config  *config.Config
	Machine Machine
	Journal *journal.Journal // nil keeps no log
	System  sysfs.Root
	// BMC connects to the machine's BMC; nil is the kernel's driver.
	BMC inventory.BMCOpener
	// Managers create the custom hardware managers. Of equal levels, the built-in manager is asked first.
	Managers []hardware.New
	// ManagersDir is the directory with hardware managers that are executables; "" is none. A program that sets it must
	// call external.Child first.
	ManagersDir string
	// RootsDir is the directory with manager roots, which contain further executables; "" is none. A program that sets
	// it must call external.Child first.
	RootsDir string
	// Destructive lets commands write to disks, take the network down and stop the machine.
	Destructive bool
	// Forever makes Run start over after a failure instead of returning it. PID 1 needs this: nothing restarts its
	// agent, and a second Run would not know the token.
	Forever bool
	Version string        // "" is Version
	Board   *status.Board // nil shows nothing
	// Dialer connects to Ironic; nil is a net.Dialer.
	Dialer ironic.Dialer
	// Ports opens the API's port; nil opens it by [api.Listen].
	Ports Ports
	// Pause is the time before the agent starts over; 0 is 30 s.
	Pause time.Duration
}

// Ports are the ports of a machine.
type Ports interface {
	Listen(ctx context.Context, host string, port int) (net.Listener, error)
}

// ErrRescue means that the machine is in a rescue: the agent must not run on it until it has restarted.
var ErrRescue = errors.New("machine handed over to the user of a rescue")

// Run starts the agent and serves until ctx ends, which is not an error, or a rescue begins, which is ErrRescue.
// Without Forever it returns the error of the phase that failed.
func Run(ctx context.Context, o Options) error {
	a := newAgent(o)
	defer a.close()
	a.sendLog(ctx)
	for {
		err := goroutine.Catch(func() error { return a.startAndServe(ctx) })
		if ctx.Err() != nil {
			return nil
		}
		if err == nil || !a.o.Forever || errors.Is(err, ErrRescue) {
			return err
		}
		a.o.Board.Problem("start", err)
		a.log.Error("agent failed, starting over", "err", err, "pause", a.o.Pause)
		if pause.For(ctx, a.o.Pause) != nil {
			return nil
		}
		_ = goroutine.Catch(func() error { // a panic is logged; the current configuration remains
			a.reload(ctx)
			return nil
		})
	}
}

// startAndServe runs the phases of the start in order, and then serves until ctx ends.
func (a *agent) startAndServe(ctx context.Context) error {
	if a.o.Destructive && rescue.IsMarked(a.o.System.Path) {
		return ErrRescue
	}
	for _, p := range []phase{
		{"configuration", a.configure}, // log level, token, client of Ironic
		{"hardware", a.loadHardware},   // managers and commands
		{"network", a.waitNetwork},     // an address, if Ironic or an inspection needs one
		{"discovery", a.discover},      // Ironic by multicast DNS, if configured
		{"clock", a.setClock},          // from an NTP server, if one is configured
		{"inspection", a.inspect},      // if configured; posts the hardware's data to Ironic
		{"lookup", a.lookup},           // the node, the token, the conductor's settings
		{"address", a.findAddress},     // the callback address
		{"api", a.listen},              // certificate, port, server
	} {
		err := a.enter(ctx, p)
		if errors.Is(err, errLocked) {
			a.lockdown(ctx, func() {}) // there is no port yet
			return nil
		}
		if err != nil {
			return fmt.Errorf("%s: %w", p.name, err)
		}
	}
	return a.serve(ctx)
}

// serve runs API, heartbeats and clock until ctx ends. If a command locks the agent down, serve stops them, takes the
// network down and idles until ctx ends. If one begins a rescue, serve stops them, and returns ErrRescue once the
// response has reached the client.
func (a *agent) serve(ctx context.Context) error {
	a.announce(status.Ready)
	serving, stopServing := context.WithCancel(ctx)
	defer stopServing()
	beating, stopBeating := context.WithCancel(ctx)
	defer stopBeating()
	server, others := goroutine.NewGroup(), goroutine.NewGroup()
	server.Go(func() error { return a.supervise(serving, "api", a.serveAPI) })
	others.Go(func() error { return a.supervise(beating, "heartbeats", a.sendHeartbeats) })
	others.Go(func() error { return a.supervise(beating, "clock", a.keepClock) })
	closePort := func() {
		stopServing()
		_ = server.Wait() // it ends with its context
	}
	select {
	case <-ctx.Done():
	case <-a.locked:
	case <-a.rescued:
	}
	stopBeating()
	_ = others.Wait() // they end with their context
	if ctx.Err() == nil && pause.Closed(a.locked) {
		a.lockdown(ctx, closePort)
	}
	closePort()
	if ctx.Err() == nil {
		a.log.Info("rescue: API and heartbeats ended")
		_ = pause.For(ctx, answerDelay) // the caller checks ctx
		return ErrRescue
	}
	return nil
}

// phase is a step of the start.
type phase struct {
	name string
	run  func(context.Context) error
}

// announce shows a phase on the board, and announces it to the drivers.
func (a *agent) announce(phase status.Phase) {
	a.o.Board.Enter(phase)
	a.o.Machine.Drivers.Enter(phase)
}

// enter runs a phase and logs its duration, so that the console shows where a boot spends its time.
func (a *agent) enter(ctx context.Context, p phase) error {
	a.announce(status.Phase(p.name))
	started := time.Now()
	err := p.run(ctx)
	if ctx.Err() == nil {
		a.o.Board.Problem("start", err)
	}
	a.log.Info("start-up", "phase", p.name, "duration", time.Since(started).Round(time.Millisecond),
		"uptime", clock.Uptime().Round(time.Millisecond), "ok", err == nil)
	return err
}
