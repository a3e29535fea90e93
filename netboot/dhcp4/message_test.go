package dhcp4

import (
	"context"
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/insomniacslk/dhcp/dhcpv4"
)

// overloaded returns an acknowledgement whose options continue in other fields, as RFC 2132, section 9.3, describes it:
// 1 = in the field of the boot file, 2 = in the field of the server's name, 3 = in both.
func overloaded(t testing.TB, value byte) []byte {
	t.Helper()
	raw := ack(t, dhcpv4.WithGeneric(dhcpv4.OptionOptionOverload, []byte{value}),
		dhcpv4.WithGeneric(dhcpv4.OptionDomainName, []byte("a."))).ToBytes()
	clear(raw[44:236])
	copy(raw[44:], "\x0f\x04mple\x03\x04\xc0\x00\x02\x01\xff") // sname: end of the domain, router
	copy(raw[108:], "\x0f\x03exa\x00\x06\x04\xc0\x00\x02\x35") // file: middle of the domain, name server, no end
	return raw
}

// Options in other fields are read in the order of RFC 3396, section 5: options, file, sname.
func TestOptionOverload(t *testing.T) {
	server, router := []netip.Addr{addr("192.0.2.53")}, addr("192.0.2.1")
	for value, want := range map[byte]*Lease{
		0: {}, 1: {DNS: server, Search: []string{"a.exa"}}, 2: {Search: []string{"a.mple"}},
		3: {DNS: server, Search: []string{"a.example"}},
	} {
		m, err := parseMessage(overloaded(t, value))
		if err != nil {
			t.Fatalf("%d: %v", value, err)
		}
		lease, _, err := parseLease(m, time.Now(), 0)
		if err != nil {
			t.Fatalf("%d: %v", value, err)
		}
		if value == 0 {
			want.Search = []string{"a"}
		}
		got := &Lease{DNS: lease.DNS, Search: lease.Search}
		if diff := cmp.Diff(want, got, compareLeases); diff != "" {
			t.Errorf("%d (-want +got):\n%s", value, diff)
		}
		if isGiven := lease.Router() == router; isGiven != (value&2 != 0) {
			t.Errorf("%d: got router %v", value, lease.Router())
		}
	}
	for value, at := range map[byte]int{1: 108, 2: 44} {
		raw := overloaded(t, value)
		copy(raw[at:], "\x0f\xff")
		if _, err := parseMessage(raw); err == nil || !strings.Contains(err.Error(), "options in the field for") {
			t.Errorf("%d: got %v, want an error", value, err)
		}
	}
}

// An answer that is rejected is reported with its reason. That there was no answer is said only if there was none.
func TestRejectedAnswers(t *testing.T) {
	without := dhcpv4.WithoutOption
	for name, c := range map[string]struct {
		kind   dhcpv4.MessageType // that is changed
		change func(*dhcpv4.DHCPv4)
		want   string
	}{
		"no message type": {
			dhcpv4.MessageTypeOffer, without(dhcpv4.OptionDHCPMessageType), "want OFFER",
		},
		"offer without server": {
			dhcpv4.MessageTypeOffer, without(dhcpv4.OptionServerIdentifier), "server without identifier (option 54)",
		},
		"acknowledgement without server": {
			dhcpv4.MessageTypeAck, without(dhcpv4.OptionServerIdentifier),
			"ACK of server without identifier (option 54), want 192.0.2.1",
		},
		"acknowledgement of another server": {
			dhcpv4.MessageTypeAck, dhcpv4.WithOption(dhcpv4.OptServerIdentifier(net.IPv4(192, 0, 2, 7))),
			"ACK of server 192.0.2.7, want 192.0.2.1",
		},
		"malformed": {
			dhcpv4.MessageTypeOffer, func(m *dhcpv4.DHCPv4) {
				m.UpdateOption(dhcpv4.OptGeneric(dhcpv4.OptionOptionOverload, []byte{1}))
				m.BootFileName = "\x0f\xff"
			}, "malformed answer: options in the field for the boot file",
		},
		"answer to another machine": {
			dhcpv4.MessageTypeOffer, func(m *dhcpv4.DHCPv4) { m.ClientHWAddr[5]++ }, "",
		},
		"answer to another message": {
			dhcpv4.MessageTypeOffer, func(m *dhcpv4.DHCPv4) { m.TransactionID[0]++ }, "",
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				good := grant("192.0.2.10")
				s := newServer(func(m *dhcpv4.DHCPv4) *dhcpv4.DHCPv4 {
					answer := good(m)
					if answer.MessageType() == c.kind {
						c.change(answer)
					}
					return answer
				})
				client, handler, _ := newTest(s)
				ctx, cancel := context.WithCancel(t.Context())
				go client.Run(ctx)
				time.Sleep(time.Minute)
				cancel()
				synctest.Wait()
				calls := handler.Take()
				isSilence := func(call string) bool { return strings.Contains(call, "no answer") }
				silent := slices.ContainsFunc(calls, isSilence)
				if silent != (c.want == "") {
					t.Errorf("got events %q, want no answer: %t", calls, c.want == "")
				}
				isReason := func(call string) bool {
					return strings.HasPrefix(call, "rejected: ") && strings.Contains(call, c.want)
				}
				if c.want != "" && !slices.ContainsFunc(calls, isReason) {
					t.Errorf("got events %q, want one with %q", calls, c.want)
				}
			})
		})
	}
}
