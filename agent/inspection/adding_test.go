package inspection

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"

	"ironroot/agent/config"
)

// docs/adding.md quotes the declarations of this file.

// collectUptime adds the seconds since the kernel started.
func collectUptime(_ context.Context, i *inspection) error {
	text, err := os.ReadFile(i.System.Proc("uptime"))
	if err != nil {
		return err
	}
	var seconds float64
	if _, err := fmt.Sscan(string(text), &seconds); err != nil {
		return fmt.Errorf("parse uptime %q: %w", strings.TrimSpace(string(text)), err)
	}
	i.set("uptime", seconds)
	return nil
}

// uptime is the row of Collectors.
var uptime = Collector{"uptime", []string{"uptime"}, "seconds since the kernel started", first, collectUptime}

func TestAddedCollector(t *testing.T) {
	m := newMachine(t, &config.Config{})
	i := &inspection{Options: m.Options, data: map[string]any{}}
	if failures := i.collect(t.Context(), []Collector{uptime}); len(failures) > 0 || i.data["uptime"] != 1.0 {
		t.Errorf("got %v and %v, want 1 s", i.data, failures)
	}
	write(t, m.System, "proc/uptime", "soon\n")
	if failures := i.collect(t.Context(), []Collector{uptime}); len(failures) != 1 {
		t.Errorf("got %v, want one error", failures)
	}
}
