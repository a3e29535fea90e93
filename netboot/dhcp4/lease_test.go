package dhcp4

import (
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/insomniacslk/dhcp/dhcpv4"

	"ironroot/netboot/dhcp"
	"ironroot/netboot/resolver"
)

// ack returns an acknowledgement as a plain server sends it, changed by the modifiers.
func ack(t testing.TB, modifiers ...dhcpv4.Modifier) *dhcpv4.DHCPv4 {
	t.Helper()
	m, err := dhcpv4.New(append([]dhcpv4.Modifier{
		func(m *dhcpv4.DHCPv4) { m.OpCode = dhcpv4.OpcodeBootReply },
		dhcpv4.WithMessageType(dhcpv4.MessageTypeAck),
		dhcpv4.WithYourIP(net.IPv4(192, 0, 2, 10)),
		dhcpv4.WithNetmask(net.CIDRMask(24, 32)),
		dhcpv4.WithLeaseTime(3600),
		dhcpv4.WithOption(dhcpv4.OptServerIdentifier(net.IPv4(192, 0, 2, 1))),
	}, modifiers...)...)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func addr(text string) netip.Addr { return netip.MustParseAddr(text) }

var compareLeases = cmp.Options{
	cmpopts.IgnoreUnexported(Lease{}), cmp.Comparer(func(a, b netip.Addr) bool { return a == b }),
	cmp.Comparer(func(a, b netip.Prefix) bool { return a == b }),
}

func TestParseLease(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	defaultRoute := netip.MustParsePrefix("0.0.0.0/0")
	plain := func(change func(*Lease)) *Lease {
		l := &Lease{
			Address: netip.MustParsePrefix("192.0.2.10/24"), Server: addr("192.0.2.1"), Obtained: now,
			Duration: time.Hour, Renew: 30 * time.Minute, Rebind: 3150 * time.Second,
		}
		change(l)
		return l
	}
	generic := func(code dhcpv4.OptionCode, value ...byte) dhcpv4.Modifier { return dhcpv4.WithGeneric(code, value) }
	for name, c := range map[string]struct {
		message  *dhcpv4.DHCPv4
		want     *Lease // nil: refused
		warnings int
	}{
		"plain":              {message: ack(t), want: plain(func(*Lease) {})},
		"no address":         {message: ack(t, dhcpv4.WithYourIP(net.IPv4zero))},
		"loopback address":   {message: ack(t, dhcpv4.WithYourIP(net.IPv4(127, 0, 0, 2)))},
		"multicast address":  {message: ack(t, dhcpv4.WithYourIP(net.IPv4(224, 0, 0, 2)))},
		"link-local address": {message: ack(t, dhcpv4.WithYourIP(net.IPv4(169, 254, 0, 2)))},
		"broadcast address":  {message: ack(t, dhcpv4.WithYourIP(net.IPv4(192, 0, 2, 255)))},
		"network address":    {message: ack(t, dhcpv4.WithYourIP(net.IPv4(192, 0, 2, 0)))},
		"mask with holes":    {message: ack(t, dhcpv4.WithNetmask(net.IPv4Mask(255, 0, 255, 0)))},
		"mask of everything": {message: ack(t, dhcpv4.WithNetmask(net.CIDRMask(0, 32)))},
		"no server":          {message: ack(t, dhcpv4.WithoutOption(dhcpv4.OptionServerIdentifier))},
		"no mask": {
			message: ack(t, dhcpv4.WithoutOption(dhcpv4.OptionSubnetMask)), want: plain(func(*Lease) {}),
		},
		"single address, router elsewhere": {
			message: ack(t, dhcpv4.WithNetmask(net.CIDRMask(32, 32)),
				dhcpv4.WithOption(dhcpv4.OptRouter(net.IPv4(100, 64, 0, 1)))),
			want: plain(func(l *Lease) {
				l.Address = netip.MustParsePrefix("192.0.2.10/32")
				l.Routes = []Route{{Destination: defaultRoute, Gateway: addr("100.64.0.1")}}
			}),
		},
		"an impossible router, then a good one": {
			message: ack(t, dhcpv4.WithOption(dhcpv4.OptRouter(net.IPv4(192, 0, 2, 10), net.IPv4(192, 0, 2, 1)))),
			want: plain(func(l *Lease) {
				l.Routes = []Route{{Destination: defaultRoute, Gateway: addr("192.0.2.1")}}
			}),
			warnings: 1,
		},
		"classless routes win over the router": {
			message: ack(t, dhcpv4.WithOption(dhcpv4.OptRouter(net.IPv4(192, 0, 2, 9))),
				generic(dhcpv4.OptionClasslessStaticRoute, 24, 10, 1, 2, 192, 0, 2, 1, 8, 127, 192, 0, 2, 1)),
			want: plain(func(l *Lease) {
				l.Routes = []Route{{Destination: netip.MustParsePrefix("10.1.2.0/24"), Gateway: addr("192.0.2.1")}}
			}),
			warnings: 1,
		},
		"broken classless routes leave the router": {
			message: ack(t, dhcpv4.WithOption(dhcpv4.OptRouter(net.IPv4(192, 0, 2, 9))),
				generic(dhcpv4.OptionClasslessStaticRoute, 24, 10)),
			want: plain(func(l *Lease) {
				l.Routes = []Route{{Destination: defaultRoute, Gateway: addr("192.0.2.9")}}
			}),
			warnings: 1,
		},
		"forever": {
			message: ack(t, dhcpv4.WithLeaseTime(0xffffffff)),
			want:    plain(func(l *Lease) { l.Duration, l.Renew, l.Rebind = dhcp.Forever, dhcp.Forever, dhcp.Forever }),
		},
		"too short": {
			message: ack(t, dhcpv4.WithLeaseTime(1)),
			want: plain(func(l *Lease) {
				l.Duration, l.Renew, l.Rebind = 30*time.Second, 15*time.Second, 26250*time.Millisecond
			}),
		},
		"T1 and T2 of the server": {
			message: ack(t, generic(dhcpv4.OptionRenewTimeValue, 0, 0, 1, 0),
				generic(dhcpv4.OptionRebindingTimeValue, 0, 0, 2, 0)),
			want: plain(func(l *Lease) { l.Renew, l.Rebind = 256*time.Second, 512*time.Second }),
		},
		"T2 beyond the end": {
			message: ack(t, generic(dhcpv4.OptionRebindingTimeValue, 0, 1, 0, 0)), want: plain(func(*Lease) {}),
		},
		"further values": {
			message: ack(t, generic(dhcpv4.OptionInterfaceMTU, 0x05, 0x78),
				dhcpv4.WithOption(dhcpv4.OptHostName("node-1")),
				dhcpv4.WithOption(dhcpv4.OptDNS(net.IPv4(192, 0, 2, 53), net.IPv4(192, 0, 2, 53),
					net.IPv4(127, 0, 0, 1))),
				dhcpv4.WithOption(dhcpv4.OptNTPServers(net.IPv4(192, 0, 2, 123))),
				dhcpv4.WithOption(dhcpv4.OptDomainName("example.com"))),
			want: plain(func(l *Lease) {
				l.MTU, l.Hostname, l.Search = 1400, "node-1", []string{"example.com"}
				l.DNS, l.NTP = []netip.Addr{addr("192.0.2.53")}, []netip.Addr{addr("192.0.2.123")}
			}),
			warnings: 1,
		},
		"search list wins over the domain": {
			message: ack(t, dhcpv4.WithOption(dhcpv4.OptDomainName("a.example")),
				dhcpv4.WithDomainSearchList("b.example", "c.example")),
			want: plain(func(l *Lease) { l.Search = []string{"b.example", "c.example"} }),
		},
		"domain with several names": {
			message: ack(t, dhcpv4.WithOption(dhcpv4.OptDomainName("a.example  b.example. "))),
			want:    plain(func(l *Lease) { l.Search = []string{"a.example", "b.example"} }),
		},
		"several names, one of them wrong": {
			message: ack(t, dhcpv4.WithOption(dhcpv4.OptDomainName("a.example -b"))),
			want:    plain(func(*Lease) {}), warnings: 1,
		},
		"names that would write further lines": {
			message: ack(t, dhcpv4.WithOption(dhcpv4.OptDomainName("a\nnameserver 203.0.113.1")),
				dhcpv4.WithOption(dhcpv4.OptHostName("a b")), generic(dhcpv4.OptionInterfaceMTU, 0, 68)),
			want: plain(func(*Lease) {}), warnings: 3,
		},
	} {
		t.Run(name, func(t *testing.T) {
			got, warnings, err := parseLease(c.message, now, 30*time.Second)
			if (err == nil) != (c.want != nil) {
				t.Fatalf("error: got %v, want none: %v", err, c.want != nil)
			}
			if err == nil {
				if diff := cmp.Diff(c.want, got, compareLeases); diff != "" {
					t.Errorf("lease (-want +got):\n%s", diff)
				}
			}
			if len(warnings) != c.warnings {
				t.Errorf("warnings: got %q, want %d", warnings, c.warnings)
			}
		})
	}
}

func TestRenewalKeepsOptionsThatItsServerLeavesOut(t *testing.T) {
	before := ack(t, dhcpv4.WithOption(dhcpv4.OptRouter(net.IPv4(192, 0, 2, 1))),
		dhcpv4.WithNetmask(net.CIDRMask(25, 32)))
	bare := ack(t, dhcpv4.WithoutOption(dhcpv4.OptionSubnetMask))
	complete(bare, before)
	lease, _, err := parseLease(bare, time.Now(), 0)
	if err != nil {
		t.Fatal(err)
	}
	if lease.Address.Bits() != 25 || len(lease.Routes) != 1 {
		t.Errorf("got %v with routes %v, want a length of 25 and the route of the lease before",
			lease.Address, lease.Routes)
	}
	other := ack(t, dhcpv4.WithYourIP(net.IPv4(198, 51, 100, 3)), dhcpv4.WithoutOption(dhcpv4.OptionRouter))
	complete(other, before)
	if other.Router() != nil {
		t.Errorf("another address: got router %v of the old network, want none", other.Router())
	}
}

func FuzzParseLease(f *testing.F) {
	f.Add(ack(f).ToBytes())
	f.Add(ack(f, dhcpv4.WithGeneric(dhcpv4.OptionClasslessStaticRoute, []byte{
		24, 10, 1, 2, 192, 0, 2, 1, 0, 0, 0, 0, 0,
	})).ToBytes())
	f.Add(ack(f, dhcpv4.WithDomainSearchList("b.example"), dhcpv4.WithOption(dhcpv4.OptDomainName("a\nb"))).ToBytes())
	f.Add(overloaded(f, 3))
	f.Fuzz(func(t *testing.T, raw []byte) {
		m, err := parseMessage(raw)
		if err != nil {
			return
		}
		lease, _, err := parseLease(m, time.Now(), 30*time.Second)
		if err != nil {
			return
		}
		if a := lease.Address; !a.Addr().IsGlobalUnicast() || a.Bits() < minPrefix {
			t.Errorf("address %v is not a host address", a)
		}
		if lease.Duration < 30*time.Second || lease.Renew < 15*time.Second || lease.Rebind > lease.Duration {
			t.Errorf("times: renew %v, rebind %v, whole %v", lease.Renew, lease.Rebind, lease.Duration)
		}
		if len(lease.Routes) > maxRoutes {
			t.Errorf("%d routes, want at most %d", len(lease.Routes), maxRoutes)
		}
		for line := range strings.Lines(resolver.Format([]resolver.Names{lease.Names()})) {
			if !strings.HasPrefix(line, "nameserver ") && !strings.HasPrefix(line, "search ") {
				t.Errorf("line %q in resolv.conf", line)
			}
		}
		lease.Implausible()
	})
}
