package extension

import (
	"context"

	"ironroot/agent/command"
	"ironroot/agent/fault"
)

// poll returns the inventory, once the disks present at boot have appeared, and in standalone mode accepts the node's
// data.
func poll(d Deps) command.Extension {
	return command.Extension{Name: "poll", Commands: []command.Command{
		{Name: "get_hardware_info", Run: func(ctx context.Context, _ command.Params) (any, error) {
			if err := d.Managers.WaitDisks(ctx, nil); err != nil {
				return nil, err
			}
			return d.Inventory.Collect(ctx)
		}},
		{
			Name:   "set_node_info",
			Params: []command.Param{{Name: "node_info"}},
			Run:    func(_ context.Context, p command.Params) (any, error) { return nil, setNodeInfo(d, p) },
		},
	}}
}

func setNodeInfo(d Deps, p command.Params) error {
	if d.Standalone == nil {
		return fault.InvalidCommand("Node lookup data can only be set when the agent runs in standalone mode")
	}
	if !p.Has("node_info") {
		return fault.InvalidCommandParams("parameter node_info: lookup response missing")
	}
	if err := d.Standalone.SetNode(p["node_info"]); err != nil {
		return fault.InvalidCommandParams("parameter node_info: %w", err)
	}
	return nil
}
