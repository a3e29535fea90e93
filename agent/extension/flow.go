package extension

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"ironroot/agent/command"
	"ironroot/agent/fault"
)

// flow runs commands of the other extensions in sequence. Their records are not part of the list of commands.
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

// validate rejects a flow with an unknown command.
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
		r.deps.Log.Info("flow: command started", "command", c.name)
		if _, err := found.Call(ctx, c.params); err != nil {
			r.deps.Log.Error("flow: command failed", "command", c.name, "err", err)
			return nil, fault.CommandExecution(errors.Join(errors.New(c.name+" was failed"), err))
		}
	}
	return nil, nil
}

// parseFlow parses a list of objects that map full command names to parameters. Commands of one object run in the order
// of its keys.
func parseFlow(p command.Params) ([]call, error) {
	var steps []json.RawMessage
	if err := p.Decode("flow", &steps); err != nil {
		return nil, err
	}
	var calls []call
	for _, step := range steps {
		var err error
		if calls, err = appendCalls(calls, step); err != nil {
			return nil, fault.InvalidCommandParams("flow: %w", err)
		}
	}
	return calls, nil
}

// appendCalls parses one object token by token, because a map would lose the order of its keys.
func appendCalls(calls []call, step json.RawMessage) ([]call, error) {
	decoder := json.NewDecoder(bytes.NewReader(step))
	open, err := decoder.Token()
	if err != nil {
		return nil, err
	}
	if open != json.Delim('{') {
		return nil, fmt.Errorf("got %v, want an object from command names to parameters", open)
	}
	for decoder.More() {
		key, err := decoder.Token()
		if err != nil {
			return nil, err
		}
		name, _ := key.(string) // the key of an object is always a string
		var params command.Params
		if err := decoder.Decode(&params); err != nil {
			return nil, fmt.Errorf("parameters of %s: %w", name, err)
		}
		calls = append(calls, call{name, params})
	}
	return calls, nil
}
