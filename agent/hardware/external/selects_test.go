package external

import (
	"context"
	"log/slog"
	"strings"
	"testing"

	"ironroot/agent/hardware"
	"ironroot/storage/block"
)

// A manager that selects disks is not asked which ones, so that none may be listed.
func TestSelectsDisks(t *testing.T) {
	for _, selects := range []bool{false, true} {
		text := site
		if selects {
			text = strings.Replace(site, `"steps"`, `"selects_disks":true,"steps"`, 1)
		}
		m, _, err := manager(t, answer(text), "")
		if err != nil {
			t.Fatal(err)
		}
		list := []hardware.Manager{hardware.Custom{Manager: m.Hardware()}, keeper{m}}
		managers, err := hardware.Load(t.Context(), list, slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		got, err := managers.Filter(t.Context(), []block.Device{{Name: "sda", Path: "/dev/sda"}})
		const want = "filter /dev/sda: hardware manager site selects disks, which executables cannot do"
		switch {
		case selects && (err == nil || err.Error() != want):
			t.Errorf("got %v and %v, want %q", got, err, want)
		case !selects && (err != nil || len(got) != 1):
			t.Errorf("got %v and %v, want the disk", got, err)
		}
	}
}

// keeper stands for the built-in manager: it keeps all disks.
type keeper struct{ hardware.Manager }

func (k keeper) FilterDevice(_ context.Context, d block.Device) (block.Device, bool, error) {
	return d, true, nil
}
