package hardware_test

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"ironroot/agent/hardware"
	"ironroot/agent/node"
	"ironroot/storage/sysfs"
)

// The declarations of this file are quoted by docs/adding.md.

// acmeManager supports the machines of one vendor. It has one step; the generic manager handles everything else.
type acmeManager struct{ system sysfs.Root }

func (acmeManager) Class() string   { return "AcmeHardwareManager" }
func (acmeManager) Name() string    { return "acme_hardware_manager" }
func (acmeManager) Version() string { return "1" } // raised with the list of steps

// Support returns how well the manager supports the machine. It changes nothing.
func (m acmeManager) Support(context.Context) hardware.Level {
	vendor, err := os.ReadFile(m.system.Sys("class/dmi/id/sys_vendor"))
	if err != nil || strings.TrimSpace(string(vendor)) != "Acme" {
		return hardware.None
	}
	return hardware.Mainline
}

// Steps implements [hardware.Stepper].
func (m acmeManager) Steps(kind hardware.Kind, _ *node.Node, _ []map[string]any) []hardware.Step {
	if kind != hardware.Clean {
		return nil
	}
	return []hardware.Step{{Name: "acme_reset", Priority: 20, Interface: "management", Run: m.reset}}
}

// reset is the step acme_reset.
func (acmeManager) reset(context.Context, hardware.Call) (any, error) { return nil, nil }

func TestAddedManager(t *testing.T) {
	system := sysfs.Root{Path: t.TempDir()}
	vendor := system.Sys("class/dmi/id/sys_vendor")
	if err := os.MkdirAll(filepath.Dir(vendor), 0o755); err != nil {
		t.Fatal(err)
	}
	for text, want := range map[string]int{"Acme\n": 1, "Other\n": 0} {
		if err := os.WriteFile(vendor, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		managers, err := hardware.Load(t.Context(), []hardware.Manager{acmeManager{system}},
			slog.New(slog.DiscardHandler))
		if (err == nil) != (want == 1) {
			t.Fatalf("vendor %q: got error %v", text, err)
		}
		if want == 0 {
			continue
		}
		if _, err := managers.Execute(t.Context(), hardware.Clean, "acme_reset", hardware.Call{}); err != nil {
			t.Errorf("step: %v", err)
		}
	}
}
