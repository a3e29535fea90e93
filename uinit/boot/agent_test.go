//go:build linux

package boot_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"
	"time"

	"ironroot/initramfs"
	"ironroot/lab/qemu"
)

const (
	nodeUUID  = "9f3a4e3c-0c1f-4d59-b1c2-6d5b1a1f0a55"
	nodeToken = "pZ7-a-token-that-no-console-may-show-Qm4"
)

// ironic is as much of an Ironic as an agent needs to get to its first heartbeat, whose body it sends to the channel.
func ironic(t *testing.T) (port int, heartbeats <-chan map[string]any) {
	t.Helper()
	beats := make(chan map[string]any, 16)
	mux := http.NewServeMux()
	mux.HandleFunc("GET /v1/lookup", func(w http.ResponseWriter, _ *http.Request) {
		_, _ = fmt.Fprintf(w, `{"node":{"uuid":%q,"properties":{},"instance_info":{},"driver_internal_info":{}},`+
			`"config":{"heartbeat_timeout":300,"agent_token":%q,"agent_token_required":true}}`, nodeUUID, nodeToken)
	})
	mux.HandleFunc("POST /v1/heartbeat/"+nodeUUID, func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(io.LimitReader(r.Body, 1<<20))
		var beat map[string]any
		if err == nil {
			err = json.Unmarshal(body, &beat)
		}
		if err != nil {
			t.Error(err)
		}
		w.WriteHeader(http.StatusAccepted)
		beats <- beat
	})
	mux.HandleFunc("GET /", func(w http.ResponseWriter, _ *http.Request) {
		_, _ = fmt.Fprint(w, `{"default_version":{"id":"v1","version":"1.93","min_version":"1.1"}}`)
	})
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	return server.Listener.Addr().(*net.TCPAddr).Port, beats
}

// After a panic the real agent starts again with the same network and addresses and sends its first heartbeat. Process
// 1 keeps running.
//
// Parity: R8
func TestAgentStartsAgain(t *testing.T) {
	report := ramdisk(t, initramfs.Options{
		Package: "linux-image-cloud-amd64", ModuleGroups: []string{"virtual"}, Init: programs + "agent",
	})
	port, heartbeats := ironic(t)
	m := start(t, report, fmt.Sprintf("ipa-api-url=http://10.0.2.2:%d", port), func(c *qemu.Config) {
		c.Memory = 512 << 20
		c.NICs = []qemu.NIC{{}}
		c.Disks = []qemu.Disk{{Bus: qemu.NVMe, File: t.TempDir() + "/disk", Size: 5 << 30}}
	})
	expect(t, m, "lease obtained", "agent failed, starting over.*the agent exploded")
	select {
	case beat := <-heartbeats:
		if beat["agent_token"] != nodeToken {
			t.Errorf("heartbeat with token %v, want the one of the lookup", beat["agent_token"])
		}
	case <-time.After(machineTimeout):
		t.Fatalf("no heartbeat; the console ends with\n%s", m.Console().Tail(40))
	}
	console := m.Console().String()
	for _, want := range []string{"panic contained.*the connection exploded", "panic contained.*the agent exploded"} {
		if n := len(regexp.MustCompile(want).FindAllString(console, -1)); n != 1 {
			t.Errorf("got %d lines %q, want 1", n, want)
		}
	}
	if n := strings.Count(console, "ironroot starts"); n != 1 || !m.Running() {
		t.Errorf("got %d starts of process 1, machine running %v, want one start and a running machine", n, m.Running())
	}
}
