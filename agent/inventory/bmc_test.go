package inventory

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"

	"ironroot/agent/node"
	"ironroot/internal/test/testenv"
)

// fakeBMC contains answers by "channel parameter set". Other requests are errors, as from a BMC without that channel.
type fakeBMC map[string][]byte

func (b fakeBMC) LAN(channel, parameter, set byte) ([]byte, error) {
	if data, ok := b[fmt.Sprintf("%d %d %d", channel, parameter, set)]; ok {
		return data, nil
	}
	return nil, errors.New("completion code 0xcc")
}

func (fakeBMC) Close() error { return nil }

// ask returns all answers of a BMC.
func ask(t *testing.T, device BMC) bmcAddresses {
	t.Helper()
	var answers bmcAnswers
	answers.ask(t.Context(), device)
	result, missing := answers.addresses()
	if missing != "" {
		t.Errorf("got %q missing, want nothing", missing)
	}
	return result
}

func v6Entry(set byte, address string, status byte) []byte {
	a := netip.MustParseAddr(address).As16()
	return append(append([]byte{set, 0}, a[:]...), 64, status)
}

func TestAskBMC(t *testing.T) {
	mac := []byte{0x3c, 0xec, 0xef, 0, 0, 1}
	text := func(s string) *string { return &s }
	for _, tt := range []struct {
		name string
		bmc  fakeBMC
		want bmcAddresses
	}{
		{"no channel", fakeBMC{}, bmcAddresses{v4: text("0.0.0.0"), v6: text("::/0")}},
		{
			"second channel is configured",
			fakeBMC{"1 3 0": {0, 0, 0, 0}, "1 5 0": {1, 1, 1, 1, 1, 1}, "8 3 0": {192, 0, 2, 9}, "8 5 0": mac},
			bmcAddresses{v4: text("192.0.2.9"), v6: text("::/0"), mac: text("3c:ec:ef:00:00:01")},
		},
		{
			"channel 12 is no LAN channel",
			fakeBMC{"12 3 0": {192, 0, 2, 9}, "12 5 0": mac},
			bmcAddresses{v4: text("0.0.0.0"), v6: text("::/0")},
		},
		{
			"a MAC of zeros is none",
			fakeBMC{"1 3 0": {192, 0, 2, 9}, "1 5 0": {0, 0, 0, 0, 0, 0}},
			bmcAddresses{v4: text("192.0.2.9"), v6: text("::/0")},
		},
		{
			"dynamic IPv6 before static, active only",
			fakeBMC{
				"1 51 0": {2}, "1 5 0": mac,
				"1 59 0": v6Entry(0, "2001:db8::1", 3), "1 59 1": v6Entry(1, "2001:db8::2", 0),
				"1 56 0": v6Entry(0, "2001:db8::3", 0),
			},
			bmcAddresses{v4: text("0.0.0.0"), v6: text("2001:db8::2"), mac: text("3c:ec:ef:00:00:01")},
		},
		{
			"the first channel with an address counts",
			fakeBMC{"2 3 0": {192, 0, 2, 9}, "2 5 0": mac, "8 3 0": {192, 0, 2, 10}, "8 5 0": {2, 2, 2, 2, 2, 2}},
			bmcAddresses{v4: text("192.0.2.9"), v6: text("::/0"), mac: text("3c:ec:ef:00:00:01")},
		},
		{
			"static IPv6 alone",
			fakeBMC{"1 51 0": {1}, "1 56 0": v6Entry(0, "::", 0), "1 56 1": v6Entry(1, "2001:db8::3", 0)},
			bmcAddresses{v4: text("0.0.0.0"), v6: text("2001:db8::3")},
		},
		{
			"IPv6 disabled",
			fakeBMC{"1 51 0": {0}, "1 56 0": v6Entry(0, "2001:db8::3", 0)},
			bmcAddresses{v4: text("0.0.0.0"), v6: text("::/0")},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got := ask(t, tt.bmc)
			if diff := cmp.Diff(tt.want, got, cmp.AllowUnexported(bmcAddresses{})); diff != "" {
				t.Errorf("addresses differ (-want +got):\n%s", diff)
			}
		})
	}
}

// asked records the requested parameters, and calls after with each.
type asked struct {
	fakeBMC
	queries []string
	after   func(query string)
	closed  bool
}

func (b *asked) LAN(channel, parameter, set byte) ([]byte, error) {
	query := fmt.Sprintf("%d %d %d", channel, parameter, set)
	b.queries = append(b.queries, query)
	if b.after != nil {
		b.after(query)
	}
	return b.fakeBMC.LAN(channel, parameter, set)
}

func (b *asked) Close() error {
	b.closed = true
	return nil
}

// Parameters that an earlier answer excludes are not requested, and none is requested after the time limit: some BMCs
// take seconds for each answer.
func TestAskBMCBriefly(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	b := &asked{fakeBMC: fakeBMC{
		"1 51 0": {2}, "1 59 0": v6Entry(0, "2001:db8::1", 3), "2 51 0": {0},
	}, after: func(query string) {
		if query == "3 3 0" {
			cancel()
		}
	}}
	var answers bmcAnswers
	answers.ask(ctx, b)
	want := []string{"1 3 0", "1 51 0", "1 59 0", "1 59 1", "1 56 0", "2 3 0", "2 51 0", "3 3 0", "3 51 0"}
	if diff := cmp.Diff(want, b.queries); diff != "" {
		t.Errorf("queries differ (-want +got):\n%s", diff)
	}
	if got, missing := answers.addresses(); got != (bmcAddresses{}) || missing == "" {
		t.Errorf("got %+v, missing %q, want nothing known", got, missing)
	}
}

// The connection is closed after the last answer.
func TestBMCAnswers(t *testing.T) {
	sys := tree(t, "testdata/qemu.tree")
	put(t, sys.Path, "dev/ipmi0", func(path string) error { return os.Symlink("/dev/null", path) })
	var log strings.Builder
	b := &asked{fakeBMC: fakeBMC{"1 3 0": {192, 0, 2, 9}}}
	s := New(Options{
		System: sys, Log: slog.New(slog.NewTextHandler(&log, nil)),
		BMC: opener(func(string) (BMC, error) { return b, nil }),
	})
	if got := s.bmc(t.Context()); got.v4 == nil || *got.v4 != "192.0.2.9" {
		t.Errorf("got %+v, want 192.0.2.9", got)
	}
	if !b.closed || log.Len() > 0 {
		t.Errorf("got closed %v and the log %q, want a closed connection and nothing logged", b.closed, &log)
	}
}

// A BMC that cannot be opened is not reported as too slow.
func TestBMCNotReachable(t *testing.T) {
	sys := tree(t, "testdata/qemu.tree")
	put(t, sys.Path, "dev/ipmi0", func(path string) error { return os.Symlink("/dev/null", path) })
	var log strings.Builder
	s := New(Options{
		System: sys, Log: slog.New(slog.NewTextHandler(&log, nil)),
		BMC: opener(func(string) (BMC, error) { return nil, errors.New("no such device or address") }),
	})
	if got := s.bmc(t.Context()); got != (bmcAddresses{}) {
		t.Errorf("got %+v, want nothing", got)
	}
	if got := log.String(); !strings.Contains(got, "no such device or address") || strings.Contains(got, "in time") {
		t.Errorf("got the log %q, want the error and no word of a time limit", got)
	}
}

// The BMC is found at every path that the driver's devices have, the lowest number first. One that cannot be opened is
// followed by the next.
//
// Parity: G10 (paths of the device)
func TestIPMIDevices(t *testing.T) {
	const broken = "ipmi3" // cannot be opened
	for _, tt := range []struct{ devices, others, want []string }{
		{devices: []string{"ipmi0"}, want: []string{"ipmi0"}},
		{devices: []string{"ipmi1"}, want: []string{"ipmi1"}},
		{devices: []string{"ipmi/0"}, want: []string{"ipmi/0"}},
		{devices: []string{"ipmi/12"}, want: []string{"ipmi/12"}},
		{devices: []string{"ipmidev/0"}, want: []string{"ipmidev/0"}},
		{devices: []string{"ipmidev/2"}, want: []string{"ipmidev/2"}},
		{devices: []string{"ipmi10", "ipmi2", "ipmi0"}, want: []string{"ipmi0", "ipmi2", "ipmi10"}},
		{devices: []string{"ipmi1", "ipmi/1", "ipmidev/0"}, want: []string{"ipmidev/0", "ipmi1", "ipmi/1"}},
		{devices: []string{"ipmi4", "ipmi3"}, want: []string{"ipmi3", "ipmi4"}},
		{devices: []string{"ipmi4", "xipmi0"}, others: []string{"ipmi0", "ipmi/readme"}, want: []string{"ipmi4"}},
		{devices: []string{"ipmi4", "ipmi0x", "ipmi-1"}, want: []string{"ipmi4"}},
	} {
		sys := tree(t, "testdata/qemu.tree")
		for _, name := range tt.devices {
			put(t, sys.Path, "dev/"+name, func(path string) error { return os.Symlink("/dev/null", path) })
		}
		for _, name := range tt.others {
			write(t, sys.Path, "dev/"+name, nil)
		}
		var want []string
		for _, name := range tt.want {
			want = append(want, sys.Dev(name))
		}
		if diff := cmp.Diff(want, IPMIDevices(sys)); diff != "" {
			t.Errorf("%q: devices differ (-want +got):\n%s", tt.devices, diff)
		}
		var opened []string
		s := New(Options{System: sys})
		s.o.BMC = opener(func(path string) (BMC, error) {
			opened = append(opened, path)
			if path == sys.Dev(broken) {
				return nil, errors.New("no such device or address")
			}
			return fakeBMC{"1 3 0": {192, 0, 2, 9}}, nil
		})
		if got := s.bmc(t.Context()); got.v4 == nil || *got.v4 != "192.0.2.9" {
			t.Errorf("%q: got %+v, want 192.0.2.9", tt.devices, got)
		}
		tries := 1
		if tt.want[0] == broken {
			tries = 2
		}
		if diff := cmp.Diff(want[:tries], opened); diff != "" {
			t.Errorf("%q: opened devices differ (-want +got):\n%s", tt.devices, diff)
		}
	}
}

// Without the character device of the driver, the BMC is not opened.
func TestNoIPMIDevice(t *testing.T) {
	for _, name := range []string{"", "dev/ipmi0"} {
		sys := tree(t, "testdata/qemu.tree")
		if name != "" {
			write(t, sys.Path, name, nil) // no device
		}
		s := New(Options{System: sys, BMC: opener(func(string) (BMC, error) { panic("the BMC was asked") })})
		if got := s.bmc(t.Context()); got != (bmcAddresses{}) {
			t.Errorf("%q: got %+v, want nothing", name, got)
		}
		select {
		case <-s.bmcEnded:
			t.Errorf("%q: the BMC was asked", name)
		default:
		}
	}
}

// The forms of an answer in table 23-3 of IPMI 2.0.
func TestLANData(t *testing.T) {
	for _, tt := range []struct {
		answer []byte
		want   string
		fails  bool
	}{
		{[]byte{0, 0x11, 192, 0, 2, 9}, "\xc0\x00\x02\x09", false},
		{[]byte{0, 0x11}, "", false},
		{[]byte{0x80}, "", true},
		{[]byte{0x80, 0x11, 192, 0, 2, 9}, "", true},
		{nil, "", true},
	} {
		got, err := lanData(tt.answer)
		if string(got) != tt.want || (err != nil) != tt.fails {
			t.Errorf("% x: got % x and %v, want % x and an error: %v", tt.answer, got, err, tt.want, tt.fails)
		}
	}
}

func TestSkipBMC(t *testing.T) {
	for _, tt := range []struct {
		skip bool
		want string
	}{{false, "192.0.2.9"}, {true, ""}} {
		sys := tree(t, "testdata/qemu.tree")
		// any character device makes the BMC's device present
		put(t, sys.Path, "dev/ipmi0", func(path string) error { return os.Symlink("/dev/null", path) })
		var cache node.Cache
		cache.SetSkipBMCDetect(tt.skip)
		s := New(Options{System: sys, Node: &cache, BMC: opener(func(string) (BMC, error) {
			return fakeBMC{"1 3 0": {192, 0, 2, 9}}, nil
		})})
		inv, err := s.Collect(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		got := ""
		if inv.BMCAddress != nil {
			got = *inv.BMCAddress
		}
		if got != tt.want {
			t.Errorf("skip %v: got BMC address %q, want %q", tt.skip, got, tt.want)
		}
	}
}

// stalled answers one query when release is closed.
type stalled struct {
	fakeBMC
	at      string
	release chan struct{}
}

func (b stalled) LAN(channel, parameter, set byte) ([]byte, error) {
	if fmt.Sprintf("%d %d %d", channel, parameter, set) == b.at {
		<-b.release
	}
	return b.fakeBMC.LAN(channel, parameter, set)
}

// If a BMC stops answering before the time limit, the inventory has its answers, the rest is unknown, and the log
// names it.
//
// Parity: G10
func TestPartialBMC(t *testing.T) {
	answers := fakeBMC{
		"3 3 0": {192, 0, 2, 9}, "3 5 0": {0x3c, 0xec, 0xef, 0, 0, 1}, "3 51 0": {2},
		"3 59 0": v6Entry(0, "2001:db8::2", 0),
	}
	text := func(s string) *string { return &s }
	v4, v6, mac := text("192.0.2.9"), text("2001:db8::2"), text("3c:ec:ef:00:00:01")
	for _, tt := range []struct {
		at   string // channel, parameter, set
		want bmcAddresses
		log  string
	}{
		{"1 3 0", bmcAddresses{}, `missing="IPv4 address, IPv6 address, MAC address of channels 1 to 11"`},
		{"3 5 0", bmcAddresses{v4: v4}, `missing="IPv6 address, MAC address of channels 3 to 11"`},
		{"3 51 0", bmcAddresses{v4: v4, mac: mac}, `missing="IPv6 address of channels 3 to 11"`},
		{"4 3 0", bmcAddresses{v4: v4, v6: v6, mac: mac}, ""},
	} {
		t.Run(tt.at, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				sys := tree(t, "testdata/qemu.tree")
				put(t, sys.Path, "dev/ipmi0", func(path string) error { return os.Symlink("/dev/null", path) })
				var log strings.Builder
				s := New(Options{System: sys, Log: slog.New(slog.NewTextHandler(&log, nil))})
				release := make(chan struct{})
				defer close(release)
				s.o.BMC = opener(func(string) (BMC, error) { return stalled{answers, tt.at, release}, nil })
				got := s.bmc(t.Context())
				if diff := cmp.Diff(tt.want, got, cmp.AllowUnexported(bmcAddresses{})); diff != "" {
					t.Errorf("addresses differ (-want +got):\n%s", diff)
				}
				if got := log.String(); tt.log == "" && got != "" || !strings.Contains(got, tt.log) {
					t.Errorf("got log %q, want %s", got, tt.log)
				}
			})
		})
	}
}

// recorded are answers as a BMC sends them: completion code, parameter revision, data. The answer to other requests is
// 0x80, "parameter not supported".
type recorded map[string][]byte

func (r recorded) LAN(channel, parameter, set byte) ([]byte, error) {
	if answer, ok := r[fmt.Sprintf("%d %d %d", channel, parameter, set)]; ok {
		return lanData(answer)
	}
	return lanData([]byte{0x80})
}

func (recorded) Close() error { return nil }

// The answers of a BMC whose channel 1 is a shared port without an address and whose channel 8 is its own.
//
// Parity: G10
func TestRecordedBMC(t *testing.T) {
	got := ask(t, recorded{
		"1 3 0":  {0, 0x11, 0, 0, 0, 0},
		"1 5 0":  {0, 0x11, 0x3c, 0xec, 0xef, 0x7a, 0, 1},
		"2 3 0":  {0xcc},
		"3 3 0":  {},
		"8 3 0":  {0, 0x11, 10, 20, 30, 40},
		"8 5 0":  {0, 0x11, 0x3c, 0xec, 0xef, 0x7a, 0, 2},
		"8 51 0": {0, 0x11, 2},
		"8 59 0": {0, 0x11, 0, 0x82, 0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x40, 64, 0},
	})
	text := func(s string) *string { return &s }
	want := bmcAddresses{v4: text("10.20.30.40"), v6: text("2001:db8::40"), mac: text("3c:ec:ef:7a:00:02")}
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(bmcAddresses{})); diff != "" {
		t.Errorf("addresses differ (-want +got):\n%s", diff)
	}
}

// chatter answers every request with the same bytes.
type chatter []byte

func (c chatter) LAN(byte, byte, byte) ([]byte, error) { return lanData(c) }

func (chatter) Close() error { return nil }

func FuzzAskBMC(f *testing.F) {
	f.Add([]byte{0, 0x11, 10, 20, 30, 40})
	f.Add([]byte{0, 0x11, 2})
	f.Add([]byte{0, 0x11, 0, 0x82, 0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x40, 64, 0})
	f.Fuzz(func(t *testing.T, answer []byte) {
		if got := ask(t, chatter(answer)); got.v4 == nil || got.v6 == nil {
			t.Errorf("got %+v, want an address or the word for none", got)
		}
	})
}

// A panic in the answer of a BMC counts as an unreachable BMC.
func TestBMCContainsPanics(t *testing.T) {
	testenv.ExpectPanics(t)
	sys := tree(t, "testdata/qemu.tree")
	put(t, sys.Path, "dev/ipmi0", func(path string) error { return os.Symlink("/dev/null", path) })
	s := New(Options{System: sys})
	s.o.BMC = opener(func(string) (BMC, error) { panic("oops") })
	if got := s.bmc(t.Context()); got != (bmcAddresses{}) {
		t.Errorf("got addresses %v, want none", got)
	}
}

// opener implements [BMCOpener].
type opener func(path string) (BMC, error)

func (o opener) OpenBMC(path string) (BMC, error) { return o(path) }
