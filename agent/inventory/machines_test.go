package inventory

import (
	"bytes"
	"encoding/json"
	"os"
	"testing"

	"github.com/google/go-cmp/cmp"

	"ironroot/agent/config"
	"ironroot/agent/inventory/machinetest"
)

// The inventory of a server of each manufacturer. IRONROOT_GOLDEN=1 updates the golden files.
func TestMachines(t *testing.T) {
	for _, name := range machinetest.Names(t) {
		t.Run(name, func(t *testing.T) {
			sys := machinetest.System(t, name)
			inv, err := New(Options{
				System: sys,
				Config: config.NewLive(&config.Config{Params: config.Params{"BOOTIF": "01-52-54-00-1A-15-d6"}}),
			}).Collect(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			var got bytes.Buffer
			e := json.NewEncoder(&got)
			e.SetIndent("", "  ")
			if err := e.Encode(inv); err != nil {
				t.Fatal(err)
			}
			golden := "testdata/" + name + ".json"
			if os.Getenv("IRONROOT_GOLDEN") != "" {
				if err := os.WriteFile(golden, got.Bytes(), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(golden)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(decoded(t, want), decoded(t, got.Bytes())); diff != "" {
				t.Errorf("inventory differs (-want +got):\n%s", diff)
			}
		})
	}
}
