package extension

import (
	"context"

	"ironroot/agent/command"
)

// system locks the agent down: no API, no heartbeats, no network.
func system(d Deps) command.Extension {
	return command.Extension{Name: "system", Commands: []command.Command{{
		Name:        "lockdown",
		Destructive: true,
		Last:        true,
		Run: func(context.Context, command.Params) (any, error) {
			d.Control.Lockdown()
			return nil, nil
		},
	}}}
}
