package dhcp6

import (
	"encoding/hex"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/insomniacslk/dhcp/dhcpv6"
	"github.com/insomniacslk/dhcp/iana"

	"ironroot/netboot/dhcp"
	"ironroot/netboot/resolver"
)

// answer is a reply of a plain server, with an address association that the modifiers complete.
func answer(ia *dhcpv6.OptIANA, modifiers ...dhcpv6.Modifier) *dhcpv6.Message {
	m := &dhcpv6.Message{MessageType: dhcpv6.MessageTypeReply}
	m.AddOption(dhcpv6.OptServerID(&dhcpv6.DUIDLL{
		HWType: iana.HWTypeEthernet, LinkLayerAddr: net.HardwareAddr{2, 0, 0, 0, 0, 1},
	}))
	if ia != nil {
		m.AddOption(ia)
	}
	for _, modify := range modifiers {
		modify(m)
	}
	return m
}

func association(t1, t2 time.Duration, options ...dhcpv6.Option) *dhcpv6.OptIANA {
	return &dhcpv6.OptIANA{IaId: [4]byte{1}, T1: t1, T2: t2, Options: dhcpv6.IdentityOptions{Options: options}}
}

func address6(text string, preferred, valid time.Duration) *dhcpv6.OptIAAddress {
	return &dhcpv6.OptIAAddress{IPv6Addr: net.ParseIP(text), PreferredLifetime: preferred, ValidLifetime: valid}
}

func addr(text string) netip.Addr { return netip.MustParseAddr(text) }

var compareLeases = cmp.Options{
	cmp.Comparer(func(a, b netip.Addr) bool { return a == b }),
	cmp.Comparer(func(a, b netip.Prefix) bool { return a == b }),
}

func TestParseLease(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	good := address6("2001:db8::10", 30*time.Minute, time.Hour)
	plain := func(change func(*Lease)) *Lease {
		l := &Lease{
			Addresses: []netip.Addr{addr("2001:db8::10")}, Obtained: now,
			Renew: 15 * time.Minute, Rebind: 24 * time.Minute, Preferred: 30 * time.Minute, Duration: time.Hour,
		}
		change(l)
		return l
	}
	for name, c := range map[string]struct {
		message  *dhcpv6.Message
		info     bool   // only information was asked for
		want     *Lease // nil: refused
		warnings int
	}{
		"plain":          {message: answer(association(0, 0, good)), want: plain(func(*Lease) {})},
		"no association": {message: answer(nil)},
		"other association": {message: answer(&dhcpv6.OptIANA{
			IaId: [4]byte{2}, Options: dhcpv6.IdentityOptions{Options: dhcpv6.Options{good}},
		})},
		"no server": {message: &dhcpv6.Message{MessageType: dhcpv6.MessageTypeReply}},
		"nothing free": {
			message: answer(association(0, 0, &dhcpv6.OptStatusCode{StatusCode: iana.StatusNoAddrsAvail})),
		},
		"refusal": {message: answer(association(0, 0, good),
			dhcpv6.WithOption(&dhcpv6.OptStatusCode{StatusCode: iana.StatusUnspecFail}))},
		"revoked":          {message: answer(association(0, 0, address6("2001:db8::10", 0, 0)))},
		"loopback address": {message: answer(association(0, 0, address6("::1", time.Hour, time.Hour))), warnings: 1},
		"multicast address": {
			message: answer(association(0, 0, address6("ff02::1", time.Hour, time.Hour))), warnings: 1,
		},
		"link-local address": {
			message: answer(association(0, 0, address6("fe80::1", time.Hour, time.Hour))), warnings: 1,
		},
		"IPv4 address": {message: answer(association(0, 0, address6("192.0.2.1", time.Hour, time.Hour))), warnings: 1},
		"a bad address before a good one": {
			message: answer(association(0, 0, address6("::", time.Hour, time.Hour), good)),
			want:    plain(func(*Lease) {}), warnings: 1,
		},
		"forever": {
			message: answer(association(0, 0,
				address6("2001:db8::10", dhcp.Infinite*time.Second, dhcp.Infinite*time.Second))),
			want: plain(func(l *Lease) {
				l.Renew, l.Rebind, l.Preferred, l.Duration = dhcp.Forever, dhcp.Forever, dhcp.Forever, dhcp.Forever
			}),
		},
		"times of the server": {
			message: answer(association(time.Minute, 2*time.Minute, good)),
			want:    plain(func(l *Lease) { l.Renew, l.Rebind = time.Minute, 2*time.Minute }),
		},
		"T2 beyond the end, T1 beyond T2": {
			message: answer(association(2*time.Hour, 3*time.Hour, good)), want: plain(func(*Lease) {}),
		},
		"too short": {
			message: answer(association(0, 0, address6("2001:db8::10", time.Second, time.Second))),
			want: plain(func(l *Lease) {
				l.Renew = 15 * time.Second
				l.Rebind = 24 * time.Second
				l.Preferred = 30 * time.Second
				l.Duration = 30 * time.Second
			}),
		},
		"names": {
			message: answer(association(0, 0, good), dhcpv6.WithDNS(net.ParseIP("2001:db8::53"), net.ParseIP("::1")),
				dhcpv6.WithDomainSearchList("example.com", "a b")),
			want: plain(func(l *Lease) {
				l.DNS, l.Search = []netip.Addr{addr("2001:db8::53")}, []string{"example.com"}
			}),
			warnings: 2,
		},
		"information": {
			message: answer(nil, dhcpv6.WithDNS(net.ParseIP("2001:db8::53")),
				dhcpv6.WithInformationRefreshTime(time.Second)), info: true,
			want: &Lease{
				DNS: []netip.Addr{addr("2001:db8::53")}, Obtained: now,
				Renew: minRefresh, Rebind: dhcp.Forever, Preferred: dhcp.Forever, Duration: dhcp.Forever,
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			message, err := parseMessage(c.message.ToBytes())
			if err != nil {
				t.Fatal(err)
			}
			got, warnings, err := parseLease(message, [4]byte{1}, !c.info, now, 30*time.Second)
			if (err == nil) != (c.want != nil) {
				t.Fatalf("error: got %v, want none: %v", err, c.want != nil)
			}
			if err == nil {
				if diff := cmp.Diff(c.want, got, compareLeases, cmpopts.IgnoreUnexported(Lease{})); diff != "" {
					t.Errorf("lease (-want +got):\n%s", diff)
				}
			}
			if len(warnings) != c.warnings {
				t.Errorf("warnings: got %q, want %d", warnings, c.warnings)
			}
		})
	}
}

func FuzzParseLease(f *testing.F) {
	f.Add(answer(association(0, 0, address6("2001:db8::10", time.Hour, time.Hour)),
		dhcpv6.WithDNS(net.ParseIP("::1"))).ToBytes())
	f.Add(answer(nil, dhcpv6.WithDomainSearchList("a\nb", "c.example")).ToBytes())
	f.Add(answer(association(0, 0, &dhcpv6.OptStatusCode{StatusCode: iana.StatusNoBinding})).ToBytes())
	f.Fuzz(func(t *testing.T, raw []byte) {
		m, err := parseMessage(raw)
		if err != nil {
			return
		}
		for _, wanted := range []bool{true, false} {
			lease, _, err := parseLease(m, [4]byte{1}, wanted, time.Now(), 30*time.Second)
			if err != nil {
				continue
			}
			if wanted == (len(lease.Addresses) == 0) || len(lease.Addresses) > dhcp.MaxServers {
				t.Errorf("got %d addresses, wanted: %v", len(lease.Addresses), wanted)
			}
			if lease.Duration < 30*time.Second || lease.Renew < 15*time.Second || lease.Preferred > lease.Duration {
				t.Errorf("times: %+v", lease)
			}
			for line := range strings.Lines(resolver.Format([]resolver.Names{lease.Names()})) {
				if !strings.HasPrefix(line, "nameserver ") && !strings.HasPrefix(line, "search ") {
					t.Errorf("line %q in resolv.conf", line)
				}
			}
		}
	})
}

// The GUID of an InfiniBand port identifies it, not the queue pair number in front of it.
func TestDUID(t *testing.T) {
	port, err := net.ParseMAC("a0:00:02:20:fe:80:00:00:00:00:00:00:7c:fe:90:03:00:29:26:52")
	if err != nil {
		t.Fatal(err)
	}
	if got, want := hex.EncodeToString(newDUID(port).ToBytes()), "000300207cfe900300292652"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}
