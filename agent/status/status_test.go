package status

import (
	"errors"
	"fmt"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"ironroot/agent/fault"
)

// Doing describes each phase of a node.
func TestDoing(t *testing.T) {
	b := NewBoard("1", nil)
	var got []string
	say := func(also string) { got = append(got, b.State().Doing()+also) }
	say("")
	for _, p := range []Phase{"configuration", Network, Discovery, Inspection, Lookup, Address, Ready} {
		b.Enter(p)
		say("")
	}
	b.Begin("deploy.execute_deploy_step", "write_image")
	say("")
	b.End(nil)
	say("")
	b.Enter(Lockdown)
	say("")
	want := []string{
		"starting", "starting (configuration)", "waiting for network", "looking for Ironic by multicast DNS",
		"inspecting", "looking up this node in Ironic", "starting (address)", "waiting for commands",
		"executing a command", "waiting for commands", "locked down: restart the machine to continue",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// A problem persists until its source reports success. Secrets and control characters are removed.
func TestProblems(t *testing.T) {
	b := NewBoard("1", cleaning(func(text string) string { return strings.ReplaceAll(text, "s3cret", "***") }))
	texts := func() (list []string) {
		for _, p := range b.State().Problems {
			list = append(list, p.Source+": "+p.Text)
		}
		return list
	}
	b.Problem("lookup", errors.New("token s3cret\x1b[2J\nis wrong"))
	b.HeartbeatDone(errors.New("refused"))
	if diff := cmp.Diff([]string{"lookup: token *** [2J is wrong", "heartbeat: refused"}, texts()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	b.Problem("lookup", nil)
	b.HeartbeatDone(nil)
	b.Begin("clean.execute_clean_step", "erase_devices")
	b.End(fault.BlockDeviceErase("%w", errors.New("/dev/sda: broken")))
	if got := texts(); len(got) != 1 || !strings.HasPrefix(got[0], "command: ") ||
		!strings.Contains(got[0], "/dev/sda: broken") {
		t.Errorf("after a failed command: got %q", got)
	}
	b.Begin("clean.execute_clean_step", "erase_devices")
	if got := texts(); got != nil {
		t.Errorf("when the next command runs: got %q, want none", got)
	}
	b.Ironic([]string{"https://admin:s3cret@ironic.example"})
	b.Tried("https://admin:other@ironic.example",
		&url.Error{Op: "Get", URL: "https://admin:other@ironic.example/v1/lookup", Err: unix.ECONNREFUSED})
	if text := fmt.Sprint(*b.State()); strings.Contains(text, "other") || strings.Contains(text, "s3cret") ||
		!strings.Contains(text, "connection refused") {
		t.Errorf("the state is %s", text)
	}
}

// Methods of a nil board do nothing.
func TestNoBoard(t *testing.T) {
	var b *Board
	b.Enter(Ready)
	b.Node("u", "n")
	b.Ironic([]string{"u"})
	b.Tried("u", nil)
	b.HeartbeatDone(nil)
	b.Problem("p", errors.New("e"))
	b.Begin("c", "s")
	b.End(nil)
	if got := b.State(); !cmp.Equal(got.Doing(), "starting") || b.Changed() != nil {
		t.Errorf("got %v, want nothing", got)
	}
}

// Every change notifies waiters, and a returned State does not change.
func TestChanged(t *testing.T) {
	b := NewBoard("1", nil)
	b.Ironic([]string{"one"})
	changed, before := b.Changed(), b.State()
	b.Tried("one", unix.ECONNREFUSED)
	select {
	case <-changed:
	case <-time.After(time.Minute):
		t.Error("waiters were not notified")
	}
	if before.APIs[0].Trouble != "" || b.State().APIs[0].Trouble == "" {
		t.Error("an old state changed, or the new one did not")
	}
}

// cleaning implements [Redactor].
type cleaning func(text string) string

func (c cleaning) Clean(text string) string { return c(text) }
