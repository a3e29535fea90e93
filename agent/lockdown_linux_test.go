package agent

import (
	"errors"
	"net"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"ironroot/agent/config"
	"ironroot/internal/test/testenv"
	"ironroot/internal/test/testenv/nettest"
)

// An ordinary process takes links down only with --destructive.
func TestLockdownOfAnOrdinaryProcess(t *testing.T) {
	testenv.Programs(t, "ip")
	nettest.EnterNamespace(t)
	for _, args := range []string{"link add one type veth peer name two", "link set one up", "link set two up"} {
		testenv.Run(t, "ip", strings.Fields(args)...)
	}
	up := newAgent(Options{Config: &config.Config{}, Destructive: true})
	withoutCapabilities(t, func() {
		err := up.networkDown(t.Context())
		if !errors.Is(err, unix.EPERM) || !strings.Contains(err.Error(), "link one down") {
			t.Errorf("links that cannot be taken down: got %v, want an error for each link", err)
		}
	})
	for _, destructive := range []bool{false, true} {
		a := newAgent(Options{Config: &config.Config{}, Destructive: destructive})
		if err := a.networkDown(t.Context()); err != nil {
			t.Fatal(err)
		}
		links, err := net.Interfaces()
		if err != nil || len(links) != 3 {
			t.Fatalf("got links %v, %v, want lo and two more", links, err)
		}
		for _, link := range links {
			if up := link.Flags&net.FlagUp != 0; link.Name != "lo" && up == destructive {
				t.Errorf("destructive %v: link %s is up: %v", destructive, link.Name, up)
			}
		}
	}
}

// withoutCapabilities calls a function while this thread has no effective capabilities.
func withoutCapabilities(t *testing.T, function func()) {
	t.Helper()
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var all [2]unix.CapUserData
	if err := unix.Capget(&header, &all[0]); err != nil {
		t.Fatal(err)
	}
	none := all
	none[0].Effective, none[1].Effective = 0, 0
	if err := unix.Capset(&header, &none[0]); err != nil {
		t.Fatal(err)
	}
	function()
	if err := unix.Capset(&header, &all[0]); err != nil {
		t.Fatal(err)
	}
}
