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
	// Standalone means that there is no Ironic and that the API accepts node data.
	Standalone bool
	// SetNode applies a lookup response. It is used in standalone mode.
	SetNode func(answer json.RawMessage) error
	// SetClock, when set, sets the clocks before the machine stops. It returns an error only if they must be set.
	SetClock func(ctx context.Context) error
	// PoweringOff, when set, is called when Ironic is about to power the machine off through its BMC.
	PoweringOff func()
	// Detach, when set, ends the sessions of disks that are reached over a network. It is called before the machine
	// stops, after the disks were synced.
	Detach func(ctx context.Context)
	// PrepareRescue, when set, prepares a rescue. An error means that the machine must not be handed over: the command
	// fails with it, and the agent continues.
	PrepareRescue func(ctx context.Context) error
	// AllowDestructive allows commands that change the machine.
	AllowDestructive bool
}

// Control controls the agent itself. The commands that call its methods are marked Last: after one has succeeded, the
// other is refused.
type Control interface {
	// Lockdown returns at once. Afterwards API and heartbeats stop, the network is taken down, and the agent idles.
	Lockdown()
	// Rescue returns at once. Afterwards API and heartbeats stop, and the agent ends. The network is not changed.
	Rescue()
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
