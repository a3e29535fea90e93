// Package extension holds the commands of the agent's REST API, a file per extension. Names, parameters and results are
// those of ironic-python-agent.
//
// Not offered: rescue, iscsi, and standby.execute_bootc_install. They answer as unknown.
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
	"ironroot/storage/block"
)

// Deps are what the commands work with.
type Deps struct {
	Config    *config.Live
	Node      *node.Cache
	Managers  *hardware.Managers
	Imager    *imaging.Imager
	Inventory *inventory.Source
	Power     power.Power
	Journal   *journal.Journal
	System    block.System
	Control   Control
	Log       *slog.Logger
	// Standalone says that there is no Ironic and that node data may be handed in through the API.
	Standalone bool
	// SetNode puts a lookup's answer into place; used in standalone mode.
	SetNode func(answer json.RawMessage) error
	// SetClock, when set, sets the clocks before the machine stops. Its error says that they have to be right.
	SetClock func(ctx context.Context) error
	// PoweringOff, when set, is called when the machine may soon be switched off from outside.
	PoweringOff func()
	// AllowDestructive says that commands that change the machine may run.
	AllowDestructive bool
}

// Control is what commands can do to the agent itself.
type Control interface {
	// Lockdown returns at once. Then the API and the heartbeats stop, the network is taken down, and the agent idles.
	Lockdown()
}

// All lists every extension there is.
func All(d Deps) []command.Extension {
	plain := []command.Extension{
		standby(d),
		clean(d),
		deploy(d),
		service(d),
		image(d),
		logs(d),
		poll(d),
		system(d),
	}
	return append(plain, flow(d, plain))
}
