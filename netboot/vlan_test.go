package netboot

import (
	"net"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestParseVLANs(t *testing.T) {
	for text, want := range map[string]struct {
		vlans []VLAN
		errs  []string // what the error has to name
	}{
		"":                                      {},
		"eth0.100":                              {vlans: []VLAN{{"eth0", 100}}},
		"eth0.100, eth1 ,eth2.4094,":            {vlans: []VLAN{{"eth0", 100}, {"eth1", 0}, {"eth2", 4094}}},
		"all":                                   {vlans: []VLAN{{}}},
		"ALL":                                   {vlans: []VLAN{{}}},
		"52:54:00:AB:cd:01.7":                   {vlans: []VLAN{{"52:54:00:AB:cd:01", 7}}},
		"52:54:00:AB:cd:01":                     {vlans: []VLAN{{"52:54:00:AB:cd:01", 0}}},
		"eth0.0,eth0.4095,eth0.x,eth1.5":        {vlans: []VLAN{{"eth1", 5}}, errs: []string{`"eth0.0"`, `"eth0.4095"`, `"eth0.x"`}},
		"eth0.1.2,eth0.-1,.5,eth0.,a/b.1":       {errs: []string{`"eth0.1.2"`, `"eth0.-1"`, `".5"`, `"eth0."`, `"a/b.1"`}},
		"interface-with-a-long-name,aa:bb:cc.1": {errs: []string{"interface-with-a-long-name", "aa:bb:cc"}},
	} {
		t.Run(text, func(t *testing.T) {
			got, err := ParseVLANs(text)
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

func FuzzParseVLANs(f *testing.F) {
	for _, seed := range []string{"eth0.100", "all,52:54:00:ab:cd:01.7", "eth0,eth1.4095", ".,.."} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		vlans, err := ParseVLANs(text)
		for _, v := range vlans {
			if v.ID < 0 || v.ID > maxVLANID || strings.ContainsAny(v.Link, "./ ,") {
				t.Errorf("got %+v", v)
			}
		}
		if err == nil && len(vlans) == 0 && strings.Trim(text, ", \t\n\v\f\r\u0085\u00a0") != "" && !strings.ContainsFunc(text, func(r rune) bool { return r > 127 }) {
			t.Errorf("%q is neither used nor complained of", text)
		}
	})
}

// Each link gets what is asked for by its name, by its MAC address and for all links, and of what is announced only
// what is asked for.
func TestWantedVLANs(t *testing.T) {
	n := &Network{vlans: []VLAN{{"eth0", 100}, {"52:54:00:00:00:0B", 7}, {"eth2", 0}, {"52:54:00:00:00:0d", 0}}}
	links := map[string]*link{}
	for i, name := range []string{"eth0", "eth1", "eth2", "eth3"} {
		l := newLink(n, i+1)
		l.state.Name, l.state.MAC = name, net.HardwareAddr{0x52, 0x54, 0, 0, 0, byte(0x0a + i)}
		l.announcedVLANs = []int{20, 30}
		links[name] = l
	}
	check := func(want map[string][]int) {
		t.Helper()
		for name, l := range links {
			if got := l.wantedVLANs(); !slices.Equal(got, want[name]) {
				t.Errorf("%s: got VLANs %v, want %v", name, got, want[name])
			}
		}
	}
	check(map[string][]int{"eth0": {100}, "eth1": {7}, "eth2": {20, 30}, "eth3": {20, 30}})
	n.vlans = []VLAN{{}}
	check(map[string][]int{"eth0": {20, 30}, "eth1": {20, 30}, "eth2": {20, 30}, "eth3": {20, 30}})
}

func TestLongVLANName(t *testing.T) {
	if err := addVLAN(1, "enp129s0f0np0.100", 100); err == nil || !strings.Contains(err.Error(), "enp129s0f0np0.100") {
		t.Errorf("got %v, want an error that names the interface", err)
	}
}
