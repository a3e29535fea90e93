package main

import (
	"context"
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"ironroot/internal/test/testenv"
	"ironroot/lab/conductor"
)

// An ordinary process performs inspection, lookup and heartbeats with a strict conductor over TLS. It answers the
// requests for steps and logs, and refuses to restart the machine.
func TestAgentWithConductor(t *testing.T) {
	c, err := conductor.New(conductor.Options{
		TLS: true, FastTrack: true, PollInterval: 10 * time.Millisecond,
		Config: map[string]any{"tls_min_version": "1.3"},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	ca := t.TempDir() + "/ca.crt"
	if err := os.WriteFile(ca, c.CertificatePEM(), 0o600); err != nil {
		t.Fatal(err)
	}
	node := c.AddNode(conductor.NodeSpec{MACs: macs(t)})
	node.SetState(conductor.InspectWait)

	port := strconv.Itoa(testenv.Port(t))
	binary, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(binary, "agent", "--api_url", c.URL(), "--cafile="+ca, "--listen-host", "127.0.0.1",
		"--listen_port", port, "--advertise-port="+port, "--inspection_collectors", "default,logs,pci-devices",
		"--inspection_dhcp_wait_timeout=0", "--disk_wait_attempts=0")
	cmd.Env = append(os.Environ(), asProgram+"=1")
	p := start(t, cmd)
	t.Cleanup(func() {
		_ = p.end(os.Kill) // a killed process always returns an error
		if t.Failed() {
			t.Log(p.all.String())
		}
		if token := node.Token(); token == "" || strings.Contains(p.all.String(), token) {
			t.Error("no token, or the token is in the log")
		}
	})
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	if err := node.WaitInspection(ctx); err != nil {
		t.Errorf("inspection: %v", err)
	}
	if err := node.WaitAgent(ctx); err != nil {
		t.Fatalf("first heartbeat: %v", err)
	}
	for _, kind := range []string{"clean", "deploy", "service"} {
		r, err := node.Command(ctx, kind+".get_"+kind+"_steps",
			map[string]any{"node": map[string]any{"uuid": node.UUID()}, "ports": []any{}}, true)
		if err != nil || r.Status != conductor.Succeeded {
			t.Errorf("%s steps: got %+v, %v", kind, r, err)
		}
	}
	if err := node.CollectLogs(ctx); err != nil {
		t.Errorf("logs: %v", err)
	}
	if err := node.Reboot(ctx); err == nil || !strings.Contains(err.Error(), "refused: started without --destructive") {
		t.Errorf("run_image: got %v, want it refused", err)
	}
	if got := c.Violations(); len(got) != 0 {
		t.Errorf("against the protocol: %v", got)
	}
}

func macs(t *testing.T) []string {
	t.Helper()
	links, err := net.Interfaces()
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, l := range links {
		if len(l.HardwareAddr) > 0 {
			out = append(out, l.HardwareAddr.String())
		}
	}
	return out
}
