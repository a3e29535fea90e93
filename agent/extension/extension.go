package extension

import (
	"context"
	"encoding/json"
	"log/slog"

	"ironroot/agent/command"
	"ironroot/agent/config"
	"ironroot/agent/hardware"
	"ironroot/agent/imaging"
	"ironroot/agent/inventory"
	"ironroot/agent/journal"
	"ironroot/agent/node"
	"ironroot/agent/power"
	"ironroot/storage/sysfs"
)

// Deps are the dependencies of the commands.
type Deps struct {
	Config    *config.Live
	Node      *node.Cache
	Managers  *hardware.Managers
	Imager    *imaging.Imager
	Inventory *inventory.Source
	Power     power.Power
	Journal   *journal.Journal
	System    sysfs.Root
	Control   Control
	Log       *slog.Logger
	Stop      Stop
	// Standalone accepts node data; nil unless there is no Ironic.
	Standalone Standalone
	// AllowDestructive allows commands that change the machine.
	AllowDestructive bool
}

// Control controls the agent itself. The commands that call its methods are marked Last: after one has succeeded, the
// other is refused.
type Control interface {
	// Lockdown returns at once. Afterwards API and heartbeats stop, the network is taken down, and the agent idles.
	Lockdown()
	// PrepareRescue prepares a rescue. After an error the machine must not be handed over: the command fails, and the
	// agent continues.
	PrepareRescue(ctx context.Context) error
	// Rescue returns at once. Afterwards API and heartbeats stop, and the agent ends. The network is not changed.
	Rescue()
}

// Stop prepares the machine for its stop.
type Stop interface {
	// SetClocks sets the clocks. It returns an error only if they must be set.
	SetClocks(ctx context.Context) error
	// Detach ends the sessions of disks that are reached over a network. It is called after the disks were synced.
	Detach(ctx context.Context)
	// PoweringOff is called when Ironic is about to power the machine off through its BMC.
	PoweringOff()
}

// Standalone receives what Ironic would tell the agent.
type Standalone interface {
	// SetNode applies a lookup response.
	SetNode(answer json.RawMessage) error
}

// All returns all extensions.
func All(d Deps) []command.Extension {
	plain := []command.Extension{
		standby(d),
		clean(d),
		deploy(d),
		service(d),
		image(d),
		iscsiTarget(d),
		rescuing(d),
		logs(d),
		poll(d),
		system(d),
	}
	return append(plain, flow(d, plain))
}
