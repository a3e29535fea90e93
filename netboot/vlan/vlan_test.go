//go:build linux

package vlan

import (
	"net"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"ironroot/internal/test/testenv/nettest"
)

func TestParse(t *testing.T) {
	for text, want := range map[string]struct {
		vlans []Request
		errs  []string // what the error has to name
	}{
		"":                           {},
		"eth0.100":                   {vlans: []Request{{"eth0", 100}}},
		"eth0.100, eth1 ,eth2.4094,": {vlans: []Request{{"eth0", 100}, {"eth1", 0}, {"eth2", 4094}}},
		"all":                        {vlans: []Request{{}}},
		"ALL":                        {vlans: []Request{{}}},
		"52:54:00:AB:cd:01.7":        {vlans: []Request{{"52:54:00:AB:cd:01", 7}}},
		"52:54:00:AB:cd:01":          {vlans: []Request{{"52:54:00:AB:cd:01", 0}}},
		"eth0.0,eth0.4095,eth0.x,eth1.5": {
			vlans: []Request{{"eth1", 5}}, errs: []string{`"eth0.0"`, `"eth0.4095"`, `"eth0.x"`},
		},
		"eth0.1.2,eth0.-1,.5,eth0.,a/b.1": {
			errs: []string{`"eth0.1.2"`, `"eth0.-1"`, `".5"`, `"eth0."`, `"a/b.1"`},
		},
		"interface-with-a-long-name,aa:bb:cc.1": {errs: []string{"interface-with-a-long-name", "aa:bb:cc"}},
	} {
		t.Run(text, func(t *testing.T) {
			got, err := Parse(text)
			if diff := cmp.Diff(want.vlans, got); diff != "" {
				t.Errorf("VLANs (-want +got):\n%s", diff)
			}
			if (err != nil) != (want.errs != nil) {
				t.Fatalf("got error %v, want one: %v", err, want.errs != nil)
			}
			for _, part := range want.errs {
				if !strings.Contains(err.Error(), part) {
					t.Errorf("got error %v, want it to name %s", err, part)
				}
			}
		})
	}
}

func FuzzParse(f *testing.F) {
	for _, seed := range []string{"eth0.100", "all,52:54:00:ab:cd:01.7", "eth0,eth1.4095", ".,.."} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		vlans, err := Parse(text)
		for _, v := range vlans {
			if v.ID < 0 || v.ID > maxID || strings.ContainsAny(v.Link, "./ ,") {
				t.Errorf("got %+v", v)
			}
		}
		if err == nil && len(vlans) == 0 && strings.Trim(text, ", \t\n\v\f\r\u0085\u00a0") != "" &&
			!strings.ContainsFunc(text, func(r rune) bool { return r > 127 }) {
			t.Errorf("%q is neither used nor complained of", text)
		}
	})
}

// Each link gets what is asked for by its name, by its MAC address and for all links, and of what is announced only
// what is asked for.
func TestWantedVLANs(t *testing.T) {
	v := NewSet([]Request{{"eth0", 100}, {"52:54:00:00:00:0B", 7}, {"eth2", 0}, {"52:54:00:00:00:0d", 0}})
	check := func(want map[string][]int) {
		t.Helper()
		for i, name := range []string{"eth0", "eth1", "eth2", "eth3"} {
			mac := net.HardwareAddr{0x52, 0x54, 0, 0, 0, byte(0x0a + i)}
			if got := v.On(name, mac, []int{20, 30}); !slices.Equal(got, want[name]) {
				t.Errorf("%s: got VLANs %v, want %v", name, got, want[name])
			}
		}
	}
	check(map[string][]int{"eth0": {100}, "eth1": {7}, "eth2": {20, 30}, "eth3": {20, 30}})
	v.wanted = []Request{{}}
	check(map[string][]int{"eth0": {20, 30}, "eth1": {20, 30}, "eth2": {20, 30}, "eth3": {20, 30}})
}

func TestLongName(t *testing.T) {
	if err := Add(1, "enp129s0f0np0.100", 100); err == nil || !strings.Contains(err.Error(), "enp129s0f0np0.100") {
		t.Errorf("got %v, want an error that names the interface", err)
	}
}

// A VLAN on a missing interface is an error. A VLAN whose name exists is none.
func TestAdd(t *testing.T) {
	l, inside := nettest.New(t)
	if !inside {
		return
	}
	if err := Add(1<<20, "x.5", 5); err == nil {
		t.Error("missing interface: got no error")
	}
	if err := Add(l.Bridge("br0"), "br0", 5); err != nil {
		t.Errorf("VLAN whose name exists: got %v, want no error", err)
	}
}

// An interface counts as created before the kernel reports it, and only by its name.
func TestCreate(t *testing.T) {
	if _, inside := nettest.New(t); !inside {
		return
	}
	s := NewSet(nil)
	if name, err := s.Create(1<<20, "x", 5); name != "x.5" || err == nil ||
		!strings.HasPrefix(err.Error(), "create VLAN 5: ") {
		t.Errorf("missing interface: got %q, %v, want x.5 and an error that names the VLAN", name, err)
	}
	if !s.Created("x.5") || s.Created("x.6") {
		t.Errorf("got x.5 created %v, x.6 created %v, want true, false", s.Created("x.5"), s.Created("x.6"))
	}
}

// The name of a VLAN fits the kernel's limit of 15 bytes.
func TestName(t *testing.T) {
	for parent, want := range map[string]string{"eth0": "eth0.100", "enp129s0f0np0": "enp129s0f0n.100"} {
		if got := Name(parent, 100); got != want {
			t.Errorf("%s: got %q, want %q", parent, got, want)
		}
	}
}
