package agent

import (
	"context"
	"encoding/binary"
	"errors"
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"ironroot/agent/config"
	"ironroot/agent/fault"
)

// ntpServer answers on loopback with a clock that is an hour ahead (RFC 4330, section 4), and returns its address. A
// silent one takes the questions and says nothing.
func ntpServer(t *testing.T, silent bool) string {
	t.Helper()
	return ntpServerAt(t, "127.0.0.1:0", silent, time.Hour)
}

// ntpServerAt is ntpServer with an address, and a clock that is ahead by so much.
func ntpServerAt(t *testing.T, address string, silent bool, ahead time.Duration) string {
	t.Helper()
	server, err := net.ListenPacket("udp", address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = server.Close() })
	stamp := func(at time.Time) uint64 {
		const since1900 = 2208988800
		return uint64(at.Unix()+since1900)<<32 | uint64(at.Nanosecond())<<32/1e9
	}
	go func() {
		question := make([]byte, 512)
		for {
			n, client, err := server.ReadFrom(question)
			if err != nil {
				return
			}
			if n < 48 || silent {
				continue
			}
			answer := make([]byte, 48)
			answer[0], answer[1] = 4<<3|4, 2 // version 4, mode server; stratum
			now := stamp(time.Now().Add(ahead))
			binary.BigEndian.PutUint64(answer[16:], now)
			copy(answer[24:32], question[40:48])
			binary.BigEndian.PutUint64(answer[32:], now)
			binary.BigEndian.PutUint64(answer[40:], now)
			_, _ = server.WriteTo(answer, client)
		}
	}()
	return server.LocalAddr().String()
}

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
	server := ntpServer(t, false)
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

func TestTimeServersOfTheNetwork(t *testing.T) {
	network := timeServers{
		netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("2001:db8::1"),
		netip.MustParseAddr("192.0.2.2"), netip.MustParseAddr("192.0.2.3"),
	}
	a := newAgent(Options{Config: &config.Config{}, Network: network})
	for configured, want := range map[string][]string{
		"":            {"192.0.2.1", "2001:db8::1", "192.0.2.2"},
		"ntp.example": {"ntp.example"},
	} {
		if diff := cmp.Diff(want, a.timeServers(configured)); diff != "" {
			t.Errorf("configured %q (-want +got):\n%s", configured, diff)
		}
	}
}

// A time server of the network that is silent costs a second, and the next one is asked.
func TestSilentTimeServerOfTheNetwork(t *testing.T) {
	a, set := clockAgent(true, &config.Config{})
	started := time.Now()
	if err := a.setClockFrom(t.Context(), ntpServer(t, true), 50*time.Millisecond); err == nil || time.Since(started) > ntpTimeout {
		t.Errorf("got %v after %v, want an error once the limit is over", err, time.Since(started))
	}
	if err := a.setClockFrom(t.Context(), ntpServerAt(t, "[::1]:0", false, time.Hour), time.Second); err != nil || len(*set) != 1 {
		t.Errorf("by IPv6: got %v and the clock set to %v", err, *set)
	}
}

// An absurd time is refused, whoever names the server, and is an error only where the clock must be set.
func TestAbsurdTime(t *testing.T) {
	const years = 365 * 24 * time.Hour
	for _, ahead := range []time.Duration{-20 * years, 90 * years} {
		server := ntpServerAt(t, "127.0.0.1:0", false, ahead)
		for _, must := range []bool{false, true} {
			a, set := clockAgent(true, &config.Config{NTPServer: server, FailIfClockNotSet: must})
			err := a.setClock(t.Context())
			if (err != nil) != must || len(*set) != 0 {
				t.Errorf("%v ahead, fail_if_clock_not_set %v: got %v, clock set to %v", ahead, must, err, *set)
			}
		}
	}
}

func TestSetClockFails(t *testing.T) {
	for _, must := range []bool{false, true} {
		a, _ := clockAgent(true, &config.Config{NTPServer: ntpServer(t, false), FailIfClockNotSet: must})
		a.setTime = func(time.Time) error { return errors.New("not permitted") }
		err := a.setClock(t.Context())
		var known *fault.Error
		if must != (errors.As(err, &known) && known.Type == "ClockSyncError") || !must && err != nil {
			t.Errorf("fail_if_clock_not_set %v: got %v", must, err)
		}
	}
	a, _ := clockAgent(true, &config.Config{NTPServer: ntpServer(t, true)})
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	started := time.Now()
	if err := a.setClock(ctx); !errors.Is(err, context.DeadlineExceeded) || time.Since(started) > 4*time.Second {
		t.Errorf("silent server: got %v after %v, want the end of the context to end the wait", err, time.Since(started))
	}
}
