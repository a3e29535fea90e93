package agent

import (
	"context"

	"ironroot/agent/config"
	"ironroot/agent/inventory"
	"ironroot/agent/power"
	"ironroot/agent/status"
)

// Machine has the services of process 1 of the ramdisk that the agent uses. In an ordinary process, nil members do
// nothing, a nil Power refuses, and without a Network the agent does not manage the network.
type Machine struct {
	Network    Network
	Neighbours inventory.Neighbours // receives LLDP frames; nil listens only during an inspection or an inventory
	Power      power.Power
	Modules    Modules
	Drivers    Drivers
	Disks      NetworkDisks
	Logins     Logins
	Media      Media
}

// Network is the machine's network as the agent uses it.
type Network interface {
	WaitAddress(ctx context.Context) error // until another machine can be reached
	Down(ctx context.Context) error        // every link
	Changed() <-chan struct{}              // closed at the next change
	// RestoreFirmwareLLDP switches on the LLDP agents in network cards that were switched off; with persistent, only
	// those that would stay off over a power cycle.
	RestoreFirmwareLLDP(persistent bool) error
}

// Modules are the modules of the kernel.
type Modules interface {
	// Load loads a module with its dependencies.
	Load(ctx context.Context, name string) error
}

// Drivers are the drivers of the machine's devices. While the agent starts, drivers of other devices than network
// cards can be postponed.
type Drivers interface {
	// Settled returns a channel that is closed when all drivers are loaded, and the disks attached that are reached
	// over a network. A nil channel means that they are.
	Settled() <-chan struct{}
	// Enter announces a phase of the agent.
	Enter(phase status.Phase)
	// Resume loads postponed drivers. The agent calls it before it waits for Settled while it starts, and after each
	// heartbeat.
	Resume()
}

// NetworkDisks are the disks that are reached over a network.
type NetworkDisks interface {
	// Detach ends their sessions. It is called before the machine stops, when the disks are flushed, and before the
	// network is taken down.
	Detach(ctx context.Context)
}

// Logins are the logins of users.
type Logins interface {
	// EndLogins ends the sessions of users, and lets nobody log in again. It is called at a lockdown. Failures are
	// logged.
	EndLogins()
	// PrepareRescue checks whether a user could log in to a rescue, and hides what the user must not see as far as the
	// running agent can do without it. It is called before a rescue is confirmed to Ironic. An error fails the rescue.
	PrepareRescue(ctx context.Context) error
}

// Media are virtual media.
type Media interface {
	// Reload is called before the agent starts over. It returns the new configuration, or nil to keep the current one.
	Reload(ctx context.Context) *config.Config
}

// withDefaults returns m with members that do nothing instead of nil ones.
func (m Machine) withDefaults() Machine {
	if m.Power == nil {
		m.Power = power.Refused{}
	}
	if m.Modules == nil {
		m.Modules = nothing{}
	}
	if m.Drivers == nil {
		m.Drivers = nothing{}
	}
	if m.Disks == nil {
		m.Disks = nothing{}
	}
	if m.Logins == nil {
		m.Logins = nothing{}
	}
	if m.Media == nil {
		m.Media = nothing{}
	}
	return m
}

// nothing implements Modules, Drivers, NetworkDisks, Logins and Media without an effect.
type nothing struct{}

func (nothing) Load(context.Context, string) error    { return nil }
func (nothing) Settled() <-chan struct{}              { return nil }
func (nothing) Enter(status.Phase)                    {}
func (nothing) Resume()                               {}
func (nothing) Detach(context.Context)                {}
func (nothing) EndLogins()                            {}
func (nothing) PrepareRescue(context.Context) error   { return nil }
func (nothing) Reload(context.Context) *config.Config { return nil }
