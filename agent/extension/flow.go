package extension

import (
	"context"
	"encoding/json"
	"errors"
	"slices"

	"ironroot/agent/command"
	"ironroot/agent/fault"
)

// flow runs commands of the other extensions one after the other. Their results are not part of the list of commands.
func flow(d Deps, others []command.Extension) command.Extension {
	run := flowRunner{commands: command.Set{Extensions: others, AllowDestructive: d.AllowDestructive}, deps: d}
	return command.Extension{Name: "flow", Commands: []command.Command{{
		Name:     "start_flow",
		Async:    true,
		Params:   []command.Param{{Name: "flow"}},
		Validate: run.validate,
		Run:      run.start,
	}}}
}

type flowRunner struct {
	commands command.Set
	deps     Deps
}

// call is one command of a flow.
type call struct {
	name   string
	params command.Params
}

// validate refuses a flow that names a command there is not.
func (r flowRunner) validate(_ context.Context, p command.Params) error {
	calls, err := parseFlow(p)
	if err != nil {
		return err
	}
	for _, c := range calls {
		if _, err := r.commands.Find(c.name); err != nil {
			return err
		}
	}
	return nil
}

func (r flowRunner) start(ctx context.Context, p command.Params) (any, error) {
	calls, err := parseFlow(p)
	if err != nil {
		return nil, err
	}
	for _, c := range calls {
		found, err := r.commands.Find(c.name)
		if err != nil {
			return nil, err
		}
		r.deps.Log.Info("flow: command starts", "command", c.name)
		if _, err := found.Call(ctx, c.params); err != nil {
			r.deps.Log.Error("flow: command failed", "command", c.name, "err", err)
			return nil, fault.CommandExecution(errors.Join(errors.New(c.name+" was failed"), err))
		}
	}
	return nil, nil
}

// parseFlow reads the list of objects, each from full command names to parameters. Commands of one object run in the
// order of their names.
func parseFlow(p command.Params) ([]call, error) {
	var steps []map[string]json.RawMessage
	if err := p.Decode("flow", &steps); err != nil {
		return nil, err
	}
	var calls []call
	for _, step := range steps {
		names := make([]string, 0, len(step))
		for name := range step {
			names = append(names, name)
		}
		slices.Sort(names)
		for _, name := range names {
			var params command.Params
			if err := json.Unmarshal(step[name], &params); err != nil {
				return nil, fault.InvalidCommandParams("flow: parameters of %s: %w", name, err)
			}
			calls = append(calls, call{name, params})
		}
	}
	return calls, nil
}
