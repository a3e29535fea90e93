package agent

import (
	"context"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"ironroot/agent/config"
	"ironroot/agent/journal"
	"ironroot/agent/status"
	"ironroot/internal/test/testenv"
)

// until waits for a state of the board.
func until(t *testing.T, b *status.Board, what string, reached func(*status.State) bool) *status.State {
	t.Helper()
	limit := time.After(time.Minute)
	for {
		change := b.Changed()
		s := b.State()
		if reached(s) {
			return s
		}
		select {
		case <-change:
		case <-limit:
			t.Fatalf("no %s: got %+v", what, s)
		}
	}
}

func problem(s *status.State, source string) string {
	i := slices.IndexFunc(s.Problems, func(p status.Problem) bool { return p.Source == source })
	if i < 0 {
		return ""
	}
	return s.Problems[i].Text
}

// The board shows the phase of the start, the problems, the node, and the running or latest command.
func TestBoard(t *testing.T) {
	ironic := newIronic(t)
	ironic.answer(http.StatusNotFound)
	board := status.NewBoard("", nil)
	forever := func(o *Options) { o.Forever, o.Destructive, o.Board = true, true, board }
	r := startAgent(t, forever, "--api-url="+ironic.URL, "--lookup-timeout=0")
	s := until(t, board, "failed lookup", func(s *status.State) bool { return problem(s, "lookup") != "" })
	if len(s.APIs) != 1 || s.APIs[0].URL != ironic.URL || s.APIs[0].Tried.IsZero() || s.APIs[0].Trouble != "" {
		t.Errorf("got URLs %+v, want %s, tried and without trouble", s.APIs, ironic.URL)
	}
	s = until(t, board, "failed start", func(s *status.State) bool { return problem(s, "start") != "" })
	if got := problem(s, "start"); !strings.Contains(got, "404") || s.NodeUUID != "" {
		t.Errorf("got the problem %q and node %q, want the status of the lookup and no node", got, s.NodeUUID)
	}
	ironic.answer(http.StatusOK)
	r.beat(ironic)
	s = until(t, board, "accepted heartbeat", func(s *status.State) bool { return !s.Beat.Accepted.IsZero() })
	if s.Phase != status.Ready || s.NodeUUID != nodeUUID || len(s.Problems) != 0 || s.Beat.Failed {
		t.Errorf("got phase %s, node %s, problems %+v, want ready, %s and none",
			s.Phase, s.NodeUUID, s.Problems, nodeUUID)
	}
	r.run("clean.execute_clean_step",
		`{"step":{"step":"no_such_step","interface":"deploy"},"node":{"uuid":"`+nodeUUID+`"},"ports":[]}`)
	s = until(t, board, "ended command", func(s *status.State) bool { return !s.Command.Ended.IsZero() })
	if s.Command.Name != "clean.execute_clean_step" || s.Command.Step != "no_such_step" || !s.Command.Failed {
		t.Errorf("got command %+v, want clean.execute_clean_step of no_such_step, failed", s.Command)
	}
	r.run("standby.get_partition_uuids", "{}")
	s = until(t, board, "second command", func(s *status.State) bool {
		return s.Command.Name == "standby.get_partition_uuids" && !s.Command.Ended.IsZero()
	})
	if s.Command.Failed {
		t.Errorf("got command %+v, want success", s.Command)
	}
}

// An agent without Ironic shows the node of set_node_info.
func TestBoardOfStandaloneAgent(t *testing.T) {
	board := status.NewBoard("", nil)
	r := startAgent(t, func(o *Options) { o.Board = board }, "--standalone", "--agent_token="+testToken)
	r.reach("ready")
	r.run("poll.set_node_info", `{"node_info":{"node":{"uuid":"`+nodeUUID+`","name":"rack-1"},`+
		`"config":{"agent_token":"`+strings.Repeat("n", 43)+`"}}}`)
	if s := board.State(); s.NodeUUID != nodeUUID || s.NodeName != "rack-1" {
		t.Errorf("got node %s %q, want %s rack-1", s.NodeUUID, s.NodeName, nodeUUID)
	}
	r.token = strings.Repeat("n", 43)
	r.run("standby.get_partition_uuids", "{}")
	r.journal.Logger().Info("a line with " + r.token)
	if strings.Contains(r.console.String(), r.token) {
		t.Error("the preset token is in the log")
	}
}

// Each phase of the start is announced to the drivers, and the first heartbeat resumes them, also one that failed.
func TestDriversFollowTheStart(t *testing.T) {
	for _, refused := range []string{"", testToken} {
		ironic := newIronic(t)
		ironic.forget(refused)
		calls := make(chan string, 100)
		r := startAgent(t, func(o *Options) {
			d := fakeDrivers{resume: func() { calls <- "resume" }}
			o.Machine.Drivers = onEnter(d, func(phase string) { calls <- phase })
		}, "--api-url="+ironic.URL)
		r.beat(ironic)
		for _, want := range []string{
			"configuration", "hardware", "network", "discovery", "clock", "inspection", "lookup", "address", "api",
			"ready", "resume",
		} {
			if got := <-calls; got != want {
				t.Errorf("heartbeat with refused token %q: got call %s, want %s", refused, got, want)
			}
		}
	}
}

// A reloaded configuration replaces the URLs on the board.
func TestBoardAfterReload(t *testing.T) {
	first, second := newIronic(t), newIronic(t)
	first.answer(http.StatusNotFound)
	board := status.NewBoard("", nil)
	r := startAgent(t, func(o *Options) {
		o.Forever, o.Board = true, board
		later := *o.Config
		later.APIURL = second.URL
		o.Machine.Media = reloadFunc(func() *config.Config { return &later })
	}, "--api-url="+first.URL, "--lookup-timeout=0")
	r.beat(second)
	s := until(t, board, "accepted heartbeat", func(s *status.State) bool { return !s.Beat.Accepted.IsZero() })
	if len(s.APIs) != 1 || s.APIs[0].URL != second.URL {
		t.Errorf("got URLs %+v, want %s alone", s.APIs, second.URL)
	}
}

// A failed inspection is shown and does not prevent the lookup.
func TestBoardShowsFailedInspection(t *testing.T) {
	ironic := newIronic(t)
	board := status.NewBoard("", nil)
	r := startAgent(t, func(o *Options) { o.System, o.Board = bareMachine(t), board },
		"--api-url="+ironic.URL, "--inspection-callback-url="+ironic.URL+"/nowhere",
		"--inspection-collectors=pci-devices")
	r.beat(ironic)
	s := board.State()
	if got := problem(s, "inspection"); !strings.Contains(got, "404") {
		t.Errorf("got problems %+v, want the inspection's status", s.Problems)
	}
}

// The report of an agent that does not reach Ironic names the URL that was tried.
func TestReportWithoutIronic(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		console := &testenv.Log{}
		c, err := config.Load(config.Sources{Args: []string{"--api-url=http://192.0.2.1"}})
		if err != nil {
			t.Fatal(err)
		}
		board, log := status.NewBoard("", nil), journal.New(console, nil, 1<<20)
		reporting, stop := context.WithCancel(t.Context())
		defer stop()
		go status.Reporter{Board: board, Log: log.Logger()}.Run(reporting)
		err = Run(t.Context(), Options{
			Config: c, System: bareMachine(t), Dialer: dialing(refused), Journal: log, Board: board,
		})
		if err == nil || !strings.HasPrefix(err.Error(), "lookup: ") {
			t.Errorf("got %v, want the error of the lookup", err)
		}
		if !strings.Contains(console.String(), "tried: Ironic url=http://192.0.2.1") {
			t.Errorf("the log lacks a report of the URL:\n%s", console)
		}
	})
}
