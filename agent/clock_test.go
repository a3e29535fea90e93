package agent

import (
	"context"
	"errors"
	"io/fs"
	"net"
	"net/netip"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"ironroot/agent/config"
	"ironroot/agent/fault"
	"ironroot/internal/test/testenv"
	"ironroot/netboot/sntp/sntptest"
)

// fakeClocks are a machine's clocks. The system clock continues from a time that is set.
type fakeClocks struct {
	offset, rtcOffset  time.Duration // from the true time
	system, hardware   []time.Time   // what they were set to
	systemErr, rtcErr  error
	setHardwareErr     error
	withoutHardwareRTC bool
}

func (f *fakeClocks) Now() time.Time { return time.Now().Add(f.offset) }

func (f *fakeClocks) SetSystem(at time.Time) error {
	if f.systemErr == nil {
		f.system, f.offset = append(f.system, at), time.Until(at)
	}
	return f.systemErr
}

func (f *fakeClocks) Hardware() (time.Time, error) {
	if f.withoutHardwareRTC {
		return time.Time{}, fs.ErrNotExist
	}
	return time.Now().Add(f.rtcOffset).Truncate(time.Second), f.rtcErr
}

func (f *fakeClocks) SetHardware(at time.Time) error {
	if f.setHardwareErr == nil {
		f.hardware, f.rtcOffset = append(f.hardware, at), time.Until(at)
	}
	return f.setHardwareErr
}

// aheadTime is a time of Ironic that runs ahead of the true time.
type aheadTime time.Duration

func (d aheadTime) VerifiedTime() (time.Time, bool) { return time.Now().Add(time.Duration(d)), true }

// decade is the offset of a clock with an empty battery.
const decade = -16 * 365 * 24 * time.Hour

func clockAgent(destructive bool, c *config.Config, f *fakeClocks) *agent {
	a := newAgent(Options{Config: c, Destructive: destructive})
	a.clocks = f
	return a
}

// ironicAhead makes a's verified Ironic time run ahead of the true time.
func ironicAhead(a *agent, ahead time.Duration) {
	a.ironicClock = aheadTime(ahead)
}

// near reports whether list contains exactly one time, which is now plus ahead.
func near(list []time.Time, ahead time.Duration) bool {
	return len(list) == 1 && (time.Until(list[0])-ahead).Abs() < time.Minute
}

// localServer starts a time server at NTP's port, on an address of this machine that no other test uses.
func localServer(t *testing.T, reply sntptest.Reply) netip.Addr {
	t.Helper()
	testenv.Root(t)
	process := os.Getpid() // at most 1 << 22
	address := netip.AddrFrom4([4]byte{127, byte(process >> 16), byte(process >> 8), byte(process)})
	conn, err := net.ListenUDP("udp", net.UDPAddrFromAddrPort(netip.AddrPortFrom(address, 123)))
	if err != nil {
		t.Fatal(err)
	}
	sntptest.Serve(t, conn, reply)
	return address
}

// A server that the operator configured sets both clocks, at the start and before the stop, even if they are plausible.
//
// Parity: R4
func TestNamedServerSetsBothClocks(t *testing.T) {
	server := sntptest.Start(t, "127.0.0.1:0", sntptest.Reply{Ahead: time.Hour}).Address()
	for _, way := range []func(*agent, context.Context) error{(*agent).setClock, (*agent).SetClocks} {
		f := &fakeClocks{}
		a := clockAgent(true, &config.Config{NTPServer: server}, f)
		ironicAhead(a, 24*time.Hour)
		a.clockUnverified.Store(true) // until now
		if err := way(a, t.Context()); err != nil {
			t.Fatal(err)
		}
		if !near(f.system, time.Hour) || !near(f.hardware, time.Hour) {
			t.Errorf("system clock set to %v, hardware clock to %v, want an hour from now", f.system, f.hardware)
		}
		a.checkClocks()
		if len(f.system) != 1 || len(f.hardware) != 1 {
			t.Errorf("got system clock %v, hardware clock %v, want Ironic's Date ignored", f.system, f.hardware)
		}
		f = &fakeClocks{}
		if err := way(clockAgent(false, &config.Config{NTPServer: server}, f), t.Context()); err != nil ||
			f.system != nil || f.hardware != nil {
			t.Errorf("ordinary process: got %v, %v and %v, want no clock set", err, f.system, f.hardware)
		}
	}
}

// The network's servers are queried only if the clock cannot be right, and never set the hardware clock.
func TestNetworkServersSetOnlyAWrongClock(t *testing.T) {
	server := localServer(t, sntptest.Reply{Ahead: 5 * time.Hour})
	network := timeServers{server}
	for name, tt := range map[string]struct {
		network Network
		mdns    string
		offset  time.Duration
		want    bool
	}{
		"plausible":       {network: network, offset: time.Hour},
		"wrong":           {network: network, offset: decade, want: true},
		"plausible, mDNS": {mdns: server.String(), offset: time.Hour},
		"wrong, mDNS":     {mdns: server.String(), offset: decade, want: true},
		"wrong, none":     {offset: decade},
	} {
		f := &fakeClocks{offset: tt.offset, rtcOffset: tt.offset}
		a := clockAgent(true, &config.Config{}, f)
		a.o.Machine.Network = tt.network
		a.config.Update(func(c *config.Config) { c.NTPServer = tt.mdns }) // as an override of multicast DNS does
		if err := a.setClock(t.Context()); err != nil {
			t.Fatal(err)
		}
		if tt.want != near(f.system, 5*time.Hour) || !tt.want && f.system != nil || f.hardware != nil {
			t.Errorf("%s: system clock set to %v, hardware clock to %v, want a system clock: %v",
				name, f.system, f.hardware, tt.want)
		}
		if err := a.SetClocks(t.Context()); err != nil || f.hardware != nil {
			t.Errorf("%s: before the stop: got %v and the hardware clock %v, want it unchanged", name, err, f.hardware)
		}
		ironicAhead(a, 2*time.Hour)
		a.checkClocks()
		corrected := len(f.system) == 2 && near(f.system[1:], 2*time.Hour)
		if corrected != tt.want || !near(f.hardware, 2*time.Hour) {
			t.Errorf("%s: with a verified Ironic: got system clock %v, hardware clock %v, want both set to its time",
				name, f.system, f.hardware)
		}
		ironicAhead(a, 9*time.Hour)
		if known := len(f.system); known > 0 {
			if a.checkClocks(); len(f.system) != known {
				t.Errorf("%s: got system clock %v, want a verified one kept", name, f.system)
			}
		}
	}
	f := &fakeClocks{offset: decade, systemErr: errors.New("not permitted")}
	a := clockAgent(true, &config.Config{FailIfClockNotSet: true}, f)
	a.o.Machine.Network = network
	if err := (unverifiedClock{a}).SetSystem(time.Now()); !errors.Is(err, f.systemErr) {
		t.Errorf("clock that cannot be set by Ironic's: got %v, want %v", err, f.systemErr)
	}
	var known *fault.Error
	if err := a.setClock(t.Context()); !errors.As(err, &known) || known.Type != "ClockSyncError" {
		t.Errorf("clock that cannot be set: got %v, want a ClockSyncError", err)
	}
}

// A verified Ironic sets the hardware clock, after the lookup and before the stop, and a system clock that an
// unverified source has set. A plausible system clock is kept.
//
// Parity: R4
func TestIronicSetsTheHardwareClock(t *testing.T) {
	const ahead = 2 * time.Hour
	for name, tt := range map[string]struct {
		clocks           fakeClocks
		unverified       bool
		system, hardware bool
	}{
		"both right":           {clocks: fakeClocks{offset: ahead, rtcOffset: ahead}},
		"hardware clock wrong": {clocks: fakeClocks{offset: ahead, rtcOffset: decade}, hardware: true},
		"system clock kept":    {clocks: fakeClocks{offset: time.Hour, rtcOffset: time.Hour}, hardware: true},
		"set by the network": {
			clocks: fakeClocks{offset: 9 * time.Hour, rtcOffset: decade}, unverified: true, system: true,
			hardware: true,
		},
		"unreadable": {
			clocks: fakeClocks{offset: ahead, rtcErr: errors.New("input/output error")}, hardware: true,
		},
		"no hardware clock": {
			clocks: fakeClocks{offset: 9 * time.Hour, withoutHardwareRTC: true}, unverified: true, system: true,
		},
		"system clock not ours": {
			clocks:     fakeClocks{offset: 9 * time.Hour, rtcOffset: decade, systemErr: errors.New("not permitted")},
			unverified: true,
		},
	} {
		f := tt.clocks
		a := clockAgent(true, &config.Config{}, &f)
		a.clockUnverified.Store(tt.unverified)
		a.checkClocks() // Ironic is not verified yet
		if f.system != nil || f.hardware != nil {
			t.Errorf("%s: an unverified Ironic set the clocks to %v and %v", name, f.system, f.hardware)
		}
		ironicAhead(a, ahead)
		a.checkClocks()
		if tt.system != near(f.system, ahead) || tt.hardware != near(f.hardware, ahead) {
			t.Errorf("%s: got system clock %v, hardware clock %v", name, f.system, f.hardware)
		}
		f.hardware, f.rtcErr, f.rtcOffset = nil, nil, decade
		if err := a.SetClocks(t.Context()); err != nil || !f.withoutHardwareRTC && !near(f.hardware, ahead) {
			t.Errorf("%s: before the stop: got %v and the hardware clock %v, want Ironic's time", name, err, f.hardware)
		}
	}
	f := &fakeClocks{rtcOffset: decade}
	a := clockAgent(false, &config.Config{}, f)
	ironicAhead(a, ahead)
	a.checkClocks()
	if err := a.SetClocks(t.Context()); err != nil || f.system != nil || f.hardware != nil {
		t.Errorf("ordinary process: got %v, %v and %v, want no clock set", err, f.system, f.hardware)
	}
}

// timeServers is a network whose DHCP server announces time servers.
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
	a := newAgent(Options{Config: &config.Config{}, Machine: Machine{Network: network}})
	if diff := cmp.Diff([]string{"192.0.2.1", "2001:db8::1", "192.0.2.2"}, a.networkTimeServers()); diff != "" {
		t.Errorf("time servers (-want +got):\n%s", diff)
	}
}

// An implausible time, and a clock that cannot be set, are errors only if the clock must be set. If the named server
// fails before the stop, a verified Ironic sets the hardware clock.
func TestSetClockFails(t *testing.T) {
	past := sntptest.Start(t, "127.0.0.1:0", sntptest.Reply{At: time.Date(2006, 1, 1, 0, 0, 0, 0, time.UTC)}).Address()
	present := sntptest.Start(t, "127.0.0.1:0", sntptest.Reply{}).Address()
	for _, must := range []bool{false, true} {
		for _, server := range []string{past, present} {
			for _, way := range []func(*agent, context.Context) error{(*agent).setClock, (*agent).SetClocks} {
				f := &fakeClocks{systemErr: errors.New("not permitted")}
				err := way(clockAgent(true, &config.Config{NTPServer: server, FailIfClockNotSet: must}, f), t.Context())
				var known *fault.Error
				if must != (errors.As(err, &known) && known.Type == "ClockSyncError") || !must && err != nil {
					t.Errorf("server %s, fail_if_clock_not_set %v: got %v", server, must, err)
				}
			}
		}
	}
	for _, way := range []func(*agent, context.Context) error{(*agent).setClock, (*agent).SetClocks} {
		f := &fakeClocks{setHardwareErr: errors.New("input/output error")}
		err := way(clockAgent(true, &config.Config{NTPServer: present, FailIfClockNotSet: true}, f), t.Context())
		if err == nil || !strings.Contains(err.Error(), "input/output error") {
			t.Errorf("hardware clock that cannot be set: got %v, want its error", err)
		}
	}
	f := &fakeClocks{rtcOffset: decade}
	a := clockAgent(true, &config.Config{NTPServer: past}, f)
	ironicAhead(a, 0)
	if err := a.SetClocks(t.Context()); err != nil || !near(f.hardware, 0) {
		t.Errorf("named server fails: got %v and the hardware clock %v, want Ironic's time", err, f.hardware)
	}
	silent := sntptest.Start(t, "127.0.0.1:0", sntptest.Reply{Silent: true}).Address()
	ctx, cancel := context.WithCancel(t.Context())
	time.AfterFunc(50*time.Millisecond, cancel)
	err := clockAgent(true, &config.Config{NTPServer: silent}, &fakeClocks{}).setClock(ctx)
	if !errors.Is(err, context.Canceled) { // the limits of setClock itself are deadlines
		t.Errorf("silent server: got %v, want the wait to end with the context", err)
	}
}
