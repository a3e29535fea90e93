package netboot

import (
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/insomniacslk/dhcp/dhcpv6"
	"github.com/insomniacslk/dhcp/iana"
)

// answer6 is a reply of a plain server, with an address association that the modifiers complete.
func answer6(ia *dhcpv6.OptIANA, modifiers ...dhcpv6.Modifier) *dhcpv6.Message {
	m := &dhcpv6.Message{MessageType: dhcpv6.MessageTypeReply}
	m.AddOption(dhcpv6.OptServerID(&dhcpv6.DUIDLL{HWType: iana.HWTypeEthernet, LinkLayerAddr: net.HardwareAddr{2, 0, 0, 0, 0, 1}}))
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

func TestParseLease6(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	good := address6("2001:db8::10", 30*time.Minute, time.Hour)
	plain := func(change func(*Lease6)) *Lease6 {
		l := &Lease6{
			Addresses: []netip.Addr{addr("2001:db8::10")}, Obtained: now,
			Renew: 15 * time.Minute, Rebind: 24 * time.Minute, Preferred: 30 * time.Minute, Duration: time.Hour,
		}
		change(l)
		return l
	}
	for name, c := range map[string]struct {
		message  *dhcpv6.Message
		info     bool    // only information was asked for
		want     *Lease6 // nil: refused
		warnings int
	}{
		"plain":             {message: answer6(association(0, 0, good)), want: plain(func(*Lease6) {})},
		"no association":    {message: answer6(nil)},
		"other association": {message: answer6(&dhcpv6.OptIANA{IaId: [4]byte{2}, Options: dhcpv6.IdentityOptions{Options: dhcpv6.Options{good}}})},
		"no server":         {message: &dhcpv6.Message{MessageType: dhcpv6.MessageTypeReply}},
		"nothing free": {
			message: answer6(association(0, 0, &dhcpv6.OptStatusCode{StatusCode: iana.StatusNoAddrsAvail})),
		},
		"refusal":            {message: answer6(association(0, 0, good), dhcpv6.WithOption(&dhcpv6.OptStatusCode{StatusCode: iana.StatusUnspecFail}))},
		"taken back":         {message: answer6(association(0, 0, address6("2001:db8::10", 0, 0)))},
		"loopback address":   {message: answer6(association(0, 0, address6("::1", time.Hour, time.Hour))), warnings: 1},
		"multicast address":  {message: answer6(association(0, 0, address6("ff02::1", time.Hour, time.Hour))), warnings: 1},
		"link-local address": {message: answer6(association(0, 0, address6("fe80::1", time.Hour, time.Hour))), warnings: 1},
		"IPv4 address":       {message: answer6(association(0, 0, address6("192.0.2.1", time.Hour, time.Hour))), warnings: 1},
		"a bad one beside a good one": {
			message: answer6(association(0, 0, address6("::", time.Hour, time.Hour), good)), want: plain(func(*Lease6) {}), warnings: 1,
		},
		"for ever": {
			message: answer6(association(0, 0, address6("2001:db8::10", infinite*time.Second, infinite*time.Second))),
			want: plain(func(l *Lease6) {
				l.Renew, l.Rebind, l.Preferred, l.Duration = Forever, Forever, Forever, Forever
			}),
		},
		"times of the server": {
			message: answer6(association(time.Minute, 2*time.Minute, good)),
			want:    plain(func(l *Lease6) { l.Renew, l.Rebind = time.Minute, 2*time.Minute }),
		},
		"T2 beyond the end, T1 beyond T2": {message: answer6(association(2*time.Hour, 3*time.Hour, good)), want: plain(func(*Lease6) {})},
		"too short": {
			message: answer6(association(0, 0, address6("2001:db8::10", time.Second, time.Second))),
			want: plain(func(l *Lease6) {
				l.Renew, l.Rebind, l.Preferred, l.Duration = 15*time.Second, 24*time.Second, 30*time.Second, 30*time.Second
			}),
		},
		"names": {
			message: answer6(association(0, 0, good), dhcpv6.WithDNS(net.ParseIP("2001:db8::53"), net.ParseIP("::1")),
				dhcpv6.WithDomainSearchList("example.com", "a b")),
			want: plain(func(l *Lease6) {
				l.DNS, l.Search = []netip.Addr{addr("2001:db8::53")}, []string{"example.com"}
			}),
			warnings: 2,
		},
		"information": {
			message: answer6(nil, dhcpv6.WithDNS(net.ParseIP("2001:db8::53")), dhcpv6.WithInformationRefreshTime(time.Second)), info: true,
			want: &Lease6{
				DNS: []netip.Addr{addr("2001:db8::53")}, Obtained: now,
				Renew: minRefresh, Rebind: Forever, Preferred: Forever, Duration: Forever,
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			message, err := parseMessage6(c.message.ToBytes())
			if err != nil {
				t.Fatal(err)
			}
			got, warnings, err := parseLease6(message, [4]byte{1}, !c.info, now, 30*time.Second)
			if (err == nil) != (c.want != nil) {
				t.Fatalf("error: got %v, want none: %v", err, c.want != nil)
			}
			if err == nil {
				if diff := cmp.Diff(c.want, got, compareLeases, cmpopts.IgnoreUnexported(Lease6{})); diff != "" {
					t.Errorf("lease (-want +got):\n%s", diff)
				}
			}
			if len(warnings) != c.warnings {
				t.Errorf("warnings: got %q, want %d", warnings, c.warnings)
			}
		})
	}
}

func FuzzParseLease6(f *testing.F) {
	f.Add(answer6(association(0, 0, address6("2001:db8::10", time.Hour, time.Hour)), dhcpv6.WithDNS(net.ParseIP("::1"))).ToBytes())
	f.Add(answer6(nil, dhcpv6.WithDomainSearchList("a\nb", "c.example")).ToBytes())
	f.Add(answer6(association(0, 0, &dhcpv6.OptStatusCode{StatusCode: iana.StatusNoBinding})).ToBytes())
	f.Fuzz(func(t *testing.T, raw []byte) {
		m, err := parseMessage6(raw)
		if err != nil {
			return
		}
		for _, wanted := range []bool{true, false} {
			lease, _, err := parseLease6(m, [4]byte{1}, wanted, time.Now(), 30*time.Second)
			if err != nil {
				continue
			}
			if wanted == (len(lease.Addresses) == 0) || len(lease.Addresses) > maxServers {
				t.Errorf("got %d addresses, wanted: %v", len(lease.Addresses), wanted)
			}
			if lease.Duration < 30*time.Second || lease.Renew < 15*time.Second || lease.Preferred > lease.Duration {
				t.Errorf("times: %+v", lease)
			}
			checkResolvConf(t, lease.config())
		}
	})
}

func FuzzAdvertisement(f *testing.F) {
	f.Add(rdnss(60, "2001:db8::53", "fe80::53"))
	f.Add(dnssl(60, "example.com", "a\nb"))
	f.Add([]byte{optionDNSSL, 1, 0, 0, 0, 0, 0, 1})
	f.Fuzz(func(t *testing.T, raw []byte) {
		parseAdvertisement(0x10, raw) // RTM_NEWLINK
		parseAdvertisement(0x44, raw) // RTM_NEWNDUSEROPT
		o, ok := parseDNSOption(raw)
		if !ok {
			return
		}
		if len(o.servers) > maxServers || len(o.search) > maxSearch || len(o.servers)+len(o.search) == 0 {
			t.Errorf("got %d servers and %d domains", len(o.servers), len(o.search))
		}
		checkResolvConf(t, linkConfig{dns: o.servers, search: o.search})
	})
}

// checkResolvConf fails unless the resolver's file would have nothing but name servers and domains in it.
func checkResolvConf(t *testing.T, c linkConfig) {
	t.Helper()
	for line := range strings.Lines(resolvConf([]linkConfig{c})) {
		if !strings.HasPrefix(line, "nameserver ") && !strings.HasPrefix(line, "search ") {
			t.Errorf("line %q in resolv.conf", line)
		}
	}
}
