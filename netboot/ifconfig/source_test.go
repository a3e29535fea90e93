//go:build linux

package ifconfig

import (
	"net/netip"
	"strings"
	"testing"
)

// The data that a source applies replace its former data, which are removed even if the new ones cannot be applied.
func TestSource(t *testing.T) {
	index, inside := newNIC(t)
	if !inside {
		return
	}
	config := func(address, destination, gateway string) Config {
		return Config{Addresses: []netip.Prefix{netip.MustParsePrefix(address)}, Routes: []Route{
			{Destination: netip.MustParsePrefix(destination), Gateway: netip.MustParseAddr(gateway)},
		}}
	}
	s := NewSource(index)
	if err := s.Replace(600, config("192.0.2.5/24", "10.1.0.0/16", "192.0.2.1")); err != nil {
		t.Fatal(err)
	}
	checkPresent(t, index, "IPv4", "address 192.0.2.5/24", "route 10.1.0.0/16 via 192.0.2.1 src 192.0.2.5 metric 600",
		"route 192.0.2.0/24 via <nil> src 192.0.2.5 metric 600")
	if err := s.Replace(600, config("192.0.2.6/24", "10.2.0.0/16", "192.0.2.255")); err == nil {
		t.Error("broadcast address as a gateway: got no error")
	}
	if got := s.Config(); len(got.Addresses) != 2 || len(got.Routes) != 2 {
		t.Errorf("after a failure: got %+v, want both configurations", got)
	}
	if err := s.Clear(); err != nil {
		t.Fatal(err)
	}
	checkPresent(t, index, "IPv4 cleared")

	// Of IPv6 the kernel keeps routes without their address.
	v6 := config("2001:db8::5/64", "2001:db8:1::/48", "2001:db8::1")
	s.ApplyParts(700, v6, func(part string, err error) { t.Errorf("%s: %v", part, err) })
	checkPresent(t, index, "IPv6", "address 2001:db8::5/64",
		"route 2001:db8:1::/48 via 2001:db8::1 src <nil> metric 700",
		"route 2001:db8::/64 via <nil> src <nil> metric 700")
	if err := s.Clear(); err != nil {
		t.Fatal(err)
	}
	checkPresent(t, index, "IPv6 parts cleared")
	if err := s.Replace(600, v6); err != nil {
		t.Fatal(err)
	}
	if err := s.Clear(); err != nil {
		t.Fatal(err)
	}
	checkPresent(t, index, "IPv6 cleared")
	if got := s.Config(); len(got.Addresses) != 0 || len(got.Routes) != 0 {
		t.Errorf("after Clear: got %+v, want nothing", got)
	}
	if err := s.Replace(600, Config{MTU: 1 << 20}); err == nil ||
		!strings.HasPrefix(err.Error(), "set MTU 1048576, is 1500: ") {
		t.Errorf("impossible MTU: got %v, want an error that names both values", err)
	}

	gone := NewSource(1 << 20)
	for want, c := range map[string]Config{
		"add address 192.0.2.5/24: ":  config("192.0.2.5/24", "10.1.0.0/16", "192.0.2.1"),
		"keep address 192.0.2.5/24: ": {Expiring: []Expiring{{Prefix: netip.MustParsePrefix("192.0.2.5/24")}}},
		"read MTU: ":                  {MTU: 1400},
	} {
		if err := gone.Replace(600, c); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("interface that does not exist: got %v, want an error that begins with %q", err, want)
		}
	}
	if got := gone.Config().MTU; got != 1400 {
		t.Errorf("after a failure: got MTU %d, want 1400, which the interface may have", got)
	}
	if err := gone.Clear(); err != nil {
		t.Errorf("interface that is gone: got %v, want no error", err)
	}
}
