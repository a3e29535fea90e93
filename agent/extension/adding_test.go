package extension

import (
	"context"
	"encoding/json"
	"strings"
	"testing"

	"ironroot/agent/command"
	"ironroot/agent/fault"
)

// docs/adding.md quotes the declarations of this file.

// message is an extension with the command message.log.
func message(d Deps) command.Extension {
	return command.Extension{Name: "message", Commands: []command.Command{{
		Name:   "log",
		Params: []command.Param{{Name: "text", Required: true}},
		Run:    func(_ context.Context, p command.Params) (any, error) { return nil, logMessage(d, p) },
	}}}
}

// logMessage writes a line of the caller's into the agent's log.
func logMessage(d Deps, p command.Params) error {
	var text string
	if err := p.Decode("text", &text); err != nil {
		return err
	}
	if text == "" {
		return fault.InvalidCommandParams("parameter text: want a text")
	}
	d.Log.Info("message received", "text", text)
	return nil
}

func TestAddedCommand(t *testing.T) {
	r := newRig(t)
	c := find(t, message(r.deps), "log")
	if _, err := c.Run(t.Context(), command.Params{"text": json.RawMessage(`"hello"`)}); err != nil {
		t.Error(err)
	}
	for _, text := range []string{`""`, "1"} {
		_, err := c.Run(t.Context(), command.Params{"text": json.RawMessage(text)})
		if err == nil || !strings.Contains(err.Error(), "text") {
			t.Errorf("text %s: got %v, want an error that names the parameter", text, err)
		}
	}
}
