package agent

import (
	"context"
	"errors"
	"net/netip"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"ironroot/agent/config"
	"ironroot/agent/fault"
	"ironroot/netboot/sntp/sntptest"
)

func clockAgent(destructive bool, c *config.Config) (a *agent, set *[]time.Time) {
	a = newAgent(Options{Config: c, Destructive: destructive})
	set = &[]time.Time{}
	a.setTime = func(at time.Time) error {
		*set = append(*set, at)
		return nil
	}
	return a, set
}

func TestSetClock(t *testing.T) {
	server := sntptest.Start(t, "127.0.0.1:0", sntptest.Reply{Ahead: time.Hour}).Address()
	a, set := clockAgent(true, &config.Config{NTPServer: server})
	if err := a.setClock(t.Context()); err != nil {
		t.Fatal(err)
	}
	if len(*set) != 1 || time.Until((*set)[0]).Round(time.Minute) != time.Hour {
		t.Errorf("clock set to %v, want an hour from now", *set)
	}
	for _, tt := range []struct {
		name        string
		destructive bool
		config      config.Config
	}{
		{"no server", true, config.Config{}},
		{"ordinary process", false, config.Config{NTPServer: server}},
	} {
		a, set := clockAgent(tt.destructive, &tt.config)
		if err := a.setClock(t.Context()); err != nil || len(*set) != 0 {
			t.Errorf("%s: got %v and the clock set to %v, want nothing to happen", tt.name, err, *set)
		}
	}
}

// timeServers is a network whose DHCP server named time servers.
type timeServers []netip.Addr

func (s timeServers) TimeServers() []netip.Addr       { return s }
func (timeServers) WaitAddress(context.Context) error { return nil }
func (timeServers) Down(context.Context) error        { return nil }
func (timeServers) Changed() <-chan struct{}          { return nil }
func (timeServers) RestoreFirmwareLLDP(bool) error    { return nil }

func TestTimeServersOfTheNetwork(t *testing.T) {
	network := timeServers{}
	for _, text := range []string{"192.0.2.1", "2001:db8::1", "192.0.2.1", "192.0.2.2"} {
		network = append(network, netip.MustParseAddr(text))
	}
	a := newAgent(Options{Config: &config.Config{}, Network: network})
	if diff := cmp.Diff([]string{"192.0.2.1", "2001:db8::1", "192.0.2.2"}, a.networkTimeServers()); diff != "" {
		t.Errorf("time servers (-want +got):\n%s", diff)
	}
}

// A time that is absurd, and a clock that cannot be set, are errors only where the clock must be set.
func TestSetClockFails(t *testing.T) {
	past := sntptest.Start(t, "127.0.0.1:0", sntptest.Reply{At: time.Date(2006, 1, 1, 0, 0, 0, 0, time.UTC)}).Address()
	present := sntptest.Start(t, "127.0.0.1:0", sntptest.Reply{}).Address()
	for _, must := range []bool{false, true} {
		for _, server := range []string{past, present} {
			a, _ := clockAgent(true, &config.Config{NTPServer: server, FailIfClockNotSet: must})
			a.setTime = func(time.Time) error { return errors.New("not permitted") }
			err := a.setClock(t.Context())
			var known *fault.Error
			if must != (errors.As(err, &known) && known.Type == "ClockSyncError") || !must && err != nil {
				t.Errorf("server %s, fail_if_clock_not_set %v: got %v", server, must, err)
			}
		}
	}
	a, _ := clockAgent(true, &config.Config{NTPServer: sntptest.Start(t, "127.0.0.1:0", sntptest.Reply{Silent: true}).Address()})
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	started := time.Now()
	if err := a.setClock(ctx); !errors.Is(err, context.DeadlineExceeded) || time.Since(started) > 4*time.Second {
		t.Errorf("silent server: got %v after %v, want the end of the context to end the wait", err, time.Since(started))
	}
}
