package agent

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"ironroot/agent/config"
	"ironroot/internal/testenv"
)

// TestConversation is an Ironic that finds the node, is called, and calls back over TLS with the token.
//
// Parity: B8
func TestConversation(t *testing.T) {
	ironic := newIronic(t)
	r := startAgent(t, nil, "--api-url="+ironic.URL)
	b := r.beat(ironic)
	if b.called != nil {
		t.Errorf("calling back from the first heartbeat: %v", b.called)
	}
	if want := "https://127.0.0.1:" + strconv.Itoa(r.port); b.CallbackURL != want || b.Token != given || b.Version != Version {
		t.Errorf("heartbeat: got %s, version %s, right token %v; want %s, %s", b.CallbackURL, b.Version, b.Token == given, want, Version)
	}
	want := []string{"GET /v1/lookup", "POST /v1/heartbeat/" + nodeUUID}
	got := slices.DeleteFunc(ironic.seen(), func(s string) bool { return s == "GET /" })
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("Ironic's view (-want +got):\n%s", diff)
	}
	if code, _ := r.do("GET", "/v1/commands/", ""); code != 401 {
		t.Errorf("commands without token: got %d, want 401", code)
	}
	steps := r.run("clean.get_clean_steps", `{"node":{"uuid":"`+nodeUUID+`"},"ports":[]}`)
	if steps.Status != "SUCCEEDED" || !bytes.Contains(steps.Result, []byte("erase_devices_metadata")) {
		t.Errorf("clean steps: got %s %s", steps.Status, steps.Result)
	}
}

// Parity: A12
func TestVersionMismatch(t *testing.T) {
	ironic := newIronic(t)
	r := startAgent(t, func(o *Options) { o.Destructive = true }, "--api-url="+ironic.URL)
	r.beat(ironic)
	got := r.run("clean.execute_clean_step", `{"step":{"step":"no_such_step","interface":"deploy"},"node":{"uuid":"`+nodeUUID+`"},`+
		`"ports":[],"clean_version":{"generic_hardware_manager":"0.1"}}`)
	if got.Status != "CLEAN_VERSION_MISMATCH" || got.Error["type"] != "VersionMismatch" || got.Error["code"] != 409.0 {
		t.Errorf("clean step of another version: got %s %v, want CLEAN_VERSION_MISMATCH", got.Status, got.Error)
	}
}

// unpack gives the members of the archive that log.collect_system_logs returned.
func unpack(t *testing.T, r record) map[string]string {
	t.Helper()
	var result struct {
		Logs string `json:"system_logs"`
	}
	if err := json.Unmarshal(r.Result, &result); err != nil || r.Status != "SUCCEEDED" {
		t.Fatalf("system logs: got %s %v %v", r.Status, r.Error, err)
	}
	data, err := base64.StdEncoding.DecodeString(result.Logs)
	if err != nil {
		t.Fatal(err)
	}
	unzipped, err := gzip.NewReader(bytes.NewReader(data))
	if err != nil {
		t.Fatal(err)
	}
	members := map[string]string{}
	for packed := tar.NewReader(unzipped); ; {
		header, err := packed.Next()
		if errors.Is(err, io.EOF) {
			return members
		}
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(packed)
		if err != nil {
			t.Fatal(err)
		}
		members[header.Name] = string(text)
	}
}

// Parity: E11
func TestCollectSystemLogs(t *testing.T) {
	ironic := newIronic(t)
	extra := filepath.Join(t.TempDir(), "agent.log")
	if err := os.WriteFile(extra, []byte("from the configured file\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	r := startAgent(t, nil, "--api-url="+ironic.URL, "--log_file="+extra)
	r.beat(ironic)
	members := unpack(t, r.run("log.collect_system_logs", "{}"))
	for name, want := range map[string]string{
		"journal": "node found", "df": "Filesystem", "ip_addr": "inet 127.0.0.1/8", "lsblk": "KNAME", "lsblk-full": "",
		"mount": " on /proc type proc ", "ps": "PPID", "lshw": `"interfaces"`, "parted": "", "files" + extra: "from the configured file",
	} {
		if text, ok := members[name]; !ok || !strings.Contains(text, want) {
			t.Errorf("member %s: got %v %q, want %q in it", name, ok, text, want)
		}
	}
	// What this machine does not have is named, not made up.
	for _, name := range []string{"dmesg", "mdstat", "efibootmgr"} {
		if _, ok := members[name]; !ok && !strings.Contains(members["errors"], name+": ") {
			t.Errorf("member %s is neither there nor in the errors:\n%s", name, members["errors"])
		}
	}
}

// Parity: E9
func TestPoll(t *testing.T) {
	ironic := newIronic(t)
	r := startAgent(t, nil, "--api-url="+ironic.URL)
	r.beat(ironic)
	got := r.run("poll.get_hardware_info", "{}")
	var inventory struct {
		Interfaces []struct {
			Name string
			MAC  string `json:"mac_address"`
		}
		Memory struct{ Total int64 }
		CPU    struct{ Count int }
	}
	if err := json.Unmarshal(got.Result, &inventory); err != nil {
		t.Fatal(err)
	}
	links, err := net.Interfaces()
	if err != nil {
		t.Fatal(err)
	}
	for _, i := range inventory.Interfaces {
		if !slices.ContainsFunc(links, func(l net.Interface) bool { return l.Name == i.Name && l.HardwareAddr.String() == i.MAC }) {
			t.Errorf("interface %s %s: not one of this machine's %v", i.Name, i.MAC, links)
		}
	}
	if inventory.Memory.Total <= 0 || inventory.CPU.Count <= 0 {
		t.Errorf("inventory: got %s, want memory and processors", got.Result)
	}
	code, body := r.post("poll.set_node_info", `{"node_info":{"node":{"uuid":"x"}}}`)
	if code != 400 || !strings.Contains(body, "Invalid command: Node lookup data can only be set when") {
		t.Errorf("set_node_info with an Ironic: got %d %s, want 400", code, body)
	}
}

// Parity: E13
func TestFlow(t *testing.T) {
	ironic := newIronic(t)
	r := startAgent(t, nil, "--api-url="+ironic.URL)
	r.beat(ironic)
	got := r.run("flow.start_flow", `{"flow":[{"standby.get_partition_uuids":{},"poll.get_hardware_info":{}},{"log.collect_system_logs":{}}]}`)
	if got.Status != "SUCCEEDED" || string(got.Result) != "null" {
		t.Errorf("flow: got %s %v %s, want SUCCEEDED null", got.Status, got.Error, got.Result)
	}
	log := r.console.String()
	at := -1
	for _, name := range []string{"standby.get_partition_uuids", "poll.get_hardware_info", "log.collect_system_logs"} {
		next := strings.Index(log, "flow: command starts command="+name)
		if next <= at {
			t.Errorf("%s did not run in its turn:\n%s", name, log)
		}
		at = next
	}
	if all := r.list(); len(all) != 1 || all[0].Name != "start_flow" {
		t.Errorf("records: got %v, want start_flow alone: what a flow ran is private", all)
	}
	if code, body := r.post("flow.start_flow", `{"flow":[{"poll.no_such":{}}]}`); code != 400 || !strings.Contains(body, "Unknown command: no_such") {
		t.Errorf("unknown method: got %d %s, want 400", code, body)
	}
	got = r.run("flow.start_flow", `{"flow":[{"nowhere.x":{}}]}`)
	if got.Status != "FAILED" || got.Error["type"] != "RequestedObjectNotFoundError" || got.Error["code"] != 404.0 {
		t.Errorf("unknown extension: got %s %v, want FAILED RequestedObjectNotFoundError 404", got.Status, got.Error)
	}
	got = r.run("flow.start_flow", `{"flow":[{"poll.get_hardware_info":{"bad":1}},{"log.collect_system_logs":{}}]}`)
	if got.Status != "FAILED" || !strings.HasPrefix(got.Error["details"].(string), "poll.get_hardware_info was failed") {
		t.Errorf("failing inner command: got %s %v, want FAILED", got.Status, got.Error)
	}
	if n := strings.Count(r.console.String(), "flow: command starts command=log.collect"); n != 1 {
		t.Errorf("log.collect_system_logs ran %d times, want 1: a flow ends at the first failure", n)
	}
}

// The conductor's answer decides what the listener speaks; a static certificate replaces the generated one.
//
// Parity: A15
func TestTLSAfterLookup(t *testing.T) {
	testenv.Programs(t, "openssl")
	speaks := func(r *running, version string, args ...string) bool {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		args = append([]string{"s_client", "-connect", "127.0.0.1:" + strconv.Itoa(r.port), version}, args...)
		return exec.CommandContext(ctx, "openssl", args...).Run() == nil
	}
	check := func(name string, r *running, v12 bool) {
		t.Helper()
		if speaks(r, "-tls1_1", "-cipher", "ALL:@SECLEVEL=0") || speaks(r, "-tls1_2") != v12 || !speaks(r, "-tls1_3") {
			t.Errorf("%s: want TLS 1.3, 1.2: %v, and never 1.1", name, v12)
		}
	}
	plain := newIronic(t)
	r := startAgent(t, nil, "--api-url="+plain.URL)
	r.beat(plain)
	check("lookup without a version", r, true)

	strict := newIronic(t)
	strict.config["tls_min_version"] = "1.3"
	r = startAgent(t, nil, "--api-url="+strict.URL)
	r.beat(strict)
	check("lookup with 1.3", r, false)

	suite := newIronic(t)
	suite.config["tls_cipher_suites"] = "ECDHE-ECDSA-AES128-GCM-SHA256"
	r = startAgent(t, nil, "--api-url="+suite.URL)
	r.beat(suite)
	if speaks(r, "-tls1_2", "-cipher", "ECDHE-ECDSA-AES256-GCM-SHA384") || !speaks(r, "-tls1_2", "-cipher", "ECDHE-ECDSA-AES128-GCM-SHA256") {
		t.Error("lookup with one suite: want this one and no other")
	}

	crt, key := filepath.Join(t.TempDir(), "crt"), filepath.Join(t.TempDir(), "key")
	testenv.Run(t, "openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=static", "-addext", "subjectAltName=IP:127.0.0.1",
		"-keyout", key, "-out", crt)
	static := newIronic(t)
	r = startAgent(t, nil, "--api-url="+static.URL, "--listen_tls", "--tls_cert_file="+crt, "--tls_key_file="+key, "--advertise_protocol=https")
	if b := r.beat(static); b.CA != "" || !strings.HasPrefix(b.CallbackURL, "https://") {
		t.Errorf("static certificate: got %s and certificate %q in the heartbeat, want https and none", b.CallbackURL, b.CA)
	}
	check("static certificate", r, true)
	testenv.Run(t, "sh", "-c", "openssl s_client -connect 127.0.0.1:"+strconv.Itoa(r.port)+" -CAfile "+crt+" -verify_return_error </dev/null")
}

// Parity: B21
func TestStandalone(t *testing.T) {
	ironic := newIronic(t)
	r := startAgent(t, nil, "--standalone", "--api-url="+ironic.URL, "--agent_token="+given)
	r.reach("ready")
	if code, body := r.do("GET", "/v1/status", ""); code != 200 {
		t.Errorf("status: got %d %s, want 200", code, body)
	}
	if got := r.run("poll.set_node_info", `{"node_info":{"node":{"uuid":"`+nodeUUID+`"},"config":{"heartbeat_timeout":300}}}`); got.Status != "SUCCEEDED" {
		t.Errorf("set_node_info: got %s %v, want SUCCEEDED", got.Status, got.Error)
	}
	if code, body := r.post("poll.set_node_info", `{"node_info":{}}`); code != 400 {
		t.Errorf("set_node_info without a node: got %d %s, want 400", code, body)
	}
	if code, _ := r.do("GET", "/v1/commands/", ""); code != 401 {
		t.Errorf("commands without token: got %d, want 401", code)
	}
	if got := ironic.seen(); len(got) != 0 {
		t.Errorf("requests to Ironic: got %v, want none", got)
	}
}

// The lookup names every network card, so it comes after their drivers.
func TestLookupAfterDrivers(t *testing.T) {
	ironic := newIronic(t)
	settled := make(chan struct{})
	r := startAgent(t, func(o *Options) { o.Settled = settled }, "--api-url="+ironic.URL)
	r.reach("lookup")
	if slices.Contains(ironic.seen(), "GET /v1/lookup") {
		t.Error("the lookup came before the drivers")
	}
	close(settled)
	r.beat(ironic)
}

// A fast-track node was looked up long before its deployment; hints may have been set since. The machine of the test
// has no disk, so the error names the hints that were used.
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
		r := startAgent(t, func(o *Options) { o.Destructive, o.System = true, bareMachine(t) }, "--api-url="+ironic.URL, "--disk_wait_attempts=0")
		r.beat(ironic)
		got := r.run("standby.prepare_image", `{"image_info":{"id":"i","urls":["http://192.0.2.1/i"],"checksum":"`+strings.Repeat("a", 64)+`"}}`)
		if details, _ := got.Error["details"].(string); got.Error["type"] != "DeviceNotFound" || !strings.Contains(details, tt.used) {
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

// With its own clock: after 600 s of lookups the agent pauses for 30 s and starts over, for ever.
//
// Parity: B3
func TestStartsOverAfterLookupTimeout(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	dead := "http://" + l.Addr().String()
	if err := l.Close(); err != nil { // connections are refused from now on
		t.Fatal(err)
	}
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
			Status: func(phase string) {
				if phase == "lookup" {
					lookups = append(lookups, time.Since(began))
				}
				if len(lookups) == 4 {
					cancel()
				}
			},
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

// fakePower tells when the machine would stop, and never comes back.
type fakePower struct{ called chan string }

func (p fakePower) Reboot(ctx context.Context) error   { return p.stop(ctx, "reboot") }
func (p fakePower) PowerOff(ctx context.Context) error { return p.stop(ctx, "power off") }
func (p fakePower) stop(ctx context.Context, what string) error {
	p.called <- what
	<-ctx.Done()
	return ctx.Err()
}

// The answer to run_image and power_off leaves before the machine stops, and the command is seen running until then.
func TestStopsMachine(t *testing.T) {
	for name, want := range map[string]string{"run_image": "reboot", "power_off": "power off"} {
		ironic := newIronic(t)
		machine := fakePower{make(chan string, 1)}
		r := startAgent(t, func(o *Options) { o.Destructive, o.Power = true, machine }, "--api-url="+ironic.URL)
		r.beat(ironic)
		code, body := r.do("POST", "/v1/commands/?agent_token="+r.token, `{"name":"standby.`+name+`","params":{}}`)
		if code != 200 || !strings.Contains(body, `"command_status":"RUNNING"`) {
			t.Errorf("%s: got %d %s, want 200 RUNNING", name, code, body)
		}
		if got := <-machine.called; got != want {
			t.Errorf("%s: got %s, want %s", name, got, want)
		}
		if all := r.list(); len(all) != 1 || all[0].Name != name || all[0].Status != "RUNNING" {
			t.Errorf("records before the machine stops: got %v, want %s RUNNING", all, name)
		}
	}
}

// Somebody else holds the token: nothing may be served.
func TestMaskedToken(t *testing.T) {
	ironic := newIronic(t)
	ironic.config["agent_token"] = "******"
	r := startAgent(t, nil, "--api-url="+ironic.URL)
	r.reach("lockdown")
	<-r.network.down
	if len(ironic.beats) != 0 || slices.Contains(ironic.seen(), "POST /v1/heartbeat/"+nodeUUID) {
		t.Errorf("requests after a masked token: got %v, want no heartbeat", ironic.seen())
	}
	if strings.Contains(r.console.String(), "API is served") {
		t.Error("the API was served")
	}
	own := newIronic(t)
	own.config["agent_token"] = "******"
	r = startAgent(t, nil, "--api-url="+own.URL, "--agent_token="+given)
	if b := r.beat(own); b.Token != given || b.called != nil {
		t.Errorf("masked answer with an own token: got the own token %v, %v; want it kept and the API served", b.Token == given, b.called)
	}
}

// Lockdown answers its request, then closes the port and takes the network down; the agent stays.
func TestLockdown(t *testing.T) {
	ironic := newIronic(t)
	r := startAgent(t, func(o *Options) { o.Destructive = true }, "--api-url="+ironic.URL)
	r.beat(ironic)
	if got := r.run("system.lockdown", "{}"); got.Status != "SUCCEEDED" {
		t.Errorf("lockdown: got %s %v, want SUCCEEDED", got.Status, got.Error)
	}
	<-r.network.down
	if c, err := net.Dial("tcp", "127.0.0.1:"+strconv.Itoa(r.port)); err == nil {
		_ = c.Close()
		t.Error("the port is still open after lockdown")
	}
	select {
	case err := <-r.done:
		t.Errorf("the agent ended after lockdown: %v", err)
		r.done <- err
	default:
	}
}

// The agent of PID 1 starts over after a failed lookup, and a server that dies is replaced on the same port.
//
// Parity: R8
func TestNeverEnds(t *testing.T) {
	ironic := newIronic(t)
	ironic.answer(404)
	listeners := make(chan net.Listener, 10)
	r := startAgent(t, func(o *Options) {
		o.Forever = true
		listen := o.Listen
		o.Listen = func(ctx context.Context, host string, port int) (net.Listener, error) {
			l, err := listen(ctx, host, port)
			if err == nil {
				listeners <- l
			}
			return l, err
		}
	}, "--api-url="+ironic.URL, "--lookup_timeout=0")
	for range 3 {
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
		t.Errorf("records after the server was replaced: got %v, want the one from before", got)
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
