package extension

import (
	"context"
	"log/slog"
	"slices"
	"strings"
	"testing"

	"ironroot/agent/command"
	"ironroot/agent/hardware"
	"ironroot/internal/test/testenv"
)

// brokenSync is a hardware manager that panics when the disks are synced.
type brokenSync struct{}

func (brokenSync) Class() string                          { return "BrokenManager" }
func (brokenSync) Name() string                           { return "broken" }
func (brokenSync) Version() string                        { return "1" }
func (brokenSync) Support(context.Context) hardware.Level { return hardware.ServiceProvider }
func (brokenSync) Sync(context.Context) error             { panic("in the manager") }

// A panic of the sync fails the command sync, but does not prevent the machine from stopping.
func TestSyncContainsPanics(t *testing.T) {
	testenv.ExpectPanics(t)
	r := newRig(t, brokenSync{})
	a := r.run("standby.sync", map[string]any{})
	if a.Status != "FAILED" || !strings.Contains(a.Error.Details, "in the manager") {
		t.Errorf("sync: got %s %+v, want FAILED with the panic", a.Status, a.Error)
	}
	machine := &stopped{}
	var log strings.Builder
	r.deps.Power, r.deps.Log = machine, slog.New(slog.NewTextHandler(&log, nil))
	extension := standby(r.deps)
	i := slices.IndexFunc(extension.Commands, func(c command.Command) bool { return c.Name == "run_image" })
	result, err := extension.Commands[i].Call(t.Context(), nil)
	if result != nil || err != nil || machine.reboots != 1 {
		t.Errorf("run_image: got %v, %v and %d restarts, want null and one", result, err, machine.reboots)
	}
	if !strings.Contains(log.String(), "\"disks not synced\" before=reboot") ||
		!strings.Contains(log.String(), "in the manager") {
		t.Errorf("got log %s, want a warning with the panic", &log)
	}
}
