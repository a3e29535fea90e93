package agent

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"ironroot/agent/config"
	"ironroot/agent/extension"
	"ironroot/agent/inventory"
	"ironroot/agent/inventory/machinetest"
	"ironroot/agent/journal"
	"ironroot/agent/status"
	"ironroot/internal/test/testenv"
	"ironroot/netboot/lldp"
)

// Without Forever the agent ends with the error of the phase that failed.
func TestStartFails(t *testing.T) {
	broken := func(o *Options) {
		o.Ports = listening(func(context.Context, string, int) (net.Listener, error) {
			return nil, errors.New("address in use")
		})
	}
	cardless := func(o *Options) {
		o.System = bareMachine(t)
		if err := os.RemoveAll(o.System.Sys("class/net")); err != nil {
			t.Error(err)
		}
	}
	for _, tt := range []struct {
		change func(*Options)
		args   []string
		want   string
	}{
		{nil, []string{"--cafile=/nonexistent.pem", "--insecure=false"}, "configuration: "},
		{cardless, nil, "lookup: "},
		{nil, []string{"--advertise-host=", "--network-interface=no-such", "--ip-lookup-attempts=1"}, "address: "},
		{nil, []string{"--listen_tls"}, "api: listen_tls needs "},
		{
			nil,
			[]string{"--tls_cert_file=/nonexistent.crt", "--tls_key_file=/nonexistent.key"},
			"api: load API certificate: ",
		},
		{broken, nil, "api: address in use"},
	} {
		ironic := newIronic(t)
		r := startAgent(t, tt.change, append([]string{"--api-url=" + ironic.URL}, tt.args...)...)
		select {
		case err := <-r.done:
			if err == nil || !strings.HasPrefix(err.Error(), tt.want) {
				t.Errorf("%q: got %v, want an error of %q", tt.args, err, tt.want)
			}
			r.done <- nil
		case b := <-ironic.beats:
			t.Errorf("%q: got a heartbeat %v, want an error of %q", tt.args, b.CallbackURL, tt.want)
		}
	}
}

// The lookup contains the MAC address of every network card.
func TestLookupNamesCards(t *testing.T) {
	ironic := newIronic(t)
	system := machinetest.System(t, "dell-r640")
	r := startAgent(t, func(o *Options) { o.System = system }, "--api-url="+ironic.URL)
	r.beat(ironic)
	ironic.mu.Lock()
	defer ironic.mu.Unlock()
	got := strings.Split(ironic.lookups[0].Get("addresses"), ",")
	cards, err := os.ReadDir(system.Sys("class/net"))
	if err != nil {
		t.Fatal(err)
	}
	want := 0
	for _, card := range cards {
		address, err := os.ReadFile(system.Sys("class/net", card.Name(), "address"))
		if _, missing := os.Stat(system.Sys("class/net", card.Name(), "device")); err != nil || missing != nil {
			continue
		}
		if want++; !slices.Contains(got, strings.TrimSpace(string(address))) {
			t.Errorf("got addresses %v, want that of %s, %s", got, card.Name(), address)
		}
	}
	if want == 0 {
		t.Error("the machine has no card")
	}
}

// startedAgent is an agent whose managers are loaded, with an Ironic.
func startedAgent(t *testing.T, o Options, args ...string) *agent {
	t.Helper()
	c, err := config.Load(config.Sources{Args: append([]string{"--insecure", "--lookup-timeout=0"}, args...)})
	if err != nil {
		t.Fatal(err)
	}
	o.Config = c
	if o.System.Path == "" {
		o.System = bareMachine(t)
	}
	a := newAgent(o)
	t.Cleanup(a.close)
	if err := errors.Join(a.configure(t.Context()), a.loadHardware(t.Context())); err != nil {
		t.Fatal(err)
	}
	return a
}

// A lookup whose answer TLS has verified sets the hardware clock.
func TestLookupSetsTheHardwareClock(t *testing.T) {
	ironic := newIronic(t)
	a := startedAgent(t, Options{Destructive: true}, "--api-url="+ironic.URL)
	f := &fakeClocks{rtcOffset: decade}
	a.clocks = f
	ironicAhead(a, 0)
	if err := a.lookup(t.Context()); err != nil || !near(f.hardware, 0) {
		t.Errorf("got %v and the hardware clock %v, want the present time", err, f.hardware)
	}
}

// refresh looks the node up again, and lists no network cards for that: those that a driver has lost since are still
// Ironic's ports. It fails without a known node. A failed lookup keeps the known node.
//
// Parity: G11
func TestRefresh(t *testing.T) {
	ironic := newIronic(t)
	a := startedAgent(t, Options{}, "--api-url="+ironic.URL)
	addCard(t, a.o.System, "eth0", "52:54:00:12:34:56")
	if err := a.Refresh(t.Context()); err == nil {
		t.Error("without a node: got no error")
	}
	if err := a.lookup(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := a.Refresh(t.Context()); err != nil {
		t.Error(err)
	}
	ironic.answer(http.StatusNotFound)
	if err := a.Refresh(t.Context()); err == nil || a.node.Get().UUID() != nodeUUID {
		t.Errorf("refused lookup: got %v, node %v, want an error and the earlier node", err, a.node.Get())
	}
	ironic.answer(http.StatusOK)
	if err := os.RemoveAll(a.o.System.Sys("class/net")); err != nil {
		t.Fatal(err)
	}
	if err := a.Refresh(t.Context()); err != nil {
		t.Errorf("network cards that cannot be listed: got %v, want a lookup with those of before", err)
	}
	sent := ironic.addresses()
	if first, last := sent[0], sent[len(sent)-1]; first != "52:54:00:12:34:56" || first != last {
		t.Errorf("got a lookup of the addresses %q, want %q", last, first)
	}
}

// refused dials a host that refuses connections.
func refused(context.Context, string, string) (net.Conn, error) {
	return nil, errors.New("connection refused")
}

// After a first lookup has failed, the second one waits for drivers for at most lookupSettleTimeout.
func TestLookupWaitsForDrivers(t *testing.T) {
	for loaded, want := range map[time.Duration]time.Duration{
		5 * time.Second: 5 * time.Second, time.Hour: lookupSettleTimeout,
	} {
		synctest.Test(t, func(t *testing.T) {
			settled := make(chan struct{})
			machine := bareMachine(t)
			addCard(t, machine, "eth0", "52:54:00:12:34:56")
			dialled := 0
			dial := func(context.Context, string, string) (net.Conn, error) {
				dialled++
				return nil, errors.New("connection refused")
			}
			a := startedAgent(t, Options{Machine: loading(settled), System: machine, Dialer: dialing(dial)},
				"--api-url=http://192.0.2.1")
			time.AfterFunc(loaded, func() { close(settled) })
			started := time.Now()
			if err := a.lookup(t.Context()); err == nil || time.Since(started) != want || dialled != 2 {
				t.Errorf("drivers after %v: got %v after %v and %d connections, want a failure after %v and 2",
					loaded, err, time.Since(started), dialled, want)
			}
			time.Sleep(time.Hour) // all timers end
		})
	}
}

// The inspection waits for drivers.
func TestInspectionAfterDrivers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		settled := make(chan struct{})
		a := startedAgent(t, Options{Machine: loading(settled), Dialer: dialing(refused)},
			"--inspection-callback-url=http://192.0.2.1", "--inspection-collectors=pci-devices")
		time.AfterFunc(30*time.Second, func() { close(settled) })
		started := time.Now()
		if err := a.inspect(t.Context()); err != nil || time.Since(started) < 30*time.Second {
			t.Errorf("got %v after %v, want no inspection before the drivers were loaded", err, time.Since(started))
		}
	})
}

// The start requests drivers that are postponed before it waits for them, and only then.
func TestStartRequestsDrivers(t *testing.T) {
	for option, want := range map[string]int{
		"--inspection-collectors=pci-devices": 1, "--inspection-collectors=": 0,
	} {
		synctest.Test(t, func(t *testing.T) {
			settled := make(chan struct{})
			requests := 0
			request := func() {
				if requests++; requests == 1 {
					close(settled)
				}
			}
			machine := Machine{Drivers: fakeDrivers{settled, request}}
			a := startedAgent(t, Options{Machine: machine, Dialer: dialing(refused)},
				"--api-url=http://192.0.2.1", option)
			if err := a.inspect(t.Context()); err != nil || requests != want {
				t.Errorf("%s: got %v and %d requests of drivers, want %d", option, err, requests, want)
			}
		})
	}
}

// The inventory contains devices whose drivers are still being loaded when Ironic asks for it.
func TestHardwareInfoAfterDrivers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		settled := make(chan struct{})
		machine := bareMachine(t)
		a := startedAgent(t, Options{Machine: loading(settled), System: machine}, "--disk-wait-attempts=0")
		time.AfterFunc(20*time.Second, func() {
			addCard(t, machine, "eth0", "52:54:00:12:34:56")
			close(settled)
		})
		for _, e := range extension.All(a.deps()) {
			for _, c := range e.Commands {
				if e.Name+"."+c.Name != "poll.get_hardware_info" {
					continue
				}
				got, err := c.Call(t.Context(), nil)
				text, _ := json.Marshal(got)
				if err != nil || !strings.Contains(string(text), "52:54:00:12:34:56") {
					t.Errorf("got %s and %v, want the card that appeared after 20 s", text, err)
				}
				return
			}
		}
		t.Error("no command poll.get_hardware_info")
	})
}

// Every phase that waits for something ends with the context.
func TestPhasesEndWithTheContext(t *testing.T) {
	network := &slowNetwork{after: time.Now().Add(time.Hour)}
	a := startedAgent(t, Options{Machine: Machine{Network: network}}, "--api-url=mdns",
		"--inspection-collectors=pci-devices")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for name, phase := range map[string]func(context.Context) error{
		"network": a.waitNetwork, "discovery": a.discover, "inspection": a.inspect,
	} {
		if err := phase(ctx); !errors.Is(err, context.Canceled) {
			t.Errorf("%s: got %v, want the context's error", name, err)
		}
	}
	a = newAgent(Options{Config: &config.Config{HardwareInitializationDelay: time.Hour}, System: bareMachine(t)})
	if err := a.loadHardware(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("hardware: got %v, want the context's error", err)
	}
}

// Collect fails if the inspection cannot start.
func TestCollectCannotBegin(t *testing.T) {
	strict := func(c *config.Config) { c.CAFile = "/nonexistent.pem" }
	err := Collect(t.Context(), collecting(t, "http://192.0.2.1", strict))
	if err == nil || !strings.Contains(err.Error(), "/nonexistent.pem") {
		t.Errorf("got %v, want an error that names the file", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	later := func(c *config.Config) { c.HardwareInitializationDelay = time.Hour }
	if err := Collect(ctx, collecting(t, "http://192.0.2.1", later)); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want the context's error", err)
	}
}

// fakeNeighbours is a source of LLDP frames.
type fakeNeighbours struct{ inventory.Neighbours }

// LLDP frames come from the caller's source, otherwise from a listener. In an ordinary process the listener does not
// stop the LLDP agents of firmware.
func TestNeighbours(t *testing.T) {
	neighbours := &fakeNeighbours{}
	a := newAgent(Options{Config: &config.Config{}, Machine: Machine{Neighbours: neighbours}})
	if got := a.neighbours(); got != neighbours {
		t.Errorf("got %T, want the given one", got)
	}
	for _, destructive := range []bool{false, true} {
		got, ok := newAgent(Options{Config: &config.Config{}, Destructive: destructive}).neighbours().(lldp.OnDemand)
		if !ok || got.StopFirmware != destructive {
			t.Errorf("destructive %v: got %+v", destructive, got)
		}
	}
}

// ipa-debug sets the log level. Settings without effect are logged once, also without a lookup.
func TestConfigure(t *testing.T) {
	for _, debug := range []bool{false, true} {
		console := &testenv.Log{}
		j := journal.New(console, nil, 1<<20)
		c := &config.Config{Debug: debug, Standalone: true}
		c.DiskUtils.DDBlockSize = "4M"
		a := newAgent(Options{Journal: j, Config: c})
		if err := a.configure(t.Context()); err != nil {
			t.Fatal(err)
		}
		if want := map[bool]slog.Level{false: slog.LevelInfo, true: slog.LevelDebug}[debug]; j.Level().Level() != want {
			t.Errorf("debug %v: got level %v, want %v", debug, j.Level().Level(), want)
		}
		a.config.Update(func(c *config.Config) { c.TLSCipherSuites = "nonsense" })
		for range 2 {
			a.warnOptions()
		}
		if got := strings.Count(console.String(), "names=nonsense"); got != 1 {
			t.Errorf("got %d lines about the cipher, want 1:\n%s", got, console)
		}
		if !strings.Contains(console.String(), "name=disk_utils.dd_block_size") {
			t.Errorf("the setting is not named:\n%s", console)
		}
	}
}

// Passwords in URLs are redacted, also in a reloaded configuration.
func TestSecretsOfURLs(t *testing.T) {
	console := &testenv.Log{}
	j := journal.New(console, nil, 1<<20)
	later := &config.Config{AgentToken: strings.Repeat("t", 43), APIURL: "http://a:third-one@h/"}
	a := newAgent(Options{
		Journal: j,
		Config:  &config.Config{APIURL: "http://a:first-one@h/", InspectionCallbackURL: "http://a:second-one@h/"},
		Machine: Machine{Media: reloadFunc(func() *config.Config { return later })},
	})
	a.reload(t.Context())
	j.Logger().Info("all", "secrets", "first-one second-one third-one "+later.AgentToken)
	for _, secret := range []string{"first-one", "second-one", "third-one", later.AgentToken} {
		if strings.Contains(console.String(), secret) {
			t.Errorf("the log shows %s:\n%s", secret, console)
		}
	}
}

// An implausible system clock is set from an unverified Ironic if the agent is destructive. Otherwise no clock is set.
func TestUnverifiedClock(t *testing.T) {
	testenv.Root(t)
	for _, destructive := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) { // in the year 2000
			want := time.Date(2026, 7, 1, 0, 0, 0, 0, time.UTC)
			dial := func(context.Context, string, string) (net.Conn, error) {
				here, there := net.Pipe()
				go func() {
					defer there.Close() //nolint:errcheck // of a pipe
					_, _ = there.Read(make([]byte, 4096))
					date := want.Format(http.TimeFormat)
					_, _ = there.Write([]byte("HTTP/1.1 404 Not Found\r\nDate: " + date +
						"\r\nContent-Length: 0\r\n\r\n"))
				}()
				return here, nil
			}
			f := &fakeClocks{}
			c := &config.Config{APIURL: "http://192.0.2.1", HTTPRequestTimeout: time.Minute}
			a := newAgent(Options{Config: c, Destructive: destructive, Dialer: dialing(dial)})
			a.clocks = f
			if err := a.configure(t.Context()); err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
			defer cancel()
			a.ironic.APIVersion(ctx)
			got := len(f.system) == 1 && f.system[0].Equal(want)
			if got != destructive || a.clockUnverified.Load() != destructive {
				t.Errorf("destructive %v: the clock was set to %v, unverified %v",
					destructive, f.system, a.clockUnverified.Load())
			}
			time.Sleep(time.Hour) // all timers and connections end
		})
	}
}

// The board names the URLs of Ironic before they are tried, and those that were discovered.
func TestBoardNamesURLs(t *testing.T) {
	board := status.NewBoard("", nil)
	a := newAgent(Options{Config: &config.Config{APIURL: "http://192.0.2.1"}, Board: board})
	if err := a.configure(t.Context()); err != nil {
		t.Fatal(err)
	}
	want := func(url string) {
		t.Helper()
		if s := board.State(); len(s.APIs) != 1 || s.APIs[0].URL != url {
			t.Errorf("got URLs %+v, want %s", s.APIs, url)
		}
	}
	want("http://192.0.2.1")
	a.config.Update(func(c *config.Config) { c.APIURL = "http://192.0.2.2" })
	if err := a.discover(t.Context()); err != nil {
		t.Fatal(err)
	}
	want("http://192.0.2.2")
}

// changing is a network that changes once.
type changing struct {
	fakeNetwork
	lock   sync.Mutex
	change chan struct{}
}

func (n *changing) Changed() <-chan struct{} {
	n.lock.Lock()
	defer n.lock.Unlock()
	return n.change
}

// A lookup that cannot reach Ironic is retried when the network changes.
func TestLookupAfterChange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		network := &changing{change: make(chan struct{})}
		var dials []time.Duration
		started := time.Now()
		refused := func(context.Context, string, string) (net.Conn, error) {
			dials = append(dials, time.Since(started))
			return nil, errors.New("connection refused")
		}
		a := startedAgent(t, Options{Machine: Machine{Network: network}, Dialer: dialing(refused)},
			"--api-url=http://192.0.2.1", "--lookup-timeout=300", "--lookup-interval=50")
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		time.AfterFunc(5*time.Second, func() {
			network.lock.Lock()
			defer network.lock.Unlock()
			close(network.change)
			network.change = nil
		})
		if err := a.lookup(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v, want the context's error", err)
		}
		if !slices.Contains(dials, 5*time.Second) {
			t.Errorf("got connections after %v, want one at the change after 5 s", dials)
		}
	})
}

// A certificate that cannot be made keeps the API closed.
func TestCertificateFails(t *testing.T) {
	ironic := newIronic(t)
	a := startedAgent(t, Options{}, "--api-url="+ironic.URL)
	a.config.Update(func(c *config.Config) { c.TLSCertificateCurve = "p224" })
	if err := a.listen(t.Context()); err == nil || !strings.Contains(err.Error(), "p224") || a.server != nil {
		t.Errorf("got %v and a server %v, want an error that names the curve", err, a.server)
	}
}
