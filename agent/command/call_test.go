package command

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"ironroot/agent/fault"
)

func do(result any, err error) func(context.Context, Params) (any, error) {
	return func(context.Context, Params) (any, error) { return result, err }
}

// registry has commands of both kinds.
func registry(t *testing.T, o Options) *Registry {
	t.Helper()
	validate := func(_ context.Context, p Params) error {
		switch {
		case p.Has("invalid"):
			return fault.InvalidCommandParams("wrong value")
		case p.Has("unfit"):
			return errors.New("no such disk")
		case p.Has("panic"):
			panic("oops")
		}
		return nil
	}
	params := []Param{{Name: "one", Required: true}, {Name: "two"}, {Name: "invalid"}, {Name: "unfit"}, {Name: "panic"}}
	r := NewRegistry([]Extension{
		{Name: "y", Commands: []Command{{Name: "other", Run: do("y", nil)}}},
		{Name: "x", Commands: []Command{
			{Name: "other", Run: do("x", nil)},
			{Name: "now", Params: params, Validate: validate, Run: do("<done>", nil)},
			{Name: "later", Async: true, Params: params, Validate: validate, Run: do("<done>", nil)},
			{Name: "any", AnyParams: true, Params: []Param{{Name: "one", Required: true}}, Run: do(1, nil)},
			{Name: "bytes", Run: do([]byte("text"), nil)},
			{Name: "channel", Run: do(make(chan int), nil)},
			{Name: "fails", Run: do(nil, errors.New("broken"))},
			{Name: "mismatch", Run: do(nil, fault.VersionMismatch(nil, nil))},
		}},
	}, o)
	t.Cleanup(r.Close)
	return r
}

func params(names ...string) Params {
	p := Params{}
	for _, name := range names {
		p[name] = json.RawMessage("1")
	}
	return p
}

// Rejected commands leave no record, and the next command can run.
func TestRejectedCommands(t *testing.T) {
	var ended []error
	r := registry(t, Options{Observer: observer{ended: func(err error) { ended = append(ended, err) }}})
	for _, c := range []struct {
		name  string
		p     Params
		want  string
		ended int // calls of Ended so far
	}{
		{"now", nil, "<extension>.<name>", 0},
		{"z.now", nil, "Extension", 0},
		{"x.unknown", nil, "Unknown command: unknown", 0},
		{"x.now", params("one", "invalid"), "wrong value", 1},
		{"x.later", params("one", "invalid"), "wrong value", 2},
		{"x.now", nil, "now() is missing the required argument 'one'", 3},
		{
			"x.now", params("one", "zoo", "ape", "cat"),
			"now() got an unexpected keyword argument 'ape', 'cat', 'zoo'", 4,
		},
	} {
		record, err := r.Execute(t.Context(), c.name, c.p)
		got := ""
		switch {
		case err != nil:
			got = fault.From(err).Details
		case record != nil && record.Error != nil: // a TypeError of a synchronous command
			got = record.Error.Details
		}
		if !strings.Contains(got, c.want) {
			t.Errorf("%s %v: got %+v, %v, want %q", c.name, c.p, record, err, c.want)
		}
		if len(ended) != c.ended {
			t.Errorf("%s: got %d calls of Ended, want %d", c.name, len(ended), c.ended)
		}
	}
	if record, err := r.Execute(t.Context(), "x.now", params("one", "two")); err != nil || record.Status != Succeeded {
		t.Errorf("afterwards: got %+v, %v, want a command that succeeded", record, err)
	}
}

// Results of synchronous commands are stored as JSON. Failed ones are stored with their full name.
func TestResults(t *testing.T) {
	var names []string
	var ended []bool
	r := registry(t, Options{Observer: observer{
		started: func(name string, p Params) { names = append(names, fmt.Sprint(name, len(p))) },
		ended:   func(err error) { ended = append(ended, err == nil) },
	}})
	type row struct{ name, record, status, result, failure string }
	rows := []row{
		{"x.now", "now", "SUCCEEDED", `{"result":"<done>"}`, ""},
		{"x.other", "other", "SUCCEEDED", `{"result":"x"}`, ""},
		{"y.other", "other", "SUCCEEDED", `{"result":"y"}`, ""},
		{"x.any", "any", "SUCCEEDED", "1", ""},
		{"x.bytes", "bytes", "SUCCEEDED", `{"result":"text"}`, ""},
		{"x.channel", "x.channel", "FAILED", "", "encode command result as JSON"},
		{"x.fails", "x.fails", "FAILED", "", "broken"},
		{"x.mismatch", "x.mismatch", "CLEAN_VERSION_MISMATCH", "", ""},
	}
	var ids []string
	for _, c := range rows {
		p := Params(nil)
		if c.name == "x.now" || c.name == "x.any" {
			p = params("one")
		}
		if c.name == "x.any" {
			p["more"] = json.RawMessage("{}")
		}
		record, err := r.Execute(t.Context(), c.name, p)
		if err != nil {
			t.Fatalf("%s: %v", c.name, err)
		}
		failure := ""
		if record.Error != nil {
			failure = record.Error.Details
		}
		if record.Name != c.record || string(record.Status) != c.status || string(record.Result) != c.result ||
			!strings.Contains(failure, c.failure) {
			t.Errorf("%s: got %+v with error %q, want %+v", c.name, record, failure, c)
		}
		ids = append(ids, record.ID)
	}
	uuid := regexp.MustCompile(`^[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$`)
	for i, record := range r.List() {
		if record.ID != ids[i] || !uuid.MatchString(record.ID) {
			t.Errorf("record %d: got ID %q, want %q, a random UUID", i, record.ID, ids[i])
		}
		if got, err := r.Wait(t.Context(), record.ID); err != nil || got.ID != record.ID {
			t.Errorf("wait for a command that ended: got %+v, %v", got, err)
		}
	}
	if len(r.List()) != len(rows) || len(slices.Compact(slices.Sorted(slices.Values(ids)))) != len(rows) {
		t.Errorf("got %d records, want %d with distinct IDs: %v", len(r.List()), len(rows), ids)
	}
	const want = "x.now1 x.other0 y.other0 x.any2 x.bytes0 x.channel0 x.fails0 x.mismatch0"
	if got := strings.Join(names, " "); got != want {
		t.Errorf("Started was called with %s", got)
	}
	if want := []bool{true, true, true, true, true, true, false, false}; !slices.Equal(ended, want) {
		t.Errorf("Ended was called with success %v, want %v", ended, want)
	}
	if _, err := r.Wait(t.Context(), "none"); fault.From(err).Type != "RequestedObjectNotFoundError" {
		t.Errorf("wait for an unknown command: got %v", err)
	}
	if got, ok := r.Get("none"); ok || got.ID != "" {
		t.Errorf("an unknown command: got %+v", got)
	}
}

// The record of an asynchronous command contains the error of its parameters.
func TestAsyncFailures(t *testing.T) {
	for name, c := range map[string]struct {
		p             Params
		record        string
		kind, details string
	}{
		"missing": {
			nil, "later", "CommandExecutionError", "TypeError: later() is missing the required argument 'one'",
		},
		"unknown":    {params("one", "three"), "later", "CommandExecutionError", "unexpected keyword argument 'three'"},
		"unfit":      {params("one", "unfit"), "x.later", "", "no such disk"},
		"panic":      {params("one", "panic"), "x.later", "", "oops"},
		"no mistake": {params("one"), "later", "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			var ended []error
			finished := make(chan struct{}, 1)
			r := registry(t, Options{Observer: observer{
				ended:    func(err error) { ended = append(ended, err) },
				finished: func() { finished <- struct{}{} },
			}})
			record, err := r.Execute(t.Context(), "x.later", c.p)
			if err != nil {
				t.Fatal(err)
			}
			if record.Name != c.record || (record.Status == Running) != (c.record == "later") {
				t.Errorf("got %+v, want a record of %s", record, c.record)
			}
			final, err := r.Wait(t.Context(), record.ID)
			if err != nil {
				t.Fatal(err)
			}
			if c.details == "" {
				if final.Status != Succeeded || string(final.Result) != `{"result":"later: <done>"}` {
					t.Errorf("got %+v, want the result with the command's name", final)
				}
			} else if final.Status != Failed || !strings.Contains(final.Error.Details, c.details) ||
				c.kind != "" && final.Error.Type != c.kind {
				t.Errorf("got %s, %+v, want FAILED, %s %q", final.Status, final.Error, c.kind, c.details)
			}
			if c.record == "later" {
				<-finished
			}
			if len(ended) != 1 || (ended[0] == nil) != (c.details == "") || len(r.List()) != 1 {
				t.Errorf("got Ended called with %v and %d records, want one of each", ended, len(r.List()))
			}
		})
	}
}

// A command is rejected while another runs, and the error names that one. Hooks are optional.
func TestBusy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		leave := make(chan struct{})
		r := NewRegistry(set(
			Command{Name: "long", Async: true, Run: func(context.Context, Params) (any, error) {
				<-leave
				return nil, nil
			}},
			Command{Name: "short", Run: do(nil, nil)},
		), Options{})
		defer r.Close()
		if _, err := r.Execute(t.Context(), "x.long", nil); err != nil {
			t.Fatal(err)
		}
		if _, err := r.Execute(t.Context(), "x.short", nil); err == nil ||
			!strings.Contains(fault.From(err).Details, "long") {
			t.Errorf("got %v, want a rejection that names the command", err)
		}
		if got := r.List(); len(got) != 1 || got[0].Status != Running {
			t.Errorf("got %+v, want the running one", got)
		}
		close(leave)
		synctest.Wait()
		if record, err := r.Execute(t.Context(), "x.short", nil); err != nil || string(record.Result) != "null" {
			t.Errorf("afterwards: got %+v, %v, want null", record, err)
		}
	})
}

func TestHas(t *testing.T) {
	p := Params{"null": json.RawMessage("null "), "zero": json.RawMessage("0")}
	for name, want := range map[string]bool{"null": false, "zero": true, "absent": false} {
		if got := p.Has(name); got != want {
			t.Errorf("%s: got %v, want %v", name, got, want)
		}
	}
}
