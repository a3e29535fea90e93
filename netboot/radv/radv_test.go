//go:build linux

package radv

import (
	"errors"
	"net"
	"net/netip"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"ironroot/internal/test/testenv"
	"ironroot/netboot/dhcp"
	"ironroot/netboot/resolver"
)

// Names expire, are renewed and revoked. Servers of the link get its zone.
func TestNames(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var n Names
		addr := netip.MustParseAddr
		learn := func(lifetime time.Duration, servers ...netip.Addr) {
			n.Learn(&Option{Servers: servers, Lifetime: lifetime}, "eth0")
		}
		check := func(what string, want ...netip.Addr) {
			t.Helper()
			diff := cmp.Diff(want, n.Valid().Servers, cmp.Comparer(func(a, b netip.Addr) bool { return a == b }))
			if diff != "" {
				t.Errorf("%s: servers (-want +got):\n%s", what, diff)
			}
		}
		first, second, local := addr("2001:db8::53"), addr("2001:db8::54"), addr("fe80::53")
		check("none")
		learn(time.Minute, first, local)
		learn(dhcp.Forever, second)
		check("three", first, local.WithZone("eth0"), second)
		time.Sleep(30 * time.Second)
		learn(time.Minute, local)
		time.Sleep(31 * time.Second)
		check("the first one expired, the local one was renewed", local.WithZone("eth0"), second)
		learn(0, second)
		check("one revoked", local.WithZone("eth0"))
		for i := range 2 * resolver.MaxServers {
			learn(time.Hour, netip.AddrFrom16([16]byte{0x20, 1, 15: byte(i + 1)}))
		}
		if got := len(n.Valid().Servers); got != resolver.MaxServers {
			t.Errorf("many servers: got %d, want %d", got, resolver.MaxServers)
		}
		n.Learn(&Option{Search: []string{"example.com"}, Lifetime: time.Minute}, "eth0")
		if diff := cmp.Diff([]string{"example.com"}, n.Valid().Search); diff != "" {
			t.Errorf("search domains (-want +got):\n%s", diff)
		}
	})
}

// A router advertisement that causes a panic is dropped; the next one is used.
func TestReadContainsPanics(t *testing.T) {
	testenv.ExpectPanics(t)
	messages := []syscall.NetlinkMessage{{Header: syscall.NlMsghdr{Type: 1}}, {Header: syscall.NlMsghdr{Type: 2}}}
	received := 0
	receive := func() ([]syscall.NetlinkMessage, *unix.SockaddrNetlink, error) {
		if received++; received > 1 {
			return nil, nil, net.ErrClosed
		}
		return messages, &unix.SockaddrNetlink{}, nil
	}
	broken := func(kind uint16, _ []byte) (Advertisement, bool) {
		if kind == 1 {
			panic("in the parser")
		}
		return Advertisement{Index: 7}, true
	}
	events := make(chan Advertisement, len(messages))
	if err := read(receive, broken, events); !errors.Is(err, net.ErrClosed) {
		t.Errorf("got error %v, want that of the socket", err)
	}
	close(events)
	var got []Advertisement
	for a := range events {
		got = append(got, a)
	}
	if len(got) != 1 || got[0].Index != 7 {
		t.Errorf("got %+v, want the second advertisement", got)
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte("\x19\x05\x00\x00\x00\x00\x00\x3c \x01\x0d\xb8\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x53" +
		"\xfe\x80\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x53"))
	f.Add([]byte("\x1f\x04\x00\x00\x00\x00\x00\x3c\x07example\x03com\x00\x03a\nb\x00\x00\x00\x00\x00\x00\x00"))
	f.Add([]byte{optionDNSSL, 1, 0, 0, 0, 0, 0, 1})
	f.Fuzz(func(t *testing.T, raw []byte) {
		parse(0x10, raw) // RTM_NEWLINK
		parse(0x44, raw) // RTM_NEWNDUSEROPT
		o, ok := parseDNSOption(raw)
		if !ok {
			return
		}
		if len(o.Servers) > resolver.MaxServers || len(o.Search) > resolver.MaxSearch ||
			len(o.Servers)+len(o.Search) == 0 {
			t.Errorf("got %d servers and %d domains", len(o.Servers), len(o.Search))
		}
		checkResolvConf(t, resolver.Names{Servers: o.Servers, Search: o.Search})
	})
}

// checkResolvConf checks that names add only name servers and search domains to the resolver's file.
func checkResolvConf(t *testing.T, names resolver.Names) {
	t.Helper()
	for line := range strings.Lines(resolver.Format([]resolver.Names{names})) {
		if !strings.HasPrefix(line, "nameserver ") && !strings.HasPrefix(line, "search ") {
			t.Errorf("line %q in resolv.conf", line)
		}
	}
}
