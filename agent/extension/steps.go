package extension

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"ironroot/agent/command"
	"ironroot/agent/fault"
	"ironroot/agent/hardware"
	"ironroot/agent/node"
)

// steps implements the commands that the extensions clean, deploy and service share: list the steps of their kind, and
// execute one.
type steps struct {
	d    Deps
	kind hardware.Kind
}

func (s steps) extension() command.Extension {
	kind := string(s.kind)
	return command.Extension{Name: kind, Commands: []command.Command{
		{
			Name:   "get_" + kind + "_steps",
			Params: []command.Param{{Name: "node", Required: true}, {Name: "ports", Required: true}},
			Run:    s.get,
		},
		{
			Name: "execute_" + kind + "_step", Async: true, Destructive: true,
			Params: []command.Param{
				{Name: "step", Required: true},
				{Name: "node", Required: true},
				{Name: "ports", Required: true},
				{Name: kind + "_version"},
			},
			AnyParams: true,
			Run:       s.execute,
		},
	}}
}

func (s steps) get(ctx context.Context, p command.Params) (any, error) {
	call, err := s.call(ctx, p)
	if err != nil {
		return nil, err
	}
	listed, err := s.d.Managers.Steps(s.kind, call.Node, call.Ports)
	if err != nil {
		return nil, err
	}
	return map[string]any{
		string(s.kind) + "_steps":  listed,
		"hardware_manager_version": s.d.Managers.Versions(),
	}, nil
}

func (s steps) execute(ctx context.Context, p command.Params) (any, error) {
	call, err := s.call(ctx, p)
	if err != nil {
		return nil, err
	}
	if call.Node.UUID() == "" {
		return nil, fault.InvalidCommandParams("node: uuid missing")
	}
	var versions map[string]string
	if err := p.Decode(string(s.kind)+"_version", &versions); err != nil {
		return nil, err
	}
	if err := s.d.Managers.CheckVersions(versions); err != nil {
		return nil, err
	}
	name, args, err := s.step(p)
	if err != nil {
		return nil, err
	}
	call.Args = args
	result, err := s.d.Managers.Execute(ctx, s.kind, name, call)
	if err != nil {
		var known *fault.Error
		if errors.As(err, &known) {
			return nil, err
		}
		return nil, s.unexpected(name, err)
	}
	return map[string]any{
		string(s.kind) + "_result": result,
		string(s.kind) + "_step":   p["step"], // unchanged, because the conductor compares it
	}, nil
}

// unexpected converts an error of a step that is not a fault to one.
func (s steps) unexpected(name string, err error) *fault.Error {
	const format = "Unexpected exception performing %s step %s. Error: %w"
	switch s.kind {
	case hardware.Deploy:
		return fault.Deployment(format, s.kind, name, err)
	case hardware.Service:
		return fault.Servicing(format, s.kind, name, err)
	default:
		return fault.Cleaning(format, s.kind, name, err)
	}
}

// StepName returns the name of the step that a command executes, "" if there is none.
func StepName(p command.Params) string {
	var step struct {
		Step string `json:"step"`
	}
	if err := p.Decode("step", &step); err != nil {
		return "" // the command itself reports the error
	}
	return step.Step
}

// step parses the name and the arguments of the step to execute. Undeclared parameters of the command are arguments of
// the step, too. The step's own arguments take precedence.
func (s steps) step(p command.Params) (name string, args map[string]json.RawMessage, err error) {
	var step struct {
		Step *string                    `json:"step"`
		Args map[string]json.RawMessage `json:"args"`
	}
	if err := p.Decode("step", &step); err != nil {
		return "", nil, err
	}
	if step.Step == nil || *step.Step == "" {
		return "", nil, fmt.Errorf("%s step: key 'step' missing", s.kind)
	}
	args = map[string]json.RawMessage{}
	for key, value := range p {
		switch key {
		case "step", "node", "ports", string(s.kind) + "_version":
		default:
			args[key] = value
		}
	}
	for key, value := range step.Args {
		args[key] = value
	}
	return *step.Step, args, nil
}

// call parses the parameters node and ports, stores the node, and waits for its disks, so that a step does not miss one
// whose driver is slow. A node without a UUID is not stored.
func (s steps) call(ctx context.Context, p command.Params) (hardware.Call, error) {
	n, err := node.FromStep(p["node"])
	if err != nil {
		return hardware.Call{}, fault.InvalidCommandParams("node: %w", err)
	}
	if n.UUID() != "" {
		s.d.Node.Set(n)
	}
	return hardware.Call{Node: n, Ports: ports(p["ports"])}, s.d.Managers.WaitDisks(ctx, n)
}

// ports returns the objects of a list and ignores anything else, because ironic-python-agent accepts any JSON there.
func ports(data json.RawMessage) []map[string]any {
	var list []any
	if json.Unmarshal(data, &list) != nil {
		return nil
	}
	var found []map[string]any
	for _, item := range list {
		if port, ok := item.(map[string]any); ok {
			found = append(found, port)
		}
	}
	return found
}
