//go:build linux

package ironic

import (
	"cmp"
	"encoding/json"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"ironroot/agent/config"
	agent "ironroot/agent/ironic"
	"ironroot/agent/token"
	"ironroot/internal/test/testenv"
)

// start starts a real Ironic for one test.
func start(t *testing.T, o Options) *Ironic {
	t.Helper()
	testenv.Root(t)
	testenv.Programs(t, "mmdebstrap", "qemu-system-x86_64")
	testenv.Files(t, "load the module tun", "/dev/net/tun")
	o.Dir = cmp.Or(o.Dir, t.TempDir())
	o.Log = slog.New(slog.NewTextHandler(t.Output(), nil))
	o.Progress = t.Output()
	i, err := Start(testenv.Context(t, 30*time.Minute), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := i.Stop(); err != nil {
			t.Errorf("Stop: %v", err)
		}
	})
	return i
}

// The agent's client, without a ramdisk, completes two inspections with a real Ironic: one that fails with the
// agent's error message, and one that succeeds.
func TestRealIronicTalksToTheClient(t *testing.T) {
	suite := newest(t)
	i := start(t, Options{Suite: suite})
	ctx := testenv.Context(t, 20*time.Minute)
	if suite == Sid {
		checkNewest(t, ctx, i)
	}
	dummy := filepath.Join(t.TempDir(), "dummy")
	if err := os.WriteFile(dummy, []byte("no kernel"), 0o644); err != nil {
		t.Fatal(err)
	}
	n, err := i.Enroll(ctx, NodeOptions{Firmware: true, Kernel: dummy, Ramdisk: dummy, Memory: 256 << 20})
	if err != nil {
		t.Fatal(err)
	}
	if err := n.Manage(ctx); err != nil {
		t.Fatal(err)
	}
	if err := n.Ask(ctx, "inspect", nil); err != nil {
		t.Fatal(err)
	}
	if err := n.WaitState(ctx, "inspect wait"); err != nil {
		t.Fatal(err)
	}
	if !n.On() {
		t.Error("the machine is off though its inspection waits for it")
	}
	c := newClient(t, i)
	_, api, err := i.Version(ctx)
	step(t, "version", err)
	if got, want := c.APIVersion(ctx), (agent.Version{Major: 1, Minor: minor(t, api)}); got != want {
		t.Errorf("API version: got %v, want %v", got, want)
	}
	answer, err := c.Lookup(ctx, []string{n.MAC}, "", "")
	if err != nil || answer.Node.UUID() != n.UUID {
		t.Fatalf("Lookup: got %+v, %v, want node %s", answer, err, n.UUID)
	}
	broken := "The following errors were encountered:\n* no collector is called \"colour\""
	if uuid, err := c.PostInspection(ctx, inspectionData(t, n, broken)); err != nil || uuid != n.UUID {
		t.Fatalf("PostInspection with an error: got %q, %v, want %s", uuid, err, n.UUID)
	}
	if err := n.WaitState(ctx, "manageable"); err == nil ||
		!strings.Contains(err.Error(), `no collector is called "colour"`) {
		t.Fatalf("got %v, want a failed inspection with the agent's error", err)
	}
	if err := n.Ask(ctx, "inspect", nil); err != nil {
		t.Fatal(err)
	}
	if err := n.WaitState(ctx, "inspect wait"); err != nil {
		t.Fatal(err)
	}
	uuid, err := c.PostInspection(ctx, inspectionData(t, n, nil))
	if err != nil || uuid != n.UUID {
		t.Fatalf("PostInspection: got %q, %v, want %s", uuid, err, n.UUID)
	}
	if err := n.WaitState(ctx, "manageable"); err != nil {
		t.Fatal(err)
	}
	inventory, _, err := n.Inventory(ctx)
	if err != nil || inventory["hostname"] != "fake" {
		t.Errorf("Inventory: got %v, %v", inventory, err)
	}
}

// minor returns the second number of a version of Ironic's API.
func minor(t *testing.T, version string) int {
	t.Helper()
	number, err := strconv.Atoi(strings.TrimPrefix(version, "1."))
	step(t, "API version", err)
	return number
}

// newClient returns the agent's client, which connects from within the namespace.
func newClient(t *testing.T, i *Ironic) *agent.Client {
	t.Helper()
	cfg, err := config.Load(config.Sources{Args: []string{"--api-url=" + apiURL}})
	if err != nil {
		t.Fatal(err)
	}
	c, err := agent.New(agent.Options{
		Config: config.NewLive(cfg), Token: &token.Token{}, Log: i.log, Version: "1", Dialer: i.ns,
	})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// inspectionData returns the data of an inspection of a node, as JSON. problem is its error.
func inspectionData(t *testing.T, n *Node, problem any) []byte {
	t.Helper()
	body, err := json.Marshal(map[string]any{
		"inventory": map[string]any{
			"interfaces": []map[string]any{
				{"name": "eth0", "mac_address": n.MAC, "ipv4_address": "172.30.0.100", "has_carrier": true},
			},
			"cpu": map[string]any{"architecture": "x86_64", "count": 2}, "memory": map[string]any{"physical_mb": 256},
			"disks":       []map[string]any{{"name": "/dev/vda", "size": 8 << 30}},
			"bmc_address": nil, "bmc_v6address": nil, "hostname": "fake",
			"boot":          map[string]any{"current_boot_mode": "uefi", "pxe_interface": n.MAC},
			"system_vendor": map[string]any{},
		},
		"error": problem,
	})
	if err != nil {
		t.Fatal(err)
	}
	return body
}
