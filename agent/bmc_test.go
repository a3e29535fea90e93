package agent

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"io"
	"os"
	"testing"

	"github.com/google/go-cmp/cmp"

	"ironroot/agent/inventory"
)

// managed is a BMC whose first channel has an address.
type managed struct{}

func (managed) LAN(channel, parameter, _ byte) ([]byte, error) {
	switch {
	case channel == 1 && parameter == 3:
		return []byte{192, 0, 2, 9}, nil
	case channel == 1 && parameter == 5:
		return []byte{0x3c, 0xec, 0xef, 0, 0, 1}, nil
	}
	return nil, errors.New("completion code 0xcc")
}

// OpenBMC implements [inventory.BMCOpener].
func (managed) OpenBMC(string) (inventory.BMC, error) { return managed{}, nil }

func (managed) Close() error { return nil }

// If the lookup response contains agent_skip_bmc_detect, the inventory has null for the BMC's addresses and no key for
// its MAC address, although there is a BMC.
//
// Parity: G10
func TestSkipBMCDetect(t *testing.T) {
	for skip, want := range map[bool]map[string]any{
		false: {"bmc_address": "192.0.2.9", "bmc_v6address": "::/0", "bmc_mac": "3c:ec:ef:00:00:01"},
		true:  {"bmc_address": nil, "bmc_v6address": nil},
	} {
		ironic := newIronic(t)
		ironic.config["agent_skip_bmc_detect"] = skip
		r := startAgent(t, func(o *Options) {
			o.System = bareMachine(t)
			// any character device makes the BMC's device present
			if err := os.Symlink("/dev/null", o.System.Dev("ipmi0")); err != nil {
				t.Fatal(err)
			}
			o.BMC = managed{}
		}, "--api-url="+ironic.URL)
		r.beat(ironic)
		got := map[string]any{}
		for key, value := range r.inventory() {
			if _, wanted := want[key]; wanted || key == "bmc_mac" {
				got[key] = value
			}
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("agent_skip_bmc_detect %v: inventory differs (-want +got):\n%s", skip, diff)
		}
	}
}

// inventory returns the inventory in the agent's log archive.
func (r *running) inventory() map[string]any {
	r.t.Helper()
	var logs struct {
		Archive []byte `json:"system_logs"`
	}
	got := r.run("log.collect_system_logs", "{}")
	if err := json.Unmarshal(got.Result, &logs); err != nil {
		r.t.Fatalf("%s: %v", got.Result, err)
	}
	zipped, err := gzip.NewReader(bytes.NewReader(logs.Archive))
	if err != nil {
		r.t.Fatal(err)
	}
	archive := tar.NewReader(zipped)
	for {
		header, err := archive.Next()
		if err != nil {
			r.t.Fatalf("log archive without inventory: %v", err)
		}
		if header.Name != "lshw" {
			continue
		}
		data, err := io.ReadAll(archive)
		inventory := map[string]any{}
		if err := errors.Join(err, json.Unmarshal(data, &inventory)); err != nil {
			r.t.Fatal(err)
		}
		return inventory
	}
}
