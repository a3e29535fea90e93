package agent

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"

	"ironroot/agent/command"
	"ironroot/agent/config"
	"ironroot/agent/imaging"
	"ironroot/agent/journal"
)

// exported is an export of which only the end is called.
type exported struct {
	imaging.Exporter
	closed int
	err    error
}

func (e *exported) Close(context.Context) error {
	e.closed++
	return e.err
}

// The export of the root disk ends before the machine stops, at a lockdown, with another session of Ironic, and with
// the agent. A failure is logged.
func TestExportEnds(t *testing.T) {
	over, cancel := context.WithCancel(t.Context())
	cancel()
	for name, end := range map[string]func(*agent){
		"stop":     func(a *agent) { a.deps().Stop.Detach(t.Context()) },
		"lockdown": func(a *agent) { a.lockdown(over, func() {}) },
		"session":  func(a *agent) { a.resetCommands(t.Context()) },
		"agent":    func(a *agent) { a.close() },
	} {
		t.Run(name, func(t *testing.T) {
			var log bytes.Buffer
			a := newAgent(Options{
				Config: &config.Config{}, Journal: journal.New(&log, new(slog.LevelVar), journalSize),
			})
			a.commands = command.NewRegistry(nil, command.Options{})
			export := &exported{err: errors.New("target is stuck")}
			a.targets = export
			if end(a); export.closed != 1 {
				t.Errorf("got %d ends of the export, want 1", export.closed)
			}
			if !strings.Contains(log.String(), "target is stuck") {
				t.Errorf("got log %q, want the failure", log.String())
			}
		})
	}
}

// A rescue ends the export first, and is not possible if that fails.
func TestExportEndsBeforeRescue(t *testing.T) {
	prepared := 0
	a := newAgent(Options{Config: &config.Config{}, Machine: Machine{Logins: prepareRescueFunc(func() error {
		prepared++
		return nil
	})}})
	export := &exported{err: errors.New("target is stuck")}
	a.targets = export
	if err := a.PrepareRescue(t.Context()); !errors.Is(err, export.err) || prepared > 0 {
		t.Errorf("got %v and %d preparations, want %v and none", err, prepared, export.err)
	}
	export.err = nil
	if err := a.PrepareRescue(t.Context()); err != nil || export.closed != 2 || prepared != 1 {
		t.Errorf("got %v, %d ends of the export and %d preparations, want 2 and 1", err, export.closed, prepared)
	}
}
