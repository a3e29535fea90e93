package inventory

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// fakeBMC answers by "channel parameter set"; anything else is an error, as a BMC without that channel gives it.
type fakeBMC map[string][]byte

func (b fakeBMC) lan(channel, parameter, set byte) ([]byte, error) {
	if data, ok := b[fmt.Sprintf("%d %d %d", channel, parameter, set)]; ok {
		return data, nil
	}
	return nil, errors.New("completion code 0xcc")
}

func (fakeBMC) Close() error { return nil }

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
			"IPv6 disabled",
			fakeBMC{"1 51 0": {0}, "1 56 0": v6Entry(0, "2001:db8::3", 0)},
			bmcAddresses{v4: text("0.0.0.0"), v6: text("::/0")},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got := askBMC(t.Context(), tt.bmc)
			if diff := cmp.Diff(tt.want, got, cmp.AllowUnexported(bmcAddresses{})); diff != "" {
				t.Errorf("addresses differ (-want +got):\n%s", diff)
			}
		})
	}
}

func TestSkipBMC(t *testing.T) {
	for _, tt := range []struct {
		skip bool
		want string
	}{{false, "192.0.2.9"}, {true, ""}} {
		sys := tree(t, "testdata/qemu.tree")
		// any character device will do for the look whether there is one
		put(t, sys.Root, "dev/ipmi0", func(path string) error { return os.Symlink("/dev/null", path) })
		s := New(Options{System: sys, SkipBMC: func() bool { return tt.skip }})
		s.ipmi = func() (bmc, error) { return fakeBMC{"1 3 0": {192, 0, 2, 9}}, nil }
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
