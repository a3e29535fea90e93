package extension

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"

	"ironroot/agent/command"
	"ironroot/agent/fault"
	"ironroot/agent/hardware"
	"ironroot/agent/node"
)

func find(t *testing.T, e command.Extension, name string) command.Command {
	t.Helper()
	i := slices.IndexFunc(e.Commands, func(c command.Command) bool { return c.Name == name })
	if i < 0 {
		t.Fatalf("extension %s has no command %s", e.Name, name)
	}
	return e.Commands[i]
}

// standaloneFunc receives a lookup response.
type standaloneFunc func(answer json.RawMessage) error

func (f standaloneFunc) SetNode(answer json.RawMessage) error { return f(answer) }

// The API accepts a node only in standalone mode.
func TestSetNodeInfo(t *testing.T) {
	r := newRig(t)
	var got []string
	set := func(failure error) Standalone {
		return standaloneFunc(func(answer json.RawMessage) error {
			got = append(got, string(answer))
			return failure
		})
	}
	info := command.Params{"node_info": json.RawMessage(`{"node":{}}`)}
	for name, c := range map[string]struct {
		standalone Standalone
		p          command.Params
		kind, want string
	}{
		"with Ironic": {nil, info, "InvalidCommandError", "standalone mode"},
		"absent":      {set(nil), command.Params{}, "InvalidCommandParamsError", "lookup response missing"},
		"null": {set(nil), command.Params{
			"node_info": json.RawMessage("null"),
		}, "InvalidCommandParamsError", "lookup response missing"},
		"refused": {
			set(errors.New("no uuid")), info, "InvalidCommandParamsError", "parameter node_info: no uuid",
		},
		"good": {set(nil), info, "", ""},
	} {
		got = nil
		r.deps.Standalone = c.standalone
		_, err := find(t, poll(r.deps), "set_node_info").Call(t.Context(), c.p)
		if c.kind == "" {
			if err != nil || len(got) != 1 || got[0] != `{"node":{}}` {
				t.Errorf("%s: got %v and the answers %q, want one", name, err, got)
			}
			continue
		}
		if f := fault.From(err); f == nil || f.Type != c.kind || !strings.Contains(f.Details, c.want) {
			t.Errorf("%s: got %v, want %s with %q", name, err, c.kind, c.want)
		}
	}
}

// control counts calls.
type control struct {
	lockdowns, rescues int
	prepareErr         error
}

func (c *control) Lockdown()                           { c.lockdowns++ }
func (c *control) PrepareRescue(context.Context) error { return c.prepareErr }
func (c *control) Rescue()                             { c.rescues++ }

// stopping counts calls, and calls the functions that are not nil.
type stopping struct {
	powerOffs int
	setClocks func() error
	detach    func(ctx context.Context)
}

func (s *stopping) PoweringOff() { s.powerOffs++ }

func (s *stopping) SetClocks(context.Context) error {
	if s.setClocks == nil {
		return nil
	}
	return s.setClocks()
}

func (s *stopping) Detach(ctx context.Context) {
	if s.detach != nil {
		s.detach(ctx)
	}
}

func TestLockdown(t *testing.T) {
	r := newRig(t)
	c := &control{}
	r.deps.Control = c
	lockdown := find(t, system(r.deps), "lockdown")
	result, err := lockdown.Call(t.Context(), nil)
	if result != nil || err != nil || c.lockdowns != 1 || !lockdown.Destructive || !lockdown.Last {
		t.Errorf("got %v, %v and %d lockdowns, want one, marked destructive and last", result, err, c.lockdowns)
	}
}

func TestSync(t *testing.T) {
	r := newRig(t)
	stop := &stopping{}
	r.deps.Stop = stop
	result, err := find(t, standby(r.deps), "sync").Call(t.Context(), nil)
	if result != nil || err != nil || stop.powerOffs != 1 {
		t.Errorf("got %v, %v, and %d calls of PoweringOff, want one", result, err, stop.powerOffs)
	}
}

// brokenManager can neither wait for the disks nor sync them.
type brokenManager struct{}

func (brokenManager) Class() string                          { return "BrokenHardwareManager" }
func (brokenManager) Name() string                           { return "broken" }
func (brokenManager) Version() string                        { return "1" }
func (brokenManager) Support(context.Context) hardware.Level { return hardware.ServiceProvider }

func (brokenManager) Sync(context.Context) error { return errors.New("input/output error") }

func (brokenManager) WaitDisks(context.Context, *node.Node) error { return errors.New("no such disk") }

// Listing the steps of a node fails if its disks do not appear.
func TestDisksOfStepsDoNotAppear(t *testing.T) {
	r := newRig(t, brokenManager{})
	params := command.Params{"node": json.RawMessage(`{"uuid":"x"}`), "ports": json.RawMessage("[]")}
	result, err := find(t, clean(r.deps), "get_clean_steps").Call(t.Context(), params)
	if err == nil || !strings.Contains(err.Error(), "no such disk") {
		t.Errorf("got %v, %v, want the error of the manager", result, err)
	}
}

// A failed sync fails the command sync, but does not prevent the machine from stopping.
func TestSyncFails(t *testing.T) {
	r := newRig(t, brokenManager{})
	_, err := find(t, standby(r.deps), "sync").Call(t.Context(), nil)
	if err == nil || !strings.Contains(err.Error(), "input/output error") {
		t.Errorf("sync: got %v, want the error of the manager", err)
	}
	ended := false
	end := stopWith(r.deps, "power off", func(context.Context) error {
		ended = true
		return nil
	})
	if _, err := end(t.Context(), nil); err != nil || !ended {
		t.Errorf("power off: got %v, ended %v, want the machine to stop", err, ended)
	}
}

// Anything but an object is ignored, because ironic-python-agent accepts any JSON.
func TestPorts(t *testing.T) {
	for text, want := range map[string]int{
		"null": 0, "{}": 0, "[]": 0, `"port"`: 0, `[{}, 1, null, {"address": "x"}]`: 2, "": 0,
	} {
		if got := ports(json.RawMessage(text)); len(got) != want {
			t.Errorf("%s: got %v, want %d ports", text, got, want)
		}
	}
}

func TestStepName(t *testing.T) {
	for text, want := range map[string]string{
		`{"step": "write_image"}`: "write_image", "{}": "", "[]": "", "null": "",
	} {
		if got := StepName(command.Params{"step": json.RawMessage(text)}); got != want {
			t.Errorf("%s: got %q, want %q", text, got, want)
		}
	}
}

// All extensions are present, and flow runs the commands of the others.
func TestAll(t *testing.T) {
	r := newRig(t)
	var names []string
	for _, e := range All(r.deps) {
		names = append(names, e.Name)
	}
	const want = "standby clean deploy service image iscsi rescue log poll system flow"
	if strings.Join(names, " ") != want {
		t.Errorf("got the extensions %q, want %q", names, want)
	}
}
