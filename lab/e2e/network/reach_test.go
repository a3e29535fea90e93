//go:build linux

package network

import (
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"ironroot/internal/test/testenv"
	"ironroot/lab/e2e/rig"
	"ironroot/lab/qemu"
	"ironroot/netboot/sntp/sntptest"
)

// checkCallback checks that the callback URL is an address of the network.
func checkCallback(t *testing.T, s *rig.Site, network string) {
	t.Helper()
	url, _ := s.Node.Callback()
	host, found := strings.CutPrefix(url, "https://")
	address, err := netip.ParseAddrPort(host)
	if !found || err != nil || address.Port() != rig.AgentPort ||
		!netip.MustParsePrefix(network).Contains(address.Addr()) {
		t.Errorf("callback URL: got %s, want https://, an address of %s and port %d", url, network, rig.AgentPort)
	}
	answers(t, s)
}

// TestTwoNetworks boots a machine with two cards and a router on each network. The default route leads to the first
// router, which silently drops packets to Ironic's first URL; the second URL is on the second network.
//
// Parity: B11
func TestTwoNetworks(t *testing.T) {
	t.Parallel()
	macs := []string{"52:54:00:e2:e0:31", "52:54:00:e2:e0:32"}
	s := rig.NewSite(t)
	nics := []qemu.NIC{
		{MAC: macs[0], Netdev: s.Tap("wrong", "198.51.100.1/24")},
		{MAC: macs[1], Netdev: s.Tap("right", "192.0.2.1/24")},
	}
	s.Dnsmasq("--interface=wrong", "--interface=right", "--dhcp-range=198.51.100.10,198.51.100.20,1h",
		"--dhcp-range=192.0.2.10,192.0.2.20,1h")
	s.StartIronic(netip.MustParseAddr("192.0.2.1"), macs[0], time.Minute)
	s.BootAs(qemu.Config{NICs: nics}, "ipa-insecure=1 ipa-api-url=https://203.0.113.1:6385,"+s.Ironic.URL())
	s.WaitAgent(t)
	checkCallback(t, s, "192.0.2.0/24")
	// The silent URL costs little time: after a time-out the log would name it.
	silent := regexp.MustCompile(`unreachable.*203\.0\.113\.1.*`).FindString(s.Machine.Console().String())
	if silent != "" {
		t.Errorf("the silent URL was waited for to the end: %s", silent)
	}
}

// announcement is the format of a service file of avahi-daemon.
const announcement = `<?xml version="1.0" standalone='no'?><!DOCTYPE service-group SYSTEM "avahi-service.dtd">
<service-group><name>%s</name><service><type>_openstack._tcp</type><port>%d</port>%s</service></service-group>`

// avahi announces a service on one interface with one address family only. Its files are in a directory of the test,
// and everything that it writes in its own mount namespace.
func avahi(s *rig.Site, link, family, service string, port int, text ...string) {
	s.T.Helper()
	testenv.Programs(s.T, "avahi-daemon", "unshare")
	dir := s.T.TempDir()
	var records strings.Builder
	for _, record := range text {
		fmt.Fprintf(&records, "<txt-record>%s</txt-record>", record)
	}
	other := map[string]string{"ipv4": "ipv6", "ipv6": "ipv4"}[family]
	for name, content := range map[string]string{
		"services/a.service": fmt.Sprintf(announcement, service, port, records.String()),
		"avahi.conf": fmt.Sprintf("[server]\nhost-name=%s\nenable-dbus=no\nallow-interfaces=%s\nuse-%s=no\n[publish]\n"+
			"publish-aaaa-on-ipv4=no\npublish-a-on-ipv6=no\n", service, link, other),
	} {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			s.T.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			s.T.Fatal(err)
		}
	}
	s.Run("unshare", "--mount", "sh", "-ec", `mount --bind "$1/services" /etc/avahi/services
		mount -t tmpfs run /run
		exec avahi-daemon -f "$1/avahi.conf" --no-drop-root --no-chroot --no-rlimits`, "sh", dir)
}

// TestMulticastDNS boots a machine without a configured address: Ironic is announced on one card by IPv4, and the
// inspection callback on another one by IPv6. Of the announced options only the allowed one is applied: a time
// server, which corrects an implausible system clock but not the hardware clock. The callback URL has the
// address of the interface that the operator names.
//
// Parity: B16, B11 (network_interface)
func TestMulticastDNS(t *testing.T) {
	t.Parallel()
	macs := []string{"52:54:00:e2:e0:33", "52:54:00:e2:e0:34"}
	s := rig.NewSite(t)
	nics := []qemu.NIC{
		{MAC: macs[0], Netdev: s.Tap("four", "192.0.2.1/24")},
		{MAC: macs[1], Netdev: s.Tap("six", "198.51.100.1/24", "2001:db8::1/64")},
	}
	s.Dnsmasq("--interface=four", "--interface=six", "--enable-ra",
		"--dhcp-range=192.0.2.10,192.0.2.20,1h", "--dhcp-range=198.51.100.10,198.51.100.20,1h",
		"--dhcp-range=2001:db8::,ra-only")
	s.StartIronic(netip.MustParseAddr("192.0.2.1"), macs[0], time.Minute)
	conn, err := s.NS.ListenPacket(t.Context(), "udp", "192.0.2.1:123")
	if err != nil {
		t.Fatal(err)
	}
	clock := sntptest.Serve(t, conn, sntptest.Reply{})
	posted := inspector(s, "[2001:db8::1]:5050")
	avahi(s, "four", "ipv4", "baremetal", s.Ironic.Port(), "protocol=https", "ipa_ntp_server=192.0.2.1",
		"ipa_advertise_port=1", "ipa_listen_port=2")
	avahi(s, "six", "ipv6", "baremetal-introspection", 5050, "protocol=http", "ipa_api_url=http://192.0.2.66")
	wrong := []string{"-rtc", "base=2010-05-04T03:02:01,clock=host"} // a plausible clock would be kept
	s.BootAs(qemu.Config{NICs: nics, Extra: wrong},
		"ipa-insecure=1 ipa-api-url=mdns ipa-inspection-callback-url=mdns ipa-inspection-collectors=default "+
			"ipa-network-interface=eth1")
	select {
	case path := <-posted:
		if path != "/v1/continue" {
			t.Errorf("inspection data went to %s, want /v1/continue", path)
		}
	case <-rig.Soon(t).Done():
		t.Fatal("no inspection data came")
	}
	s.WaitAgent(t)
	checkCallback(t, s, "198.51.100.0/24")
	if clock.Asked() == 0 {
		t.Error("the time server of the announcement was not asked: its option is allowed")
	}
	checkClock(t, s, 0)
	if year := hardwareClock(t, s).Year(); year != 2010 {
		t.Errorf("the hardware clock stands in %d, want 2010: anybody could have announced the time server", year)
	}
	for _, option := range []string{"advertise_port", "listen_port", "api_url"} {
		s.Follow(t, `not allowed.*option=`+option)
	}
}

// inspector serves the inspection callback at an address of the namespace. The channel receives the path of the first
// inspection data.
func inspector(s *rig.Site, address string) <-chan string {
	s.T.Helper()
	listener, err := s.NS.Listen(s.T.Context(), "tcp", address)
	if err != nil {
		s.T.Fatal(err)
	}
	posted := make(chan string, 1)
	server := &http.Server{
		ReadHeaderTimeout: time.Minute, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body)
			w.WriteHeader(http.StatusAccepted)
			_, _ = io.WriteString(w, `{"uuid": "`+s.Node.UUID()+`"}`)
			select {
			case posted <- r.URL.Path:
			default:
			}
		}),
	}
	go server.Serve(listener) //nolint:errcheck // ends with Close
	s.T.Cleanup(func() { _ = server.Close() })
	return posted
}
