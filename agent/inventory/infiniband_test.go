package inventory

import (
	"net"
	"testing"

	"github.com/google/go-cmp/cmp"

	"ironroot/agent/inventory/machinetest"
)

// Parity: F7
func TestInfiniBand(t *testing.T) {
	sys := machinetest.System(t, "hpe-dl360-gen10")
	text := func(s string) *string { return &s }
	want := Interface{
		Name: "ib0", MACAddress: "7c:fe:90:29:26:52", IPv4Address: text("192.0.2.7"), HasCarrier: true,
		Vendor: text("0x15b3"), Product: text("0x1013"),
		ClientID: text("ff:00:00:00:00:00:02:00:00:02:c9:00:7c:fe:90:03:00:29:26:52"),
	}
	s := New(Options{System: sys})
	for name, permanent := range map[string]net.HardwareAddr{
		"of the link": nil,
		"permanent":   {0xa0, 0, 2, 0x20, 0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0x7c, 0xfe, 0x90, 3, 0, 0x29, 0x26, 0x52},
	} {
		s.net = fakeNetwork{"ib0": {permanent: permanent, ipv4: "192.0.2.7", ipv6: "fe80::1%ib0", speedMbps: 100000}}
		list, err := s.Interfaces(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, list[len(list)-1]); diff != "" {
			t.Errorf("address %s: interface differs (-want +got):\n%s", name, diff)
		}
	}
	// In Ethernet mode the same adapter is an interface like any other.
	machinetest.Write(t, sys, "sys/class/net/ib0/address", "7c:fe:90:29:26:52\n")
	s.net = noNetwork{}
	list, err := s.Interfaces(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if got := list[len(list)-1]; got.ClientID != nil || got.PCIAddress == nil || *got.Driver != "mlx5_core" {
		t.Errorf("Ethernet mode: got %+v, want a driver, a PCI address and no client id", got)
	}
}
