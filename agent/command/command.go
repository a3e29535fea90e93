package command

import (
	"bytes"
	"context"
	"encoding/json"
	"runtime/debug"
	"slices"
	"strings"

	"ironroot/agent/fault"
	"ironroot/internal/goroutine"
)

// Params are the parameters of one call, as JSON.
type Params map[string]json.RawMessage

// Decode stores the parameter name in into. It does not change into if the parameter is absent or null. A value of
// another type is an InvalidCommandParamsError.
func (p Params) Decode(name string, into any) error {
	raw, ok := p[name]
	if !ok || isNull(raw) {
		return nil
	}
	if err := json.Unmarshal(raw, into); err != nil {
		return fault.InvalidCommandParams("parameter %s: %w", name, err)
	}
	return nil
}

// Has reports whether the parameter is present and not null.
func (p Params) Has(name string) bool {
	raw, ok := p[name]
	return ok && !isNull(raw)
}

func isNull(raw json.RawMessage) bool { return string(bytes.TrimSpace(raw)) == "null" }

// Param declares one parameter of a command.
type Param struct {
	Name     string
	Required bool // the key must be present; its value can be null
}

// Command is one command of an extension: its declaration and the function that runs it.
type Command struct {
	Name        string // without the extension's name
	Async       bool   // continues after the request
	Destructive bool   // writes to disks, changes the network or stops the machine: rejected unless allowed
	Last        bool   // once it has succeeded, its registry runs no other command; only for synchronous commands
	Params      []Param
	AnyParams   bool // accepts undeclared parameters
	// Validate, if not nil, checks the parameters within the request, before an asynchronous command starts.
	Validate func(context.Context, Params) error
	// Run executes the command. A string result is wrapped in an object; any other result must encode as JSON.
	Run func(context.Context, Params) (any, error)
}

// Extension is a named group of commands.
type Extension struct {
	Name     string
	Commands []Command
}

// Set is the set of commands, with the permission to run destructive ones.
type Set struct {
	Extensions       []Extension
	AllowDestructive bool
}

// Find returns the command with the full name "extension.command". An unknown extension is a
// RequestedObjectNotFoundError, any other invalid name an InvalidCommandError.
func (s Set) Find(name string) (Command, error) {
	extension, short, err := split(name)
	if err != nil {
		return Command{}, err
	}
	i := slices.IndexFunc(s.Extensions, func(e Extension) bool { return e.Name == extension })
	if i < 0 {
		return Command{}, fault.NotFound("Extension", extension)
	}
	commands := s.Extensions[i].Commands
	i = slices.IndexFunc(commands, func(c Command) bool { return c.Name == short })
	if i < 0 {
		return Command{}, fault.InvalidCommand("Unknown command: %s", short)
	}
	if commands[i].Destructive && !s.AllowDestructive {
		return Command{}, fault.InvalidCommand("%s refused: started without --destructive", name)
	}
	return commands[i], nil
}

func split(name string) (extension, short string, err error) {
	extension, short, ok := strings.Cut(name, ".")
	if !ok {
		return "", "", fault.InvalidCommand("Command name must be of the form <extension>.<name>")
	}
	return extension, short, nil
}

// check compares the parameters with the declared ones. A difference is a TypeError, as the conductor expects.
func (c Command) check(p Params) error {
	for _, want := range c.Params {
		if _, ok := p[want.Name]; want.Required && !ok {
			return fault.WrongParams("%s() is missing the required argument '%s'", c.Name, want.Name)
		}
	}
	if c.AnyParams {
		return nil
	}
	var unknown []string
	for name := range p {
		if !slices.ContainsFunc(c.Params, func(known Param) bool { return known.Name == name }) {
			unknown = append(unknown, name)
		}
	}
	if len(unknown) > 0 {
		slices.Sort(unknown)
		return fault.WrongParams("%s() got an unexpected keyword argument '%s'", c.Name, strings.Join(unknown, "', '"))
	}
	return nil
}

// Call checks and validates the parameters and runs the command in the caller's goroutine. It returns a panic as a
// *PanicError. If ctx belongs to a command that a [Registry] runs, it returns an InvalidCommandError once a command
// marked Last has succeeded.
func (c Command) Call(ctx context.Context, p Params) (result any, err error) {
	l := latchOf(ctx)
	if err := l.refuse(c.Name); err != nil {
		return nil, err
	}
	if err := c.check(p); err != nil {
		return nil, err
	}
	if err := c.validate(ctx, p); err != nil {
		return nil, err
	}
	result, err = c.run(ctx, p)
	if err == nil && c.Last {
		l.close(lastCommand{name: c.Name})
	}
	return result, err
}

func (c Command) validate(ctx context.Context, p Params) (err error) {
	defer recovered(&err)
	if c.Validate == nil {
		return nil
	}
	return c.Validate(ctx, p)
}

func (c Command) run(ctx context.Context, p Params) (result any, err error) {
	defer recovered(&err)
	return c.Run(ctx, p)
}

// PanicError is the error of a command that panicked. It fails only that command.
type PanicError = goroutine.PanicError

// recovered stores a panic in err. A panic of a command's goroutine keeps the stack of that goroutine.
func recovered(err *error) {
	switch value := recover().(type) {
	case nil:
	case *PanicError:
		*err = value
	default:
		*err = &PanicError{Value: value, Stack: debug.Stack()}
	}
}
