package agent

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"ironroot/agent/rescue"
	"ironroot/agent/status"
)

// Ironic finds the node, receives a heartbeat, and calls the agent back over TLS with the token.
//
// Parity: B8
func TestConversation(t *testing.T) {
	ironic := newIronic(t)
	r := startAgent(t, nil, "--api-url="+ironic.URL)
	b := r.beat(ironic)
	if b.called != nil {
		t.Errorf("calling back from the first heartbeat: %v", b.called)
	}
	if want := "https://127.0.0.1:" + strconv.Itoa(r.port); b.CallbackURL != want || b.Token != testToken ||
		b.Version != Version {
		t.Errorf("heartbeat: got %s, version %s, right token %v; want %s, %s",
			b.CallbackURL, b.Version, b.Token == testToken, want, Version)
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

// The agent sends a heartbeat as soon as an asynchronous command ends, with its result.
//
// Parity: B7, T12 (result)
func TestCommandForcesHeartbeat(t *testing.T) {
	inBubble(t, func(t *testing.T, ironic *fakeIronic, start startFunc) {
		board := status.NewBoard("", nil)
		r := start(func(o *Options) { o.Destructive, o.Board = true, board })
		if first := r.beat(ironic); first.Progress != "waiting for the first step" {
			t.Errorf("first heartbeat: got progress %q, want that there is none", first.Progress)
		}
		if got := r.run("clean.execute_clean_step", `{"step":{"step":"none","interface":"deploy"},"node":{"uuid":"`+
			nodeUUID+`"},"ports":[]}`); got.Status != "FAILED" {
			t.Errorf("unknown step: got %s, want FAILED", got.Status)
		}
		if got := r.beat(ironic).Progress; !strings.HasPrefix(got, "none: failed: ") {
			t.Errorf("got progress %q, want the failure of the step none", got)
		}
	})
}

// Parity: B21
func TestStandalone(t *testing.T) {
	ironic := newIronic(t)
	r := startAgent(t, nil, "--standalone", "--api-url="+ironic.URL, "--agent_token="+testToken)
	r.reach("ready")
	if code, body := r.do("GET", "/v1/status", ""); code != 200 {
		t.Errorf("status: got %d %s, want 200", code, body)
	}
	if got := r.run("poll.set_node_info", `{"node_info":{"node":{"uuid":"`+nodeUUID+
		`"},"config":{"heartbeat_timeout":300}}}`); got.Status != "SUCCEEDED" {
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
	if strings.Contains(r.console.String(), "part of the agent ended") {
		t.Errorf("without Ironic, heartbeats must not end:\n%s", r.console)
	}
}

// fakePower signals that the machine would stop, and never returns.
type fakePower struct{ called chan string }

func (p fakePower) Reboot(ctx context.Context) error   { return p.stop(ctx, "reboot") }
func (p fakePower) PowerOff(ctx context.Context) error { return p.stop(ctx, "power off") }
func (p fakePower) stop(ctx context.Context, what string) error {
	p.called <- what
	<-ctx.Done()
	return ctx.Err()
}

// The response to run_image and power_off is sent before the machine stops, and the command is listed as running until
// then. LLDP agents in network cards are restored before; sync restores those whose setting is persistent. A failing
// card does not prevent either.
//
// Parity: F6
func TestStopsMachine(t *testing.T) {
	for name, want := range map[string]string{"run_image": "reboot", "power_off": "power off"} {
		ironic := newIronic(t)
		machine := fakePower{make(chan string, 1)}
		r := startAgent(t, func(o *Options) {
			o.Destructive, o.Machine.Power, o.System = true, machine, bareMachine(t)
		}, "--api-url="+ironic.URL)
		r.beat(ironic)
		if got := r.run("standby.sync", "{}"); got.Status != "SUCCEEDED" {
			t.Errorf("sync: got %+v, want success", got)
		}
		select {
		case persistent := <-r.network.restored:
			if !persistent {
				t.Error("sync: got all cards restored, want only those that keep the setting")
			}
		default:
			t.Error("sync: want cards restored before the answer")
		}
		code, body := r.do("POST", "/v1/commands/?agent_token="+r.token, `{"name":"standby.`+name+`","params":{}}`)
		if code != 200 || !strings.Contains(body, `"command_status":"RUNNING"`) {
			t.Errorf("%s: got %d %s, want 200 RUNNING", name, code, body)
		}
		if got := <-machine.called; got != want {
			t.Errorf("%s: got %s, want %s", name, got, want)
		}
		select {
		case persistent := <-r.network.restored:
			if persistent {
				t.Errorf("%s: got only some cards restored, want all", name)
			}
		default:
			t.Errorf("%s: want cards restored before the machine stops", name)
		}
		if all := r.list(); len(all) != 2 || all[1].Name != name || all[1].Status != "RUNNING" {
			t.Errorf("records before the machine stops: got %v, want %s RUNNING", all, name)
		}
	}
}

// If another agent holds the token, the API is not served.
func TestMaskedToken(t *testing.T) {
	ironic := newIronic(t)
	ironic.config["agent_token"] = "******"
	r := startAgent(t, nil, "--api-url="+ironic.URL)
	r.reach("lockdown")
	<-r.network.down
	if len(ironic.beats) != 0 || slices.Contains(ironic.seen(), "POST /v1/heartbeat/"+nodeUUID) {
		t.Errorf("requests after a masked token: got %v, want no heartbeat", ironic.seen())
	}
	if strings.Contains(r.console.String(), "API listening") {
		t.Error("the API was served")
	}
	own := newIronic(t)
	own.config["agent_token"] = "******"
	r = startAgent(t, nil, "--api-url="+own.URL, "--agent_token="+testToken)
	if b := r.beat(own); b.Token != testToken || b.called != nil {
		t.Errorf("masked answer with an own token: got the own token %v, %v; want it kept and the API served",
			b.Token == testToken, b.called)
	}
}

// A token of virtual media authorizes commands once Ironic has accepted it. A command that the conductor sends before
// it responds to the heartbeat waits until then.
func TestUnverifiedToken(t *testing.T) {
	for name, accepted := range map[string]bool{"accepted": true, "refused": false} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, ironic *fakeIronic, start startFunc) {
				ironic.config["agent_token"] = "******"
				if !accepted {
					ironic.forgot = testToken
				}
				statuses := make(chan int, 1)
				var first sync.Once
				ironic.callBack = func(b beat) error {
					first.Do(func() {
						started := make(chan struct{})
						trace := &httptrace.ClientTrace{
							WroteRequest: func(httptrace.WroteRequestInfo) { close(started) },
						}
						request, err := http.NewRequestWithContext(httptrace.WithClientTrace(t.Context(), trace),
							http.MethodGet, b.CallbackURL+"/v1/commands/?agent_token="+testToken, http.NoBody)
						if err != nil {
							t.Error(err)
							return
						}
						go func() {
							answer, err := ironic.client(b.CA).Do(request)
							if err != nil {
								t.Error(err)
								statuses <- 0
								return
							}
							_ = answer.Body.Close()
							statuses <- answer.StatusCode
						}()
						<-started
					})
					return nil
				}
				r := start(func(o *Options) { o.Config.TokenUnverified = true },
					"--agent_token="+testToken)
				want := map[bool]int{true: http.StatusOK, false: http.StatusUnauthorized}[accepted]
				r.beat(ironic)
				if got := <-statuses; got != want {
					t.Errorf("command during the heartbeat: got %d, want %d; log:\n%s", got, want, r.console)
				}
				if accepted {
					if code, body := r.do("GET", "/v1/commands/?agent_token="+testToken, ""); code != want {
						t.Errorf("command after the heartbeat: got %d %s, want %d", code, body, want)
					}
				}
			})
		})
	}
}

// Lockdown answers its request, detaches network disks, closes the port and takes the network down; the agent keeps
// running. Ironic changes the network once the port is closed, so the port is open while disks are detached.
func TestLockdown(t *testing.T) {
	ironic := newIronic(t)
	var port int
	detached := make(chan error, 1)
	r := startAgent(t, func(o *Options) {
		o.Destructive = true
		o.Machine.Disks = detachFunc(func(context.Context) {
			c, err := net.Dial("tcp", "127.0.0.1:"+strconv.Itoa(port))
			if err == nil {
				err = c.Close()
			}
			detached <- err
		})
	}, "--api-url="+ironic.URL)
	port = r.port
	r.beat(ironic)
	if got := r.run("system.lockdown", "{}"); got.Status != "SUCCEEDED" {
		t.Errorf("lockdown: got %s %v, want SUCCEEDED", got.Status, got.Error)
	}
	if err := <-detached; err != nil {
		t.Errorf("the port is closed before disks are detached: %v", err)
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

// A rescue answers its request, ends API and heartbeats, leaves the network up, and ends the agent. While the machine
// is marked, no agent that may change it serves.
//
// Parity: E10
func TestRescue(t *testing.T) {
	ironic := newIronic(t)
	machine := bareMachine(t)
	change := func(o *Options) { o.Destructive, o.Forever, o.System = true, true, machine }
	r := startAgent(t, change, "--api-url="+ironic.URL)
	r.beat(ironic)
	code, body := r.post("rescue.finalize_rescue", `{"rescue_password": "planted", "hashed": true}`)
	if code != http.StatusBadRequest || strings.Contains(body, "planted") {
		t.Errorf("no hash: got %d %s, want 400 without the password", code, body)
	}
	got := r.run("rescue.finalize_rescue", `{"rescue_password": "planted of a rescue", "hashed": false}`)
	if got.Status != "SUCCEEDED" || string(got.Result) != "null" {
		t.Errorf("got %s %s %v, want SUCCEEDED and null", got.Status, got.Result, got.Error)
	}
	if err := <-r.done; !errors.Is(err, ErrRescue) {
		t.Errorf("the agent ended with %v, want %v", err, ErrRescue)
	}
	r.done <- nil
	if c, err := net.Dial("tcp", "127.0.0.1:"+strconv.Itoa(r.port)); err == nil {
		_ = c.Close()
		t.Error("the port is still open in the rescue")
	}
	select {
	case <-r.network.down:
		t.Error("the network was taken down")
	default:
	}
	if strings.Contains(r.console.String(), "planted") {
		t.Error("the log contains the password")
	}
	again := startAgent(t, change, "--api-url="+ironic.URL)
	if err := <-again.done; !errors.Is(err, ErrRescue) {
		t.Errorf("a new agent ended with %v, want %v", err, ErrRescue)
	}
	again.done <- nil
}

// A rescue that is not possible is an error of the command: the agent keeps serving.
//
// Parity: E10
func TestRescueNotPossible(t *testing.T) {
	ironic := newIronic(t)
	machine := bareMachine(t)
	r := startAgent(t, func(o *Options) {
		o.Destructive, o.System = true, machine
		o.Machine.Logins = prepareRescueFunc(func() error { return errors.New("nobody could log in") })
	}, "--api-url="+ironic.URL)
	r.beat(ironic)
	for range 2 { // the second one is answered
		got := r.run("rescue.finalize_rescue", `{"rescue_password": "planted of a rescue", "hashed": false}`)
		if got.Status != "FAILED" || got.Error["details"] != "rescue not possible: nobody could log in" {
			t.Errorf("got %s %v, want FAILED and the reason", got.Status, got.Error)
		}
	}
	if rescue.IsMarked(machine.Path) {
		t.Error("the machine is marked")
	}
}

// While the machine is being locked down, the API answers and refuses all other commands, also a rescue. A repeated
// lockdown gets the record of the first.
//
// Parity: E12 (later commands)
func TestNothingAfterLockdown(t *testing.T) {
	ironic := newIronic(t)
	machine := bareMachine(t)
	proceed := make(chan struct{})
	r := startAgent(t, func(o *Options) {
		o.Destructive, o.System = true, machine
		o.Machine.Logins = endLoginsFunc(func() { <-proceed })
	}, "--api-url="+ironic.URL)
	r.beat(ironic)
	if got := r.run("system.lockdown", "{}"); got.Status != "SUCCEEDED" {
		t.Errorf("got %s %v, want SUCCEEDED", got.Status, got.Error)
	}
	r.reach("lockdown")
	for _, command := range [][2]string{
		{"rescue.finalize_rescue", `{"rescue_password": "planted of a rescue", "hashed": false}`},
		{"standby.sync", "{}"},
		{"standby.run_image", "{}"},
	} {
		code, body := r.post(command[0], command[1])
		if want := "Invalid command: " + command[0] + " refused after lockdown"; code != http.StatusBadRequest ||
			!strings.Contains(body, want) {
			t.Errorf("%s: got %d %s, want 400 %s", command[0], code, body, want)
		}
	}
	if rescue.IsMarked(machine.Path) {
		t.Error("the machine is marked for a rescue")
	}
	if got := r.run("system.lockdown", "{}"); got.Status != "SUCCEEDED" {
		t.Errorf("repeated: got %s %v, want SUCCEEDED", got.Status, got.Error)
	}
	if all := r.list(); len(all) != 1 || all[0].Name != "lockdown" {
		t.Errorf("records: got %v, want only lockdown", all)
	}
	close(proceed)
	<-r.network.down
}

// A lockdown that is requested while a confirmed rescue waits for this request is refused, and the rescue begins.
//
// Parity: E10 (a later lockdown)
func TestNoLockdownInRescue(t *testing.T) {
	ironic := newIronic(t)
	r := startAgent(t, func(o *Options) { o.Destructive, o.System = true, bareMachine(t) }, "--api-url="+ironic.URL)
	r.beat(ironic)
	body, sender := io.Pipe()
	reading := make(chan struct{})
	request, err := http.NewRequest(http.MethodPost, r.base+"/v1/commands/?agent_token="+r.token, io.MultiReader(
		strings.NewReader(`{"name":"system.lockdown",`), &signalReader{body, reading}))
	if err != nil {
		t.Fatal(err)
	}
	refused := make(chan error, 1)
	go func() {
		answer, err := r.client.Do(request)
		if err != nil {
			refused <- nil // on a slow machine the agent no longer waits for the request
			return
		}
		if answer.StatusCode != http.StatusBadRequest {
			err = fmt.Errorf("got status %d, want 400", answer.StatusCode)
		}
		refused <- errors.Join(err, answer.Body.Close())
	}()
	<-reading
	got := r.run("rescue.finalize_rescue", `{"rescue_password": "planted of a rescue", "hashed": false}`)
	if got.Status != "SUCCEEDED" {
		t.Errorf("got %s %v, want SUCCEEDED", got.Status, got.Error)
	}
	go func() {
		_, _ = io.WriteString(sender, `"params":{}}`) // fails only if the agent no longer waits for the request
		_ = sender.Close()
	}()
	if err := <-refused; err != nil {
		t.Errorf("lockdown: %v", err)
	}
	if err := <-r.done; !errors.Is(err, ErrRescue) {
		t.Errorf("the agent ended with %v, want %v", err, ErrRescue)
	}
	r.done <- nil
	select {
	case <-r.network.down:
		t.Error("the network was taken down")
	default:
	}
}

// signalReader closes started when its first Read begins.
type signalReader struct {
	io.Reader
	started chan struct{}
}

func (s *signalReader) Read(p []byte) (int, error) {
	if s.started != nil {
		close(s.started)
		s.started = nil
	}
	return s.Reader.Read(p)
}

// The callback URL contains the advertise_* options, with IPv6 addresses in brackets.
//
// Parity: B12 (options)
func TestAdvertiseOptions(t *testing.T) {
	for _, tt := range []struct {
		want string
		args []string
	}{
		// A generated certificate makes it https.
		{"https://[::1]:1", []string{"--advertise-host=::1", "--advertise-port=1"}},
		{"https://localhost:1", []string{
			"--advertise-host=localhost", "--advertise-port=1", "--enable-auto-tls=false",
			"--advertise-protocol=https",
		}},
		{"http://[::1]:2", []string{
			"--advertise-host=::1", "--advertise-port=2", "--enable-auto-tls=false", "--advertise-protocol=http",
		}},
		{"http://[::1]:3", []string{"--advertise-host=[::1]", "--advertise-port=3", "--enable-auto-tls=false"}},
	} {
		ironic := newIronic(t)
		r := startAgent(t, nil, append(tt.args, "--api-url="+ironic.URL)...)
		if b := r.beat(ironic); b.CallbackURL != tt.want {
			t.Errorf("%q: got callback URL %s, want %s", tt.args, b.CallbackURL, tt.want)
		}
	}
}
