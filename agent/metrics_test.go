package agent

import (
	"net"
	"regexp"
	"testing"
	"time"
)

// Durations of API requests are sent to the statsd server of the lookup response.
//
// Parity: C7
func TestMetricsOfLookup(t *testing.T) {
	server, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	ironic := newIronic(t)
	ironic.config["metrics"] = map[string]any{
		"backend": "statsd", "prepend_host": false, "prepend_uuid": false, "prepend_host_reverse": true,
		"global_prefix": "rack1",
	}
	ironic.config["metrics_statsd"] = map[string]any{
		"statsd_host": "127.0.0.1", "statsd_port": server.LocalAddr().(*net.UDPAddr).Port,
	}
	r := startAgent(t, nil, "--api-url="+ironic.URL)
	r.beat(ironic) // calls /v1/status
	next := func(want string) {
		t.Helper()
		buffer := make([]byte, 2048)
		if err := server.SetReadDeadline(time.Now().Add(time.Minute)); err != nil {
			t.Fatal(err)
		}
		n, err := server.Read(buffer)
		if err != nil {
			t.Fatal(err)
		}
		got := string(buffer[:n])
		if !regexp.MustCompile(`^rack1\.ironic_python_agent\.api\.app\.` + want + `:\d+\.\d{3}\|ms$`).MatchString(got) {
			t.Errorf("got %q, want the time of %s", got, want)
		}
	}
	next("get_status")
	r.run("clean.get_clean_steps", `{"node":{"uuid":"`+nodeUUID+`"},"ports":[]}`)
	next("run_command")
	r.list()
	next("list_commands")
	if code, _ := r.do("GET", "/v1/commands/1?agent_token="+r.token, ""); code != 404 {
		t.Errorf("got %d, want 404", code)
	}
	next("get_command")
}
