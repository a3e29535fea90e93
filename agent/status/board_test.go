package status

import (
	"errors"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"ironroot/agent/fault"
	"ironroot/netboot/snapshot"
)

// Foreign text is converted to one line of limited length without secrets.
func TestForeignText(t *testing.T) {
	b := NewBoard("1", cleaning(func(text string) string { return strings.ReplaceAll(text, "s3cret", "***") }))
	const foreign, want = "s3cret\n\x1b[2J ", "***  [2J"
	b.Node(foreign, foreign)
	b.Begin(foreign, foreign)
	b.Tried(foreign, errors.New(foreign))
	b.Problem("p", errors.New(foreign))
	links := []snapshot.Link{{Name: "eno1", Err: errors.New(foreign)}}
	show(b, links)
	s := b.State()
	for name, got := range map[string]string{
		"node": s.NodeUUID, "name": s.NodeName, "command": s.Command.Name, "step": s.Command.Step,
		"problem": s.Problems[0].Text, "URL": s.APIs[0].URL, "result": s.APIs[0].Trouble, "link": s.Links[0].Trouble,
	} {
		if got != want {
			t.Errorf("%s: got %q, want %q", name, got, want)
		}
	}
	b.Problem("p", errors.New(strings.Repeat("ö", maxText+1)))
	if got, want := b.State().Problems[0].Text, strings.Repeat("ö", maxText-3)+"..."; got != want {
		t.Errorf("long text: got %q, want %q", got, want)
	}
}

// The URLs come from the latest list. URLs that stay in it keep their results.
func TestURLs(t *testing.T) {
	b := NewBoard("1", nil)
	results := func() map[string]string {
		got := map[string]string{}
		for _, a := range b.State().APIs {
			got[a.URL] = a.Result()
		}
		return got
	}
	b.Ironic([]string{"one", "two"})
	b.Tried("one", unix.ECONNREFUSED)
	b.Tried("three", nil)
	want := map[string]string{"one": "connection refused", "two": "not tried yet", "three": "answers"}
	if diff := cmp.Diff(want, results()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	b.Ironic([]string{"one", "four"})
	want = map[string]string{"one": "connection refused", "four": "not tried yet"}
	if diff := cmp.Diff(want, results()); diff != "" {
		t.Errorf("another list (-want +got):\n%s", diff)
	}
}

func TestHeartbeat(t *testing.T) {
	b := NewBoard("1", nil)
	b.HeartbeatDone(unix.ECONNREFUSED)
	if got := b.State().Beat; !got.Failed || !got.Accepted.IsZero() {
		t.Errorf("refused: got %+v", got)
	}
	b.HeartbeatDone(nil)
	accepted := b.State().Beat
	if accepted.Failed || time.Since(accepted.Accepted) > time.Hour {
		t.Errorf("accepted: got %+v, want it accepted now", accepted)
	}
	b.HeartbeatDone(unix.ECONNREFUSED)
	if got := b.State().Beat; !got.Failed || !got.Accepted.Equal(accepted.Accepted) {
		t.Errorf("refused again: got %+v, want the time of the one that was accepted", got)
	}
}

func TestAlone(t *testing.T) {
	refused := []API{{URL: "a"}, {URL: "b", Trouble: "refused"}}
	for _, c := range []struct {
		state State
		want  bool
	}{
		{State{}, false},
		{State{Phase: "configuration"}, false},
		{State{Phase: Network}, true},
		{State{Phase: Discovery}, true},
		{State{Phase: Lookup}, true},
		{State{Phase: Address}, true},
		{State{Phase: Inspection}, false},
		{State{Phase: Inspection, APIs: refused[:1]}, false},
		{State{Phase: Inspection, APIs: refused}, true},
		{State{Phase: Ready, APIs: refused}, false},
		{State{Phase: Ready, Beat: Beat{Failed: true}}, true},
		{State{Phase: Lockdown, APIs: refused, Beat: Beat{Failed: true}}, false},
	} {
		if got := c.state.Alone(); got != c.want {
			t.Errorf("%+v: got %v, want %v", c.state, got, c.want)
		}
	}
}

// There is a suggestion for each URL and each problem, without duplicates.
func TestAdviceOfEach(t *testing.T) {
	b := NewBoard("1", nil)
	b.Enter(Ready)
	b.Tried("u", unix.ECONNREFUSED)
	b.Problem("heartbeat", unix.ECONNREFUSED)
	b.Problem("command", fault.DeviceNotFound("no disk"))
	const ironic, disk = "is ironic-api running", "do the root device hints"
	got := b.State().Advice()
	if len(got) != 2 || !strings.HasPrefix(got[0], ironic) || !strings.HasPrefix(got[1], disk) {
		t.Errorf("got %q, want advice on Ironic and on the disk", got)
	}
	b.Tried("u", nil)
	if got := b.State().Advice(); len(got) != 2 {
		t.Errorf("a problem whose URL answers again: got %q, want its advice and that on the disk", got)
	}
	b.Tried("u", unix.ECONNREFUSED)
	b.Problem("heartbeat", nil)
	if got := b.State().Advice(); len(got) != 2 {
		t.Errorf("a URL without a problem: got %q, want its advice and that on the disk", got)
	}
}

func TestAdviceOnVLANs(t *testing.T) {
	l := Link{Name: "eno2", Carrier: true, VLANs: []int{7, 9}}
	s := State{Phase: Network, Links: []Link{l}}
	got := s.Advice()
	const option = "ipa-enable-vlan-interfaces=eno2"
	if len(got) != 2 || !strings.Contains(got[1], "VLANs 7,9 ") || !strings.HasSuffix(got[1], option) {
		t.Errorf("got %q, want the VLANs and the option that makes interfaces of them", got)
	}
	s.Links[0].VLANs = nil
	if got := s.Advice(); len(got) != 1 {
		t.Errorf("without VLANs: got %q, want one about the DHCP server", got)
	}
}

// A returned State is not shared.
func TestStateIsACopy(t *testing.T) {
	b := NewBoard("1", nil)
	b.Adapters([]Adapter{{Address: "0000:00:03.0"}})
	b.Ironic([]string{"u"})
	b.Problem("p", errors.New("e"))
	show(b, network())
	s := b.State()
	s.Adapters[0].Address, s.APIs[0].URL, s.Problems[0].Text, s.Links[0].Name = "", "", "", ""
	again := b.State()
	texts := []string{again.Adapters[0].Address, again.APIs[0].URL, again.Problems[0].Text, again.Links[0].Name}
	if slices.Contains(texts, "") {
		t.Errorf("a copy changed the board: got %q", texts)
	}
}

// Without a board, work is tracked in the log.
func TestWithoutBoard(t *testing.T) {
	var b *Board
	b.Adapters([]Adapter{{Address: "0000:00:03.0"}})
	tracker := b.Track(slog.New(slog.DiscardHandler), "writing image", "/dev/sda")
	tracker.Set(1, 2)
	tracker.End()
}
