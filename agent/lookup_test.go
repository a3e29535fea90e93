package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"ironroot/agent/config"
	"ironroot/internal/test/testenv"
	"ironroot/storage/sysfs"
)

// A node that Ironic knows by the network cards found so far is not delayed by drivers that are still being loaded.
func TestLookupBeforeDrivers(t *testing.T) {
	ironic := newIronic(t)
	machine := bareMachine(t)
	addCard(t, machine, "eth0", "52:54:00:12:34:56")
	d := fakeDrivers{settled: make(chan struct{})}
	r := startAgent(t, func(o *Options) { o.Machine.Drivers, o.System = d, machine }, "--api-url="+ironic.URL)
	r.beat(ironic)
	if sent := ironic.addresses(); len(sent) != 1 {
		t.Errorf("got lookups with %q, want one", sent)
	}
}

// A node that Ironic does not know by the network cards found so far is looked up again with all of them.
func TestLookupAfterDrivers(t *testing.T) {
	ironic := newIronic(t)
	ironic.answer(http.StatusNotFound)
	machine := bareMachine(t)
	addCard(t, machine, "eth0", "52:54:00:12:34:56")
	const secondMAC = "52:54:00:12:34:99"
	settled := make(chan struct{})
	var once sync.Once
	ironic.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ironic.ServeHTTP(w, r)
		if r.URL.Path == "/v1/lookup" {
			once.Do(func() {
				addCard(t, machine, "eth1", secondMAC)
				ironic.answer(http.StatusOK)
				close(settled)
			})
		}
	})
	d := fakeDrivers{settled: settled}
	r := startAgent(t, func(o *Options) { o.Machine.Drivers, o.System = d, machine }, "--api-url="+ironic.URL)
	r.beat(ironic)
	sent := ironic.addresses()
	if len(sent) != 2 || strings.Contains(sent[0], secondMAC) || !strings.Contains(sent[1], secondMAC) {
		t.Errorf("got lookups with %q, want two, only the second with %s", sent, secondMAC)
	}
}

// A heartbeat whose token Ironic has forgotten is followed by a lookup. The agent uses the token of its response from
// then on, and keeps its old one if the response is about another node.
func TestForgottenToken(t *testing.T) {
	const second = "zX9Zr0vYc1mK4tXw8sBn2dHf6gJp3aQe5uTi7oRyVzB"
	for name, tt := range map[string]struct{ node, want string }{
		"new token":    {nodeUUID, second},
		"other's node": {"8f3b1a3e-2a4d-4f0e-9a57-2c3d1f9b7a12", testToken},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, ironic *fakeIronic, start startFunc) {
				ironic.forgot = testToken
				ironic.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					if r.URL.Path == "/v1/lookup" && r.URL.Query().Has("node_uuid") {
						_ = json.NewEncoder(w).Encode(map[string]any{
							"node":   map[string]any{"uuid": tt.node},
							"config": map[string]any{"heartbeat_timeout": 300, "agent_token": second},
						})
						return
					}
					ironic.ServeHTTP(w, r)
				})
				r := start(nil)
				if first := r.beat(ironic); first.Token != testToken {
					t.Fatalf("first heartbeat: got token %q, want that of the lookup", first.Token)
				}
				if got := r.beat(ironic).Token; got != tt.want {
					t.Errorf("second heartbeat: got token %q, want %q; log:\n%s", got, tt.want, r.console)
				}
				for _, token := range []string{testToken, second} {
					want := map[bool]int{true: http.StatusOK, false: http.StatusUnauthorized}[token == tt.want]
					if code, body := r.do("GET", "/v1/commands/?agent_token="+token, ""); code != want {
						t.Errorf("API with token %q: got %d %s, want %d", token, code, body, want)
					}
				}
				if strings.Contains(r.console.String(), second) {
					t.Error("the log shows the token")
				}
			})
		})
	}
}

// If Ironic refuses a token while a command is running, the command continues as long as a lookup fails. When Ironic
// has issued another token, the command ends and the list of commands is empty before the next heartbeat.
func TestForgottenTokenWhileBusy(t *testing.T) {
	t.Parallel() // heartbeats are seconds apart, and the wait for a disk reads a socket, so a bubble does not work
	const second = "zX9Zr0vYc1mK4tXw8sBn2dHf6gJp3aQe5uTi7oRyVzB"
	ironic := newIronic(t)
	ironic.config["heartbeat_timeout"] = 5
	// With hints, the command itself does not look the node up.
	ironic.properties = []map[string]any{{"root_device": map[string]any{"serial": "none"}}}
	var r *running
	statuses := make(chan string, 100) // of the command, at each lookup after the first one
	refusals := 0
	ironic.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if req.URL.Path != "/v1/lookup" || !req.URL.Query().Has("node_uuid") {
			ironic.ServeHTTP(w, req)
			return
		}
		statuses <- r.list()[0].Status
		if refusals++; refusals == 1 {
			http.NotFound(w, req) // as in the state "deploy failed"
			return
		}
		_ = json.NewEncoder(w).Encode(map[string]any{
			"node":   map[string]any{"uuid": nodeUUID},
			"config": map[string]any{"heartbeat_timeout": 5, "agent_token": second},
		})
	})
	r = startAgent(t, func(o *Options) { o.Destructive, o.System = true, bareMachine(t) }, "--api-url="+ironic.URL,
		"--disk_wait_attempts=1000", "--disk_wait_delay=1")
	r.beat(ironic)
	code, body := r.do("POST", "/v1/commands/?agent_token="+testToken, `{"name":"standby.prepare_image","params":`+
		`{"image_info":{"id":"i","urls":["http://192.0.2.1/i"],"checksum":"`+strings.Repeat("a", 64)+`"}}}`)
	if code != http.StatusOK || !strings.Contains(body, `"RUNNING"`) {
		t.Fatalf("got %d %s, want a running command", code, body)
	}
	ironic.forget(testToken)
	for range 2 {
		select {
		case status := <-statuses:
			if status != "RUNNING" {
				t.Errorf("at the lookup the command has status %s, want RUNNING", status)
			}
		case <-time.After(2 * time.Minute):
			t.Fatalf("no lookup after a refused heartbeat; log:\n%s", r.console)
		}
	}
	for r.beat(ironic).Token != second { // earlier heartbeats
	}
	if code, body := r.do("GET", "/v1/commands/?agent_token="+second, ""); code != http.StatusOK ||
		strings.TrimSpace(body) != `{"commands":[]}` {
		t.Errorf("commands after the heartbeat with the other token: got %d %s, want none", code, body)
	}
	if !strings.Contains(r.console.String(), "cancelling the running command") {
		t.Errorf("got no line about the cancelled command in the log:\n%s", r.console)
	}
}

// addCard adds a network card to a machine.
func addCard(t *testing.T, machine sysfs.Root, name, mac string) {
	t.Helper()
	dir := machine.Sys("class/net", name)
	err := errors.Join(os.MkdirAll(filepath.Join(dir, "device"), 0o755),
		os.WriteFile(filepath.Join(dir, "address"), []byte(mac+"\n"), 0o644))
	if err != nil {
		t.Fatal(err)
	}
}

// prepare_image looks a fast-track node up again if it had no hints, because hints can have been set since. The test's
// machine has no disk, so the error contains the hints that were used.
//
// Parity: B17
func TestDeployLooksTheNodeUpAgain(t *testing.T) {
	hints := func(serial string) map[string]any {
		return map[string]any{"root_device": map[string]any{"serial": serial}}
	}
	for _, tt := range []struct {
		name       string
		properties []map[string]any
		lookups    int
		used       string
	}{
		{"no hints at first", []map[string]any{{}, hints("late")}, 2, "late"},
		{"hints at first", []map[string]any{hints("early"), hints("late")}, 1, "early"},
	} {
		ironic := newIronic(t)
		ironic.properties = tt.properties
		r := startAgent(t, func(o *Options) { o.Destructive, o.System = true, bareMachine(t) }, "--api-url="+ironic.URL,
			"--disk_wait_attempts=0")
		r.beat(ironic)
		got := r.run("standby.prepare_image",
			`{"image_info":{"id":"i","urls":["http://192.0.2.1/i"],"checksum":"`+strings.Repeat("a", 64)+`"}}`)
		details, _ := got.Error["details"].(string)
		if got.Error["type"] != "DeviceNotFound" || !strings.Contains(details, tt.used) {
			t.Errorf("%s: got %v, want DeviceNotFound with the hint %q", tt.name, got.Error, tt.used)
		}
		ironic.mu.Lock()
		lookups := ironic.lookups
		ironic.mu.Unlock()
		if len(lookups) != tt.lookups || lookups[len(lookups)-1].Has("node_uuid") != (tt.lookups > 1) {
			t.Errorf("%s: got lookups %v, want %d, the second one by uuid", tt.name, lookups, tt.lookups)
		}
	}
}

// After 600 s of lookups the agent pauses for 30 s and starts over, forever.
//
// Parity: B3
func TestStartsOverAfterLookupTimeout(t *testing.T) {
	dead := fmt.Sprintf("http://127.0.0.1:%d", testenv.Port(t)) // refuses connections
	synctest.Test(t, func(t *testing.T) {
		options, err := config.Load(config.Sources{Args: []string{"--api-url=" + dead}})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		began := time.Now()
		var lookups []time.Duration
		err = Run(ctx, Options{
			Config: options, System: bareMachine(t), Forever: true,
			Machine: Machine{Drivers: onEnter(nil, func(phase string) {
				if phase == "lookup" {
					lookups = append(lookups, time.Since(began))
				}
				if len(lookups) == 4 {
					cancel()
				}
			})},
		})
		if err != nil {
			t.Errorf("got %v after the end of the context, want no error", err)
		}
		for i := 1; i < len(lookups); i++ {
			// A last wait of up to a minute begins before the timeout.
			if took := lookups[i] - lookups[i-1]; took < 630*time.Second || took > 690*time.Second {
				t.Errorf("lookup %d began %v after the one before, want 630 to 690 s", i+1, took)
			}
		}
	})
}

// With Forever the agent starts over after a failed lookup, including the discovery by multicast DNS, and replaces a
// server that ended with one on the same port.
//
// Parity: B16 (start-over)
func TestForeverStartsOver(t *testing.T) {
	ironic := newIronic(t)
	ironic.answer(404)
	listeners := make(chan net.Listener, 10)
	r := startAgent(t, func(o *Options) {
		o.Forever = true
		ports := o.Ports
		o.Ports = listening(func(ctx context.Context, host string, port int) (net.Listener, error) {
			l, err := ports.Listen(ctx, host, port)
			if err == nil {
				listeners <- l
			}
			return l, err
		})
	}, "--api-url="+ironic.URL, "--lookup_timeout=0")
	for range 3 {
		r.reach("discovery")
		r.reach("lookup")
	}
	ironic.answer(200)
	if b := r.beat(ironic); b.called != nil {
		t.Errorf("calling back after the agent started over: %v", b.called)
	}
	r.run("standby.get_partition_uuids", "{}")
	if err := (<-listeners).Close(); err != nil {
		t.Fatal(err)
	}
	<-listeners
	if got := r.list(); len(got) != 1 {
		t.Errorf("records after the server was replaced: got %v, want the earlier one", got)
	}
}

// Without Forever a failed lookup ends the process, so that a supervisor can start it again.
func TestEndsWithoutForever(t *testing.T) {
	ironic := newIronic(t)
	ironic.answer(404)
	r := startAgent(t, nil, "--api-url="+ironic.URL, "--lookup_timeout=0")
	err := <-r.done
	if err == nil || !strings.HasPrefix(err.Error(), "lookup: ") {
		t.Errorf("failed lookup: got %v, want the error of the lookup", err)
	}
	r.done <- nil
}

// The error of a lookup says why no inspection has enrolled the node.
//
// Parity: U3
func TestLookupExplainsInspection(t *testing.T) {
	for name, tt := range map[string]struct {
		collectors string
		inspected  int
		want       string // the end of the error
	}{
		"failed":    {"pci-devices", 400, `; the inspection failed: .*400.*`},
		"disabled":  {"", 0, `; inspection is disabled`},
		"succeeded": {"pci-devices", 0, ``},
	} {
		ironic := newIronic(t)
		ironic.answer(404)
		ironic.inspected = tt.inspected
		r := startAgent(t, func(o *Options) { o.System = bareMachine(t) }, "--api-url="+ironic.URL,
			"--lookup_timeout=0", "--inspection-collectors="+tt.collectors)
		err := <-r.done
		if pattern := `404[^;]*` + tt.want + `$`; err == nil || !regexp.MustCompile(pattern).MatchString(err.Error()) {
			t.Errorf("%s: got %v, want an error that matches %q", name, err, pattern)
		}
		r.done <- nil
	}
}

// Parity: H4
func TestLookupOfTheNodeThatTheInspectionFound(t *testing.T) {
	ironic := newIronic(t)
	r := startAgent(t, func(o *Options) { o.System = bareMachine(t) }, "--api-url="+ironic.URL,
		"--inspection-collectors=pci-devices")
	r.beat(ironic)
	ironic.mu.Lock()
	defer ironic.mu.Unlock()
	if len(ironic.lookups) != 1 || ironic.lookups[0].Get("node_uuid") != nodeUUID {
		t.Errorf("got lookups %v, want one with the node's uuid", ironic.lookups)
	}
}

// slowNetwork has an address only after a while.
type slowNetwork struct {
	fakeNetwork
	after time.Time
}

func (n *slowNetwork) WaitAddress(ctx context.Context) error {
	select {
	case <-time.After(time.Until(n.after)):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// The start waits for an address without a time limit.
func TestWaitsForAnAddress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const delay = 100*time.Hour + 10*time.Millisecond
		started := time.Now()
		a := newAgent(Options{
			Config:  &config.Config{APIURL: "http://ironic"},
			Machine: Machine{Network: &slowNetwork{after: started.Add(delay)}},
		})
		if err := a.configure(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := a.waitNetwork(t.Context()); err != nil || time.Since(started) != delay {
			t.Errorf("got %v after %v, want an address after %v", err, time.Since(started), delay)
		}
	})
}

// The agent starts over with a reloaded configuration: other URLs, a token, and parameters that its inventory reports.
// If none was loaded it keeps the current one.
//
// Parity: D1
func TestReload(t *testing.T) {
	testenv.ExpectPanics(t)
	first, second := newIronic(t), newIronic(t)
	first.answer(http.StatusNotFound)
	var calls atomic.Int32
	r := startAgent(t, func(o *Options) {
		o.Forever = true
		port := strconv.Itoa(o.Config.AdvertisePort)
		o.Machine.Media = reloadFunc(func() *config.Config {
			switch calls.Add(1) {
			case 1:
				panic("in a medium") // ends neither the agent nor the machine
			case 2:
				return nil
			}
			c, err := config.Load(config.Sources{
				Params: config.Params{"ipa-api-url": second.URL, "ipa-debug": "1", "BOOTIF": "01-52-54-00-00-00-01"},
				Args:   []string{"--advertise-host=127.0.0.1", "--advertise-port=" + port, "--insecure"},
			})
			if err != nil {
				t.Error(err)
			}
			return c
		})
	}, "--api-url="+first.URL, "--lookup-timeout=0")
	r.beat(second)
	lookups := 0
	for _, request := range first.seen() {
		if request == "GET /v1/lookup" {
			lookups++
		}
	}
	if lookups != 3 || calls.Load() != 3 {
		t.Errorf("got %d lookups and %d reloads, want three: one for the start and one for each restart",
			lookups, calls.Load())
	}
	boot, _ := r.inventory()["boot"].(map[string]any)
	if boot["pxe_interface"] != "01-52-54-00-00-00-01" {
		t.Errorf("got the inventory's boot %v, want the reloaded parameter", boot)
	}
	if got := r.journal.Level().Level(); got != slog.LevelDebug {
		t.Errorf("got log level %v, want the reloaded one", got)
	}
}

// A lookup response lacks most fields of the node. Those that a step command has set are kept, because raid_config
// determines the root disk. The test's machine has no disk, so the error names the array that is missing.
func TestRefreshKeepsOtherFields(t *testing.T) {
	ironic := newIronic(t)
	r := startAgent(t, func(o *Options) { o.Destructive, o.System = true, bareMachine(t) }, "--api-url="+ironic.URL,
		"--disk_wait_attempts=0")
	r.beat(ironic)
	r.run("deploy.get_deploy_steps", `{"ports": [], "node": {"uuid": "`+nodeUUID+`", "raid_config": `+
		`{"logical_disks": [{"controller": "software", "raid_level": "1", "size_gb": 10, "volume_name": "os", `+
		`"is_root_volume": true}]}}}`)
	got := r.run("standby.prepare_image",
		`{"image_info":{"id":"i","urls":["http://192.0.2.1/i"],"checksum":"`+strings.Repeat("a", 64)+`"}}`)
	details, _ := got.Error["details"].(string)
	if got.Error["type"] != "DeviceNotFound" || !strings.Contains(details, `root volume "os"`) {
		t.Errorf("got %v, want DeviceNotFound with the array os", got.Error)
	}
	ironic.mu.Lock()
	defer ironic.mu.Unlock()
	if len(ironic.lookups) != 2 {
		t.Errorf("got lookups %v, want two", ironic.lookups)
	}
}

// An Ironic before 29.0 reads the list of commands without the token.
func TestReadsWithoutToken(t *testing.T) {
	for version, want := range map[string]int{
		"1.82": http.StatusOK, "1.95": http.StatusOK, "1.96": http.StatusUnauthorized, "2.1": http.StatusUnauthorized,
	} {
		ironic := newIronic(t)
		ironic.version = version
		r := startAgent(t, nil, "--api-url="+ironic.URL)
		r.beat(ironic)
		if got, body := r.do(http.MethodGet, "/v1/commands/", ""); got != want {
			t.Errorf("version %s: got %d %s, want %d", version, got, body, want)
		}
	}
}

// The version of Ironic can become known after the API was opened.
func TestReadsWithoutTokenLater(t *testing.T) {
	inBubble(t, func(t *testing.T, ironic *fakeIronic, start startFunc) {
		ironic.version, ironic.hidden = "1.82", true
		r := start(func(o *Options) { o.Destructive = true })
		r.beat(ironic)
		if got, body := r.do(http.MethodGet, "/v1/commands/", ""); got != http.StatusUnauthorized {
			t.Errorf("version unknown: got %d %s, want 401", got, body)
		}
		ironic.mu.Lock()
		ironic.hidden = false
		ironic.mu.Unlock()
		r.run("clean.execute_clean_step",
			`{"step":{"step":"none","interface":"deploy"},"node":{"uuid":"`+nodeUUID+`"},"ports":[]}`)
		r.beat(ironic) // the end of the command has forced it
		if got, body := r.do(http.MethodGet, "/v1/commands/", ""); got != http.StatusOK {
			t.Errorf("version known: got %d %s, want 200", got, body)
		}
	})
}
