//go:build linux

package boot

import (
	"bytes"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"ironroot/agent/config"
	"ironroot/agent/status"
)

// Network data of an appended archive is found at both of its paths. Invalid data is logged and ignored.
func TestArchivedData(t *testing.T) {
	const good = `{"links": [{"id": "a", "type": "phy", "ethernet_mac_address": "52:54:00:00:00:01"}, {"id": "b", ` +
		`"type": "phy"}]}`
	for name, c := range map[string]struct {
		file, content string
		links         int // -1 = no data
		says          string
	}{
		"mounted":   {"mnt/config/openstack/latest/network_data.json", good, 1, `link \"b\"`},
		"drive":     {"openstack/latest/network_data.json", good, 1, "openstack/latest"},
		"elsewhere": {"network_data.json", good, -1, ""},
		"no JSON":   {"openstack/latest/network_data.json", "links: []", -1, "not usable"},
		"nothing":   {"openstack/latest/network_data.json", `{"links": [], "networks": [], "services": []}`, -1, ""},
		"too large": {"openstack/latest/network_data.json", strings.Repeat(" ", maxNetworkData+1), -1, "more than"},
	} {
		t.Run(name, func(t *testing.T) {
			root := t.TempDir()
			path := filepath.Join(root, c.file)
			if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(path, []byte(c.content), 0o600); err != nil {
				t.Fatal(err)
			}
			var said bytes.Buffer
			got := -1
			board := status.NewBoard("1", trimming{})
			if data := archivedData(root, slog.New(slog.NewTextHandler(&said, nil)), board); data != nil {
				got = len(data.Links)
			}
			if got != c.links || !strings.Contains(said.String(), c.says) {
				t.Errorf("got %d links, want %d; log %q, want %q in it", got, c.links, said.String(), c.says)
			}
			problems := board.State().Problems
			if isIgnored := strings.Contains(said.String(), "level=WARN"); isIgnored != (len(problems) > 0) {
				t.Errorf("got problems %v, want some: %t", problems, isIgnored)
			}
		})
	}
}

// LLDP agents in network cards are switched off for collect_lldp and for the collector lldp, and for nothing else.
//
// Parity: F6
func TestNetworkConfigStopsFirmwareLLDP(t *testing.T) {
	for name, tt := range map[string]struct {
		settings config.Config
		want     bool
	}{
		"default":                      {config.Config{}, false},
		"other collectors":             {config.Config{InspectionCollectors: "default,logs"}, false},
		"VLANs that switches announce": {config.Config{EnableVLANInterfaces: "all"}, false},
		"LLDP in the inventory":        {config.Config{CollectLLDP: true}, true},
		"the collector":                {config.Config{InspectionCollectors: "default,lldp"}, true},
	} {
		if got := networkConfig(&tt.settings, slog.New(slog.DiscardHandler)).StopFirmwareLLDP; got != tt.want {
			t.Errorf("%s: got %v, want %v", name, got, tt.want)
		}
	}
}

// trimming implements [status.Redactor].
type trimming struct{}

func (trimming) Clean(text string) string { return strings.TrimSpace(text) }
