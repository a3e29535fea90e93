//go:build linux

package bench

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"log"
	"net/http"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"ironroot/internal/test/testenv"
	"ironroot/lab/ironic"
	"ironroot/lab/selfsigned"
)

// Heartbeats in an hour. Ironic's default of 300 s requires one after 90 to 180 s, and the default of progress_interval
// is 60 s.
const (
	requiredPerHour = 3600 / 135.0
	progressPerHour = 3600 / 60.0
)

// maxProgressCost limits the processor time per node and hour with progress, as a multiple of the time of the
// heartbeats that Ironic requires, which ironic-python-agent sends, too. The numbers of heartbeats alone make 2.25.
const maxProgressCost = 3

// BenchmarkHeartbeats measures the processor time that a real Ironic uses for heartbeats of nodes that execute a step,
// API and conductor together: those that Ironic requires, and those with progress. Both are printed per node and hour.
// Each heartbeat counts once the conductor has requested the state of the commands from the agent, which is a server of
// this process. The time that Ironic uses without heartbeats is subtracted. The benchmark fails if the ratio of both is
// more than maxProgressCost.
func BenchmarkHeartbeats(b *testing.B) {
	const nodes, rounds = 10, 20
	testenv.Root(b)
	testenv.Programs(b, "mmdebstrap")
	testenv.Files(b, "load the module tun", "/dev/net/tun")
	ctx, cancel := context.WithTimeout(b.Context(), 30*time.Minute)
	defer cancel()
	i, err := ironic.Start(ctx, ironic.Options{Dir: b.TempDir(), Progress: b.Output(), Config: `
[DEFAULT]
debug = false
enabled_hardware_types = redfish,fake-hardware
enabled_boot_interfaces = ipxe,fake
enabled_management_interfaces = redfish,fake
enabled_power_interfaces = redfish,fake
enabled_inspect_interfaces = agent,no-inspect
`})
	if err != nil {
		b.Fatal(err)
	}
	defer i.Stop() //nolint:errcheck // it has served
	var agents []*fakeAgent
	for number := range nodes {
		agents = append(agents, newFakeAgent(b, ctx, i, number))
	}
	// all sends heartbeats of all nodes in turn, so that the conductor has unlocked a node before its next one.
	all := func(rounds int, text string) {
		for round := range rounds {
			for _, a := range agents {
				if err := a.beat(ctx, text, round); err != nil {
					b.Fatal(err)
				}
			}
		}
	}
	used := func() (time.Duration, time.Time) {
		total, err := i.ProcessorTime()
		if err != nil {
			b.Fatal(err)
		}
		return total, time.Now()
	}
	all(2, "") // starts the step, and fills caches
	before, began := used()
	time.Sleep(30 * time.Second) // periodic tasks
	after, ended := used()
	idle := float64(after-before) / float64(ended.Sub(began))
	cost := func(text string) time.Duration { // of a heartbeat
		before, began := used()
		all(rounds, text)
		after, ended := used()
		return (after - before - time.Duration(idle*float64(ended.Sub(began)))) / (nodes * rounds)
	}
	required := cost("")
	progress := cost("erase_devices: %d%%, 3 of 12 disks done, 1.2 GiB/s, 2h3m left: /dev/sdd 80%%, 8 waiting")
	b.Logf("%d heartbeats of each kind; without heartbeats, Ironic uses %.1f %% of a processor", nodes*rounds, idle*100)
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(required.Seconds()*1000, "required-ms")
	b.ReportMetric(progress.Seconds()*1000, "progress-ms")
	b.ReportMetric(required.Seconds()*requiredPerHour, "required-s/node-hour")
	b.ReportMetric(progress.Seconds()*progressPerHour, "progress-s/node-hour")
	ratio := progress.Seconds() * progressPerHour / (required.Seconds() * requiredPerHour)
	b.ReportMetric(ratio, "ratio")
	if required <= 0 || ratio > maxProgressCost {
		b.Errorf("progress: got %.2f times the processor time of the required heartbeats (%v and %v for each), "+
			"want at most %d times", ratio, progress, required, maxProgressCost)
	}
}

// fakeAgent is the agent of a node without a machine. It executes a step forever.
type fakeAgent struct {
	ironic      *ironic.Ironic
	uuid, url   string
	certificate string
	token       string
	asked       chan struct{} // receives each request for the state of the commands

	mu       sync.Mutex
	commands []map[string]any
}

// newFakeAgent enrols a node, and starts to clean it.
func newFakeAgent(b *testing.B, ctx context.Context, i *ironic.Ironic, number int) *fakeAgent {
	b.Helper()
	check := func(what string, err error) {
		b.Helper()
		if err != nil {
			b.Fatalf("%s: %v", what, err)
		}
	}
	certificate, pem, err := selfsigned.Issue(ironic.Address)
	check("certificate", err)
	port := 9900 + number
	a := &fakeAgent{
		ironic: i, url: fmt.Sprintf("https://%s:%d", ironic.Address, port), certificate: string(pem),
		asked: make(chan struct{}, 100),
	}
	listener, err := i.Listen(ctx, port)
	check("listen", err)
	server := &http.Server{
		Handler: a, ReadHeaderTimeout: time.Minute, ErrorLog: log.New(os.Stderr, "", 0),
		TLSConfig: &tls.Config{Certificates: []tls.Certificate{certificate}},
	}
	go func() { _ = server.ServeTLS(listener, "", "") }() // until the end of the benchmark
	b.Cleanup(func() { _ = server.Close() })

	var node struct{ UUID string }
	check("enroll", i.Call(ctx, http.MethodPost, "/v1/nodes", map[string]any{
		"name": fmt.Sprintf("bench-%d", number), "driver": "fake-hardware", "deploy_interface": "direct",
		"boot_interface": "fake", "power_interface": "fake", "management_interface": "fake",
		"inspect_interface": "no-inspect", "network_interface": "noop", "raid_interface": "no-raid",
		"rescue_interface": "no-rescue", "driver_info": map[string]any{"has_dedicated_power_supply": true},
	}, &node))
	a.uuid = node.UUID
	check("port", i.Call(ctx, http.MethodPost, "/v1/ports", map[string]any{
		"node_uuid": a.uuid, "address": fmt.Sprintf("52:54:00:bb:00:%02x", number),
	}, nil))
	check("manage", a.provision(ctx, "manageable", map[string]any{"target": "manage"}))
	check("clean", a.provision(ctx, "clean wait", map[string]any{
		"target": "clean", "clean_steps": []map[string]any{{"interface": "deploy", "step": "erase_devices"}},
	}))
	var answer struct {
		Config struct {
			Token string `json:"agent_token"`
		}
	}
	check("lookup", i.Call(ctx, http.MethodGet, "/v1/lookup?node_uuid="+a.uuid, nil, &answer))
	a.token = answer.Config.Token
	return a
}

// provision requests a change of the provision state and waits until the node has reached a state.
func (a *fakeAgent) provision(ctx context.Context, state string, body map[string]any) error {
	if err := a.ironic.Call(ctx, http.MethodPut, "/v1/nodes/"+a.uuid+"/states/provision", body, nil); err != nil {
		return err
	}
	for {
		var node struct {
			State string `json:"provision_state"`
			Error string `json:"last_error"`
		}
		if err := a.ironic.Call(ctx, http.MethodGet, "/v1/nodes/"+a.uuid, nil, &node); err != nil {
			return err
		}
		if node.State == state {
			return nil
		}
		select {
		case <-time.After(200 * time.Millisecond): // Ironic sends no notification of changes
		case <-ctx.Done():
			return fmt.Errorf("node is %q, want %q: %s: %w", node.State, state, node.Error, ctx.Err())
		}
	}
}

// beat sends a heartbeat and waits until the conductor has handled it. Ironic ignores one while it has locked the node.
// format is the format of the progress at a percentage, "" for none.
func (a *fakeAgent) beat(ctx context.Context, format string, percent int) error {
	body := map[string]any{
		"callback_url": a.url, "agent_version": "11.0.0", "agent_token": a.token, "agent_verify_ca": a.certificate,
	}
	if format != "" {
		body["agent_status_message"] = fmt.Sprintf(format, percent)
	}
	for range 5 {
		a.forget()
		if err := a.ironic.Call(ctx, http.MethodPost, "/v1/heartbeat/"+a.uuid, body, nil); err != nil {
			return err
		}
		select {
		case <-a.asked:
			return nil
		case <-time.After(20 * time.Second):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return fmt.Errorf("node %s: the conductor ignores heartbeats", a.uuid)
}

// forget removes requests that were not waited for.
func (a *fakeAgent) forget() {
	for {
		select {
		case <-a.asked:
		default:
			return
		}
	}
}

// ServeHTTP implements the commands of the agent that Ironic sends before and during a cleaning.
func (a *fakeAgent) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	a.mu.Lock()
	defer a.mu.Unlock()
	w.Header().Set("Content-Type", "application/json")
	if r.Method == http.MethodGet {
		_ = json.NewEncoder(w).Encode(map[string]any{"commands": a.commands})
		a.asked <- struct{}{}
		return
	}
	var request struct{ Name string }
	if err := json.NewDecoder(r.Body).Decode(&request); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	_, name, _ := strings.Cut(request.Name, ".")
	record := map[string]any{
		"id": fmt.Sprint(len(a.commands)), "command_name": name, "command_params": map[string]any{},
		"command_status": "SUCCEEDED", "command_error": nil, "command_result": map[string]any{
			"clean_steps": map[string]any{"GenericHardwareManager": []map[string]any{{
				"step": "erase_devices", "priority": 10, "interface": "deploy", "reboot_requested": false,
				"abortable": true,
			}}},
			"hardware_manager_version": map[string]any{"generic_hardware_manager": "1.2"},
		},
	}
	if name == "execute_clean_step" {
		record["command_status"], record["command_result"] = "RUNNING", nil
		defer func() { a.asked <- struct{}{} }() // by the first heartbeat
	}
	a.commands = append(a.commands, record)
	_ = json.NewEncoder(w).Encode(record)
}
