package external

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"path/filepath"
	"reflect"
	"strings"

	"ironroot/agent/hardware"
)

// CheckOptions configure Check.
type CheckOptions struct {
	Out io.Writer // of the report, one line for each check
	Log *slog.Logger
	// Step, if not "", is a step to run: KIND.NAME, for example clean.update_firmware. Args are its arguments, a JSON
	// object.
	Step, Args string
	// Root gives describe and evaluate the time that a manager in a root has: its program may be interpreted.
	Root bool
}

// check is the state of Check.
type check struct {
	*Manager
	out           io.Writer
	count, failed int
}

// Check checks that an executable conforms to the protocol. It runs the executable without confinement.
func Check(ctx context.Context, path string, o CheckOptions) error {
	path, err := filepath.Abs(path)
	if err != nil {
		return err
	}
	c := &check{out: o.Out, Manager: newManager(path, o.Log, plain(path))}
	if o.Root {
		c.describeTimeout = rootTimeout
	}
	c.report("describe", c.describe(ctx), func() string {
		return fmt.Sprintf("%s %s, protocol %d, %d steps", c.Name(), c.Version(), c.Protocol, len(c.description.Steps))
	})
	if c.failed > 0 {
		return errors.New("executable does not describe itself")
	}
	first := c.description
	err = c.describe(ctx)
	if err == nil && !reflect.DeepEqual(first, c.description) {
		err = errors.New("second description differs from the first")
	}
	c.report("describe again", err, nil)
	c.report("refuse unknown version", c.refuse(ctx, request{Method: methodDescribe, Protocols: []int{9999}}), nil)
	c.report("refuse unknown method", c.refuse(ctx, request{Method: "no_such_method", Protocol: c.Protocol}), nil)
	c.report("refuse unknown step", c.refuse(ctx, request{
		Method: methodRun, Protocol: c.Protocol, Kind: hardware.Clean, Step: "no_such_step",
	}), nil)
	level, err := c.Evaluate(ctx)
	c.report("evaluate", err, func() string { return fmt.Sprintf("level %d", level) })
	if o.Step != "" {
		result, err := c.runNamed(ctx, o.Step, o.Args)
		c.report("run "+o.Step, err, func() string {
			var line bytes.Buffer
			if json.Compact(&line, result) != nil {
				return string(result)
			}
			return line.String()
		})
	}
	if c.failed > 0 {
		return fmt.Errorf("%d of %d checks failed", c.failed, c.count)
	}
	return nil
}

// report prints the result of a check.
func (c *check) report(what string, err error, details func() string) {
	c.count++
	text := "ok    " + what
	switch {
	case err != nil:
		c.failed++
		text = "FAIL  " + what + ": " + err.Error()
	case details != nil:
		text += ": " + details()
	}
	_, _ = fmt.Fprintln(c.out, text) // the exit status has the result, too
}

// refuse reports an error if the executable answers a request with anything but an error of its own.
func (c *check) refuse(ctx context.Context, r request) error {
	result, err := c.ask(ctx, r)
	var refused stepError
	switch {
	case errors.As(err, &refused):
		return nil
	case err != nil:
		return err
	}
	return fmt.Errorf("got result %.200s, want a message of type error", result)
}

// runNamed runs the step KIND.NAME.
func (c *check) runNamed(ctx context.Context, name, args string) (json.RawMessage, error) {
	call := hardware.Call{Args: map[string]json.RawMessage{}}
	if args != "" {
		if err := json.Unmarshal([]byte(args), &call.Args); err != nil {
			return nil, fmt.Errorf("arguments: %w", err)
		}
	}
	kind, name, _ := strings.Cut(name, ".")
	for _, s := range c.description.Steps {
		if string(s.Kind) == kind && s.Step == name {
			return c.runStep(ctx, s, call)
		}
	}
	return nil, fmt.Errorf("no %s step %q, want KIND.NAME", kind, name)
}
