package netboot

import (
	"errors"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"ironroot/netboot/lldp"
)

func TestReport(t *testing.T) {
	now := time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)
	before := func(d time.Duration) time.Time { return now.Add(-d) }
	mac := net.HardwareAddr{0x52, 0x54, 0, 0x12, 0x34, 0x56}
	asked := Attempts{Since: before(31 * time.Second), Sent: 5}
	rejected := asked
	rejected.Rejected = "subnet mask 00000000 of address 192.0.2.5 is not plausible"
	refused := errors.New("no answer from a DHCP server")
	for name, c := range map[string]struct {
		link Link
		want string
	}{
		"down": {Link{History: History{Found: before(time.Minute)}}, "eth0 (52:54:00:12:34:56): down for 1m0s|DHCP: not asked yet"},
		"no cable": {
			Link{Up: true, History: History{Carrier: before(2 * time.Second), DHCP: asked}},
			"eth0 (52:54:00:12:34:56): no carrier for 2s; check the cable and the switch's port|DHCP: asked 5 times in 31s, no answer",
		},
		"no server": {
			Link{Up: true, Carrier: true, History: History{
				Carrier: before(40 * time.Second), DHCP: asked, Neighbour: lldp.Neighbour{System: "leaf1", Port: "swp7"},
				LastErr: refused, LastErrAt: before(3 * time.Second),
			}},
			"eth0 (52:54:00:12:34:56): carrier for 40s, neighbour leaf1, port swp7|DHCP: asked 5 times in 31s, no answer|" +
				"IPv6: no router heard|latest failure, 3s ago: no answer from a DHCP server",
		},
		"lying server": {
			Link{Up: true, Carrier: true, History: History{DHCP: rejected, DHCP6: Attempts{Since: before(time.Second), Sent: 1}, Router: now}},
			"eth0 (52:54:00:12:34:56): carrier, no LLDP neighbour heard|" +
				"DHCP: asked 5 times in 31s, latest answer not used: subnet mask 00000000 of address 192.0.2.5 is not plausible|" +
				"DHCPv6: asked 1 time in 1s, no answer",
		},
		"leased": {
			Link{
				Up: true, Carrier: true, Addresses: []netip.Prefix{netip.MustParsePrefix("2001:db8::5/64"), netip.MustParsePrefix("fe80::5/64")},
				Lease: &Lease{
					Address: netip.MustParsePrefix("192.0.2.5/24"), Server: addr("192.0.2.1"),
					Routes: []Route{{netip.MustParsePrefix("0.0.0.0/0"), addr("192.0.2.254")}},
				},
			},
			"eth0 (52:54:00:12:34:56): carrier, no LLDP neighbour heard|DHCP: 192.0.2.5/24 of server 192.0.2.1, router 192.0.2.254|IPv6: 2001:db8::5/64",
		},
		"router without addresses": {
			Link{Up: true, Carrier: true, Lease: &Lease{Address: netip.MustParsePrefix("192.0.2.5/24"), Server: addr("192.0.2.1")}, History: History{Router: now}},
			"eth0 (52:54:00:12:34:56): carrier, no LLDP neighbour heard|DHCP: 192.0.2.5/24 of server 192.0.2.1, no router|" +
				"IPv6: a router is there, but offers no address",
		},
	} {
		t.Run(name, func(t *testing.T) {
			c.link.Name, c.link.MAC = "eth0", mac
			got := Report([]Link{c.link}, now)
			if diff := cmp.Diff(strings.Split(c.want, "|"), unindented(got)); diff != "" {
				t.Errorf("lines (-want +got):\n%s", diff)
			}
		})
	}
	if got := Report(nil, now); len(got) != 1 {
		t.Errorf("no links: got %q, want one line", got)
	}
}

// unindented takes the indentation off all lines but the first, which has to have none.
func unindented(lines []string) []string {
	for i := range lines[1:] {
		lines[i+1] = strings.TrimPrefix(lines[i+1], "  ")
	}
	return lines
}

// A network without DHCPv4 is no fault of the link: what was tried is told, and that nothing is wrong.
func TestIPv6OnlyLinkIsWell(t *testing.T) {
	l, inside := inNamespace(t, "dnsmasq")
	if !inside {
		return
	}
	l.cable("nic0", "2001:db8:1::1/64")
	l.cable("silent", "")
	l.neighbour("nic0", "leaf")
	l.dnsmasq("--interface=peer-nic0", "--enable-ra", "--dhcp-range=2001:db8:1::,ra-only")
	n := l.start()
	failed := func(name string) func(map[string]Link) bool {
		return func(links map[string]Link) bool { return links[name].History.LastErr != nil }
	}
	l.until(n, "the silent link fails", failed("silent"))
	l.until(n, "DHCPv4 fails on the other one", failed("nic0"))
	links := l.until(n, "it has an address", func(links map[string]Link) bool {
		return len(links["nic0"].Addresses) > 1 && links["silent"].Err != nil
	})
	if err := links["nic0"].Err; err != nil {
		t.Errorf("IPv6-only link: got error %v, want none", err)
	}
	l.neighbour("nic0", "leaf")
	links = l.until(n, "its neighbour is heard", func(links map[string]Link) bool { return links["nic0"].History.Neighbour.System == "leaf" })
	h := links["nic0"].History
	if h.DHCP.Sent < 3 || h.DHCP.Since.Before(h.Found) || h.Carrier.Before(h.Found) || h.DHCP6.Sent != 0 {
		t.Errorf("history: got %+v, want what was tried", h)
	}
	if got := strings.Join(Report([]Link{links["nic0"]}, time.Now()), "\n"); !strings.Contains(got, "IPv6: 2001:db8:1:") {
		t.Errorf("report: got %s, want the address", got)
	}
}
