package agent

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/vishvananda/netlink"

	"ironroot/agent/extension"
	"ironroot/agent/ironic"
	"ironroot/agent/power"
	"ironroot/agent/status"
	"ironroot/internal/goroutine"
	"ironroot/internal/pause"
	"ironroot/netboot/listing"
)

const (
	// shutdownTimeout limits the wait for running requests when the API is stopped.
	shutdownTimeout = 2 * time.Second
	// restartPause is the longest pause before a goroutine that ended is restarted.
	restartPause = 5 * time.Second
	// answerDelay lets the last response reach the client before the network is taken down.
	answerDelay = time.Second
)

// supervise calls run until ctx ends, and returns the error of ctx. If run returns or panics earlier, supervise calls
// it again after a pause.
func (a *agent) supervise(ctx context.Context, name string, run func(context.Context) error) error {
	for {
		err := goroutine.Catch(func() error { return run(ctx) })
		if ctx.Err() != nil {
			return ctx.Err()
		}
		wait := min(restartPause, a.o.Pause)
		a.log.Error("part of the agent ended, restarting it", "part", name, "err", err, "pause", wait)
		if err := pause.For(ctx, wait); err != nil {
			return err
		}
	}
}

// serveAPI waits for the server to end and returns its error. The next call opens a server on the same port.
func (a *agent) serveAPI(ctx context.Context) error {
	if a.server == nil {
		if err := a.listen(ctx); err != nil {
			return err
		}
	}
	server := a.server
	select {
	case <-server.Done():
		a.server = nil
		return server.Err()
	case <-ctx.Done():
	}
	a.stopServer(ctx)
	return ctx.Err()
}

// stopServer waits for running requests, at most shutdownTimeout, and closes the port. In a lockdown it closes the port
// last, because Ironic changes the machine's network as soon as the port is closed.
func (a *agent) stopServer(ctx context.Context) {
	stopping, cancel := context.WithTimeout(context.WithoutCancel(ctx), shutdownTimeout)
	defer cancel()
	if pause.Closed(a.locked) {
		a.api.Idle(stopping)
		cancel() // Shutdown must not wait for idle connections
	}
	a.server.Shutdown(stopping)
	a.server = nil
}

// sendHeartbeats sends heartbeats until ctx ends. Without Ironic it waits for the end of ctx.
func (a *agent) sendHeartbeats(ctx context.Context) error {
	if a.answer == nil {
		<-ctx.Done()
		return ctx.Err()
	}
	heartbeater := a.ironic.NewHeartbeater(ironic.HeartbeatOptions{
		NodeUUID: a.answer.Node.UUID(), Interval: a.answer.HeartbeatInterval, Agent: a, Progress: a.o.Board,
	})
	a.heartbeater.Store(heartbeater)
	return heartbeater.Run(ctx)
}

// HeartbeatDone implements [ironic.Agent].
func (a *agent) HeartbeatDone(ctx context.Context, err error) {
	a.o.Board.HeartbeatDone(err)
	a.o.Machine.Drivers.Resume()
	if ironic.TokenRefused(err) {
		a.renewToken(ctx)
	}
}

// CertificatePEM implements [ironic.Agent].
func (a *agent) CertificatePEM() string {
	if a.certificate == nil {
		return ""
	}
	return a.certificate.PEM
}

func (a *agent) forceHeartbeat() {
	if heartbeater := a.heartbeater.Load(); heartbeater != nil {
		heartbeater.Force()
	}
}

// Lockdown implements [extension.Control].
func (a *agent) Lockdown() { a.once.Do(func() { close(a.locked) }) }

// Rescue implements [extension.Control].
func (a *agent) Rescue() { a.onceRescued.Do(func() { close(a.rescued) }) }

// lockdown prepares for the loss of the network while the API still answers: it ends all logins and detaches network
// disks. Then it calls closePort and takes the network down, which it retries until that succeeds, and waits until ctx
// ends. Ironic changes the machine's network as soon as the port is closed, so nothing slow is in between. The caller
// has ended the heartbeats.
func (a *agent) lockdown(ctx context.Context, closePort func()) {
	a.log.Warn("lockdown: taking the network down, agent idles until the machine restarts")
	a.announce(status.Lockdown)
	a.o.Machine.Logins.EndLogins()
	_ = pause.For(ctx, answerDelay) // below, the end of ctx ends the loop
	a.endExport(ctx)
	if a.o.Machine.Network != nil {
		limited, cancel := context.WithTimeout(ctx, extension.DetachTimeout)
		a.o.Machine.Disks.Detach(limited)
		cancel()
	}
	closePort()
	for ctx.Err() == nil {
		err := a.networkDown(ctx)
		if err == nil {
			a.log.Info("lockdown complete")
			<-ctx.Done()
			return
		}
		a.log.Error("lockdown: network not down, retrying", "err", err, "pause", restartPause)
		_ = pause.For(ctx, restartPause)
	}
}

func (a *agent) networkDown(ctx context.Context) error {
	switch {
	case a.o.Machine.Network != nil:
		return a.o.Machine.Network.Down(ctx)
	case !a.o.Destructive:
		a.log.Warn("lockdown: links left up, started without --destructive")
		return nil
	}
	return linksDown()
}

// linksDown takes down all links of a machine whose network is not managed by netboot.
func linksDown() error {
	links, err := listing.Links()
	if err != nil {
		return err
	}
	var failed []error
	for _, link := range links {
		if err := netlink.LinkSetDown(link); err != nil {
			failed = append(failed, fmt.Errorf("take link %s down: %w", link.Attrs().Name, err))
		}
	}
	return errors.Join(failed...)
}

// drainingPower stops the machine once all running requests are answered, including the one that stops it.
type drainingPower struct {
	power.Power
	agent *agent
}

func (p drainingPower) drain(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, shutdownTimeout)
	defer cancel()
	p.agent.api.Idle(ctx)
}

// restoreCards switches the LLDP agents in network cards on again, for the operating system that runs next. Failures
// are logged: they must not prevent the machine from stopping.
func (a *agent) restoreCards(persistent bool) {
	if a.o.Machine.Network == nil {
		return
	}
	if err := a.o.Machine.Network.RestoreFirmwareLLDP(persistent); err != nil {
		a.log.Warn("LLDP agent of network card not restored", "err", err)
	}
}

// PoweringOff implements [extension.Stop].
func (a *agent) PoweringOff() { a.restoreCards(true) }

// Reboot implements [power.Power].
func (p drainingPower) Reboot(ctx context.Context) error {
	p.drain(ctx)
	p.agent.restoreCards(false)
	return p.Power.Reboot(ctx)
}

// PowerOff implements [power.Power].
func (p drainingPower) PowerOff(ctx context.Context) error {
	p.drain(ctx)
	p.agent.restoreCards(false)
	return p.Power.PowerOff(ctx)
}
