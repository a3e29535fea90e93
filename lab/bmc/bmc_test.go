package bmc

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"runtime"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// fakeMachine is a Machine that records its starts.
type fakeMachine struct {
	mu     sync.Mutex
	boots  []Boot
	last   *fakeSession
	starts chan *fakeSession
}

func (m *fakeMachine) Start(_ context.Context, boot Boot) (Session, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.boots = append(m.boots, boot)
	m.last = &fakeSession{end: make(chan bool, 1)}
	m.starts <- m.last
	return m.last, nil
}

type fakeSession struct {
	end  chan bool // receives whether the guest requests a restart
	once sync.Once
}

func (s *fakeSession) finish(restart bool)            { s.once.Do(func() { s.end <- restart }) }
func (s *fakeSession) Wait() bool                     { return <-s.end }
func (s *fakeSession) Shutdown(context.Context) error { s.finish(false); return nil }
func (s *fakeSession) Stop() error                    { s.finish(false); return nil }

const id = "0b5a1f0e-5a0b-4a4c-8a0f-1f5b6e7c8d9e"

// lab is a BMC with one machine.
type lab struct {
	t       *testing.T
	server  *httptest.Server
	machine *fakeMachine
	system  *System
}

func newLab(t *testing.T) *lab {
	m := &fakeMachine{starts: make(chan *fakeSession, 10)}
	s := NewSystem(Options{
		UUID: id, Name: "node0", MACs: []string{"52:54:00:00:00:01"}, Memory: 1 << 30, CPUs: 2, UEFI: true,
		Dir: t.TempDir(), Machine: m,
	})
	service := NewServer(nil)
	service.Add(s)
	l := &lab{t: t, server: httptest.NewServer(service), machine: m, system: s}
	t.Cleanup(l.server.Close)
	return l
}

func (l *lab) do(method, path string, body any, want int) map[string]any {
	l.t.Helper()
	var data []byte
	if body != nil {
		data, _ = json.Marshal(body)
	}
	req, err := http.NewRequest(method, l.server.URL+path, bytes.NewReader(data))
	if err != nil {
		l.t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		l.t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	text, _ := io.ReadAll(resp.Body)
	if resp.StatusCode != want {
		l.t.Fatalf("%s %s: got %d %s, want %d", method, path, resp.StatusCode, text, want)
	}
	var result map[string]any
	_ = json.Unmarshal(text, &result)
	return result
}

func (l *lab) reset(kind string) {
	l.t.Helper()
	l.do("POST", "/redfish/v1/Systems/"+id+"/Actions/ComputerSystem.Reset", object{"ResetType": kind}, 204)
}

func (l *lab) power() string {
	l.t.Helper()
	return l.do("GET", "/redfish/v1/Systems/"+id, nil, 200)["PowerState"].(string)
}

// Every link of the service leads to a resource: the test follows them all from the service root.
func TestEveryLinkLeadsSomewhere(t *testing.T) {
	l := newLab(t)
	seen := map[string]bool{}
	var walk func(path string)
	var follow func(value any)
	follow = func(value any) {
		switch v := value.(type) {
		case map[string]any:
			for key, inner := range v {
				if text, ok := inner.(string); ok && key == "@odata.id" {
					walk(text)
				}
				follow(inner)
			}
		case []any:
			for _, inner := range v {
				follow(inner)
			}
		}
	}
	walk = func(path string) {
		if !seen[path] {
			seen[path] = true
			follow(l.do("GET", path, nil, 200))
		}
	}
	walk("/redfish/v1/")
	for _, want := range []string{
		"/Systems/" + id, "/Managers/" + id, "/Chassis/" + id, "/Managers/" + id + "/VirtualMedia/Cd",
		"/Systems/" + id + "/EthernetInterfaces/nic0",
	} {
		if !seen["/redfish/v1"+want] {
			t.Errorf("no link leads to %s", want)
		}
	}
	for _, path := range []string{
		"/redfish/v1/Systems/other", "/redfish/v1/Systems/" + id + "/VirtualMedia/Floppy", "/redfish/v1/Nothing",
	} {
		l.do("GET", path, nil, 404)
	}
}

func TestPower(t *testing.T) {
	l := newLab(t)
	if got := l.power(); got != "Off" {
		t.Errorf("at first: got %s, want Off", got)
	}
	l.reset("On")
	l.reset("On")
	if got := l.power(); got != "On" || len(l.machine.boots) != 1 {
		t.Errorf("after On twice: got %s and %d starts, want On and one", got, len(l.machine.boots))
	}
	l.reset("ForceRestart")
	if len(l.machine.boots) != 2 {
		t.Errorf("after ForceRestart: got %d starts, want 2", len(l.machine.boots))
	}
	l.reset("ForceOff")
	l.reset("ForceOff")
	if got := l.power(); got != "Off" {
		t.Errorf("after ForceOff: got %s, want Off", got)
	}
	l.do("POST", "/redfish/v1/Systems/"+id+"/Actions/ComputerSystem.Reset", object{"ResetType": "Nmi"}, 400)
}

func TestGuestRestartsByTheBootOverride(t *testing.T) {
	l := newLab(t)
	patch := func(boot object) { l.do("PATCH", "/redfish/v1/Systems/"+id, object{"Boot": boot}, 204) }
	patch(object{"BootSourceOverrideTarget": "Pxe", "BootSourceOverrideEnabled": "Once"})
	l.reset("On")
	(<-l.machine.starts).finish(true)
	second := <-l.machine.starts
	patch(object{"BootSourceOverrideTarget": "Hdd", "BootSourceOverrideEnabled": "Continuous"})
	second.finish(true)
	(<-l.machine.starts).finish(true)
	<-l.machine.starts
	want := []Boot{{Target: "Pxe"}, {Target: "None"}, {Target: "Hdd"}, {Target: "Hdd"}}
	if diff := cmp.Diff(want, l.machine.boots); diff != "" {
		t.Errorf("boots (-want +got):\n%s", diff)
	}
	l.do("PATCH", "/redfish/v1/Systems/"+id, object{"Boot": object{"BootSourceOverrideTarget": "Floppy"}}, 400)
}

// resets records the resets and the state of the power before them.
type resets struct {
	lab  *lab
	seen []string
}

func (r *resets) BeforeReset(kind string) { r.seen = append(r.seen, kind+" when "+r.lab.power()) }

// The history has what was requested from the BMC and what guests did. BeforeReset is called while the machine is in
// the state before.
func TestHistoryHasRequestsAndGuestActions(t *testing.T) {
	l := newLab(t)
	before := &resets{lab: l}
	l.system.Resets = before
	if err := l.system.SetBoot("Pxe", "Continuous"); err != nil {
		t.Fatal(err)
	}
	if err := l.system.SetBoot("Pxe", "Twice"); err == nil {
		t.Error("a wrong override: got no error")
	}
	l.reset("On")
	(<-l.machine.starts).finish(true)
	<-l.machine.starts
	l.reset("ForceRestart")
	<-l.machine.starts
	l.reset("GracefulShutdown")
	for l.system.On() {
		runtime.Gosched() // the guest ends in the background
	}
	want := []string{"On", GuestRestart, "ForceRestart", "GracefulShutdown", GuestOff}
	if diff := cmp.Diff(want, l.system.History()); diff != "" {
		t.Errorf("history (-want +got):\n%s", diff)
	}
	want = []string{"On when Off", "ForceRestart when On", "GracefulShutdown when On"}
	if diff := cmp.Diff(want, before.seen); diff != "" {
		t.Errorf("calls of BeforeReset (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]Boot{{Target: "Pxe"}, {Target: "Pxe"}, {Target: "Pxe"}}, l.machine.boots); diff != "" {
		t.Errorf("boots (-want +got):\n%s", diff)
	}
}

func TestHTTPBoot(t *testing.T) {
	l := newLab(t)
	const url = "http://192.0.2.1/boot.iso"
	patch := func(boot object) { l.do("PATCH", "/redfish/v1/Systems/"+id, object{"Boot": boot}, 204) }
	patch(object{
		"BootSourceOverrideTarget": "UefiHttp", "BootSourceOverrideEnabled": "Once", "HttpBootUri": url,
	})
	l.reset("On")
	l.reset("ForceRestart")
	if diff := cmp.Diff([]Boot{{Target: "UefiHttp", URL: url}, {Target: "None"}}, l.machine.boots); diff != "" {
		t.Errorf("boots (-want +got):\n%s", diff)
	}
}

func TestVirtualMedia(t *testing.T) {
	l := newLab(t)
	images := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/boot.iso" {
			w.WriteHeader(http.StatusNotFound)
			return
		}
		_, _ = io.WriteString(w, "the image")
	}))
	defer images.Close()
	base := "/redfish/v1/Managers/" + id + "/VirtualMedia/Cd"
	l.do("POST", base+"/Actions/VirtualMedia.InsertMedia", object{"Image": images.URL + "/missing.iso"}, 500)
	if got := l.do("GET", base, nil, 200); got["Inserted"] != false {
		t.Errorf("after a failed download: got %v", got)
	}
	l.do("POST", base+"/Actions/VirtualMedia.InsertMedia", object{"Image": images.URL + "/boot.iso"}, 204)
	if got := l.do("GET", base, nil, 200); got["Inserted"] != true || got["Image"] != images.URL+"/boot.iso" {
		t.Errorf("after InsertMedia: got %v", got)
	}
	l.do("PATCH", "/redfish/v1/Systems/"+id,
		object{"Boot": object{"BootSourceOverrideTarget": "Cd", "BootSourceOverrideEnabled": "Once"}}, 204)
	l.reset("On")
	boot := l.machine.boots[0]
	data, err := os.ReadFile(boot.CD)
	if err != nil || string(data) != "the image" || boot.Target != "Cd" || boot.USB != "" {
		t.Errorf("got boot %+v with %q, %v", boot, data, err)
	}
	l.do("POST", base+"/Actions/VirtualMedia.EjectMedia", object{}, 204)
	l.reset("ForceRestart")
	if got := l.machine.boots[1]; got != (Boot{Target: "None"}) {
		t.Errorf("after EjectMedia: got boot %+v", got)
	}
}

func TestCloseKeepsTheMachineOff(t *testing.T) {
	l := newLab(t)
	l.reset("On")
	if err := l.system.Close(); err != nil {
		t.Fatal(err)
	}
	l.reset("On")
	if l.system.On() || len(l.machine.boots) != 1 {
		t.Error("the machine was started after Close")
	}
}
