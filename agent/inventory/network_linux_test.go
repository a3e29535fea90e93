package inventory

import (
	"bytes"
	"log/slog"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"ironroot/internal/test/testenv/nettest"
)

func TestModeSpeed(t *testing.T) {
	for name, want := range map[string]int{
		"10baseT/Half": 10, "10000baseT/Full": 10000, "400000baseSR8/Full": 400000, "TP": 0, "": 0,
	} {
		if got := modeSpeed(name); got != want {
			t.Errorf("modeSpeed(%q): got %d, want %d", name, got, want)
		}
	}
}

// The running kernel's links, in a network namespace that has one more: its addresses are the first of each family.
func TestKernelNetwork(t *testing.T) {
	nettest.EnterNamespace(t)
	attributes := netlink.NewLinkAttrs()
	attributes.Name = "nic0"
	if err := netlink.LinkAdd(&netlink.Veth{LinkAttrs: attributes, PeerName: "switch0"}); err != nil {
		t.Fatal(err)
	}
	for name, addresses := range map[string][]string{
		"lo": {"127.0.0.1/8"}, "nic0": {"192.0.2.7/24", "192.0.2.8/24", "2001:db8::7/64"},
	} {
		link, err := netlink.LinkByName(name)
		if err != nil {
			t.Fatal(err)
		}
		for _, text := range addresses {
			address, err := netlink.ParseAddr(text)
			if err != nil {
				t.Fatal(err)
			}
			address.Flags = unix.IFA_F_NODAD
			if err := netlink.AddrAdd(link, address); err != nil {
				t.Fatalf("add %s to %s: %v", text, name, err)
			}
		}
	}
	var log bytes.Buffer
	facts, err := kernelNetwork{slog.New(slog.NewTextHandler(&log, nil))}.facts(t.Context())
	if err != nil || log.Len() > 0 {
		t.Fatalf("got %v and the log %q, want neither", err, &log)
	}
	for name, want := range map[string]linkFacts{
		"lo": {ipv4: "127.0.0.1"}, "nic0": {ipv4: "192.0.2.7", ipv6: "2001:db8::7"}, "switch0": {},
	} {
		got, known := facts[name]
		got.permanent = nil // newer kernels report one
		if diff := cmp.Diff(want, got, cmp.AllowUnexported(linkFacts{})); diff != "" || !known {
			t.Errorf("%s differs (-want +got):\n%s", name, diff)
		}
	}
	// A virtual Ethernet cable has an empty list of link modes.
	speeds, err := linkSpeeds()
	if _, known := speeds["nic0"]; err != nil || !known {
		t.Errorf("link speeds: got %v and %v, want nic0 in it", speeds, err)
	}
}
