package extension

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"ironroot/agent/command"
	"ironroot/agent/fault"
)

// flowRig is a flow over two extensions whose commands record their calls.
func flowRig(t *testing.T, allowDestructive bool) (run func(flow string) error, calls *[]string) {
	t.Helper()
	calls = &[]string{}
	note := func(name string, err error) command.Command {
		return command.Command{
			Name: name, Params: []command.Param{{Name: "n"}},
			Run: func(_ context.Context, p command.Params) (any, error) {
				*calls = append(*calls, name+string(p["n"]))
				return "result", err
			},
		}
	}
	destructive := note("erase", nil)
	destructive.Destructive = true
	others := []command.Extension{
		{Name: "a", Commands: []command.Command{note("first", nil), note("fails", errors.New("no disk"))}},
		{Name: "b", Commands: []command.Command{note("second", nil), destructive}},
	}
	r := newRig(t)
	r.deps.AllowDestructive = allowDestructive
	start := flow(r.deps, others).Commands[0]
	if start.Name != "start_flow" || !start.Async {
		t.Fatalf("got the command %+v, want an asynchronous start_flow", start)
	}
	return func(flow string) error {
		p := command.Params{}
		if flow != "" {
			p["flow"] = json.RawMessage(flow)
		}
		result, err := start.Call(t.Context(), p)
		if result != nil {
			t.Errorf("%s: got the result %v, want none", flow, result)
		}
		return err
	}, calls
}

func TestFlow(t *testing.T) {
	run, calls := flowRig(t, true)
	for flow, want := range map[string]string{
		`[{"b.second": {"n": 1}, "a.first": {"n": 2}}, {"a.first": {}}, ` +
			`{"b.erase": null}]`: "second1 first2 first erase",
		`[]`: "", `[{}]`: "", "": "", "null": "",
	} {
		*calls = nil
		if err := run(flow); err != nil {
			t.Errorf("%s: %v", flow, err)
		}
		if got := strings.Join(*calls, " "); got != want {
			t.Errorf("%s: got the calls %q, want %q", flow, got, want)
		}
	}
}

// An invalid flow is rejected before its first command.
func TestFlowRefused(t *testing.T) {
	run, calls := flowRig(t, false)
	for flow, want := range map[string]string{
		`[{"a.first": {}}, {"a.unknown": {}}]`: "Unknown command: unknown",
		`[{"a.first": {}}, {"c.first": {}}]`:   "Extension with id c not found",
		`[{"a.first": {}}, {"first": {}}]`:     "<extension>.<name>",
		`[{"a.first": {}}, {"b.erase": {}}]`:   "b.erase refused",
		`[{"a.first": {}}, ["a.first"]]`:       "flow: got [, want an object",
		`[{"a.first": {}}, "a.first"]`:         "flow: got a.first, want an object",
		`[{"a.first": []}]`:                    "flow: parameters of a.first",
		`{"a.first": {}}`:                      "parameter flow",
		`[{"a.first": {}}, null]`:              "flow: got <nil>, want an object",
	} {
		if err := run(flow); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %q", flow, err, want)
		}
	}
	if len(*calls) > 0 {
		t.Errorf("got the calls %q, want none", *calls)
	}
}

// The first failure ends the flow. Its error starts with the command's name.
func TestFlowFails(t *testing.T) {
	run, calls := flowRig(t, true)
	err := run(`[{"a.fails": {}}, {"b.second": {}}]`)
	if got := fault.From(err); got == nil || got.Type != "CommandExecutionError" ||
		got.Details != "a.fails was failed\nno disk" {
		t.Errorf("got %+v, want a CommandExecutionError that names the command", got)
	}
	if err := run(`[{"a.first": {"bad": 1}}, {"b.second": {}}]`); err == nil ||
		!strings.Contains(err.Error(), "unexpected keyword argument 'bad'") {
		t.Errorf("wrong parameter: got %v", err)
	}
	if got := strings.Join(*calls, " "); got != "fails" {
		t.Errorf("got the calls %q, want the failed one only", got)
	}
}
