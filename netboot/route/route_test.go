//go:build linux

package route

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"ironroot/internal/test/testenv/nettest"
	"ironroot/netboot/ifconfig"
	"ironroot/netboot/listing"
)

var (
	everywhere = netip.MustParsePrefix("0.0.0.0/0")
	far        = netip.MustParseAddr("198.18.0.7")
)

// configure gives a link of the machine an address and a default router.
func configure(l *nettest.Lab, name string, metric int, address, router string) *net.Interface {
	l.T.Helper()
	link := l.Raise(name)
	source := ifconfig.NewSource(link.Index)
	if err := source.Replace(metric, ifconfig.Config{
		Addresses: []netip.Prefix{netip.MustParsePrefix(address)},
		Routes:    []ifconfig.Route{{Destination: everywhere, Gateway: netip.MustParseAddr(router)}},
	}); err != nil {
		l.T.Fatal(err)
	}
	return link
}

// checkSource checks the source address towards far.
func checkSource(l *nettest.Lab, when, want string) {
	l.T.Helper()
	if got, err := SourceFor(l.Ctx, far); err != nil || got.String() != want {
		l.T.Errorf("source %s: got %v, %v, want %s", when, got, err, want)
	}
}

// newHosts returns the routes of a link, whose messages the lab's log stores.
func newHosts(l *nettest.Lab, link *net.Interface) *Hosts {
	log := slog.New(slog.NewTextHandler(io.MultiWriter(l.T.Output(), &l.Log), nil))
	return NewHosts(log, fixed{link})
}

// The preferred default router does not exist. Dial connects by the other link, and a route to the address leads there
// until it is dropped. The number of such routes is limited.
func TestOtherLink(t *testing.T) {
	l, inside := nettest.New(t)
	if !inside {
		return
	}
	l.Cable("wrong", "10.9.0.1/24")
	l.Cable("good", "192.0.2.1/24")
	l.AddPeerAddress("good", "198.18.0.7/32")
	server := l.Listen("198.18.0.7")
	configure(l, "wrong", ifconfig.LeaseMetric, "10.9.0.5/24", "10.9.0.66")
	good := configure(l, "good", ifconfig.LeaseMetric+1, "192.0.2.10/24", "192.0.2.1")
	checkSource(l, "at first", "10.9.0.5")

	conn, by, err := Dial(l.Ctx, []string{"wrong", "good"}, 20*time.Millisecond, "tcp", server.Addr().String())
	if err != nil || by != "good" {
		t.Fatalf("got link %q, %v, want good", by, err)
	}
	hosts := newHosts(l, good)
	hosts.Keep(conn)
	_ = conn.Close()
	l.WaitLog(`level=WARN .*route added" interface=good address=198\.18\.0\.7 router=192\.0\.2\.1`)
	checkSource(l, "by the added route", "192.0.2.10")
	if conn, by, err = Dial(l.Ctx, nil, time.Second, "tcp", server.Addr().String()); err != nil || by != "" {
		t.Fatalf("by the added route: got link %q, %v, want the kernel's choice", by, err)
	}
	chosen := newHosts(l, good)
	chosen.Keep(conn)
	_ = conn.Close()
	if got := len(chosen.routes); got != 0 {
		t.Errorf("link that the kernel chooses: got %d routes, want none", got)
	}

	add := func(count int, to netip.Addr, next func(netip.Addr) netip.Addr) {
		t.Helper()
		for range count {
			route, err := hostRoute(good, to)
			if err == nil {
				err = hosts.add(route)
			}
			if err != nil {
				t.Fatal(err)
			}
			to = next(to)
		}
	}
	others := netip.MustParseAddr("198.18.1.1")
	add(maxHostRoutes, others, netip.Addr.Next)
	checkSource(l, "after the oldest route was removed", "10.9.0.5")
	added := func() (n int) {
		routes, err := listing.Whole(func() ([]netlink.Route, error) {
			return netlink.RouteList(ifconfig.ByIndex(good.Index), netlink.FAMILY_V4)
		})
		if err != nil {
			t.Fatal(err)
		}
		for _, route := range routes {
			if route.Priority == ifconfig.HostMetric {
				n++
			}
		}
		return n
	}
	if got := added(); got != maxHostRoutes {
		t.Errorf("got %d routes, want %d", got, maxHostRoutes)
	}
	hosts.Drop()
	if got := added(); got != 0 || len(hosts.routes) != 0 {
		t.Errorf("after Drop: got %d routes, want none", got)
	}
	add(maxHostRoutes+1, far, func(to netip.Addr) netip.Addr { return to })
	if got := added(); got != 1 {
		t.Errorf("the same route again and again: got %d, want one", got)
	}
	add(maxHostRoutes-1, others, netip.Addr.Next)
	checkSource(l, "by the repeated route", "192.0.2.10")
	if got := added(); got != maxHostRoutes {
		t.Errorf("the repeated route and others: got %d, want %d", got, maxHostRoutes)
	}
	hosts.Drop()
	if failed, _ := l.Log.Matches("route not removed"); failed {
		t.Error("got a warning about a route that was removed or absent, want none")
	}
}

// An added route precedes a static one to the same address, which is used again when the added one is dropped.
func TestStaticRoute(t *testing.T) {
	l, inside := nettest.New(t)
	if !inside {
		return
	}
	l.Cable("static", "")
	l.Cable("good", "")
	static := ifconfig.NewSource(l.Raise("static").Index)
	if err := static.Replace(ifconfig.StaticMetric, ifconfig.Config{
		Addresses: []netip.Prefix{netip.MustParsePrefix("10.9.0.5/24")},
		Routes: []ifconfig.Route{
			{Destination: netip.PrefixFrom(far, far.BitLen()), Gateway: netip.MustParseAddr("10.9.0.66")},
		},
	}); err != nil {
		t.Fatal(err)
	}
	good := configure(l, "good", ifconfig.LeaseMetric, "192.0.2.10/24", "192.0.2.1")
	checkSource(l, "by the static route", "10.9.0.5")
	hosts := newHosts(l, good)
	added, err := hostRoute(good, far)
	if err == nil {
		err = hosts.add(added)
	}
	if err != nil {
		t.Fatal(err)
	}
	checkSource(l, "by the added route", "192.0.2.10")
	hosts.Drop()
	checkSource(l, "after Drop", "10.9.0.5")
}

// A route leads to an address on the link itself, and by a router that no subnet of the link contains. It names the
// source of IPv4, but not of IPv6.
func TestHostRoute(t *testing.T) {
	l, inside := nettest.New(t)
	if !inside {
		return
	}
	l.Cable("nic0", "")
	nic0 := configure(l, "nic0", ifconfig.LeaseMetric, "192.0.2.10/32", "203.0.113.1")
	if err := ifconfig.Sysctl("ipv6", "nic0", "accept_dad", "0"); err != nil { // otherwise IPv6 has no source yet
		t.Fatal(err)
	}
	source := ifconfig.NewSource(nic0.Index)
	if err := source.Replace(ifconfig.LeaseMetric, ifconfig.Config{
		Addresses: []netip.Prefix{netip.MustParsePrefix("198.51.100.10/24"), netip.MustParsePrefix("2001:db8::10/64")},
	}); err != nil {
		t.Fatal(err)
	}
	hosts := newHosts(l, nic0)
	for to, want := range map[string]string{
		"198.18.0.7": "203.0.113.1 by 192.0.2.10", "198.51.100.7": "<nil> by 198.51.100.10",
		"2001:db8::7": "<nil> by <nil>",
	} {
		address := netip.MustParseAddr(to)
		route, err := hostRoute(nic0, address)
		if err == nil {
			err = hosts.add(route)
		}
		if err != nil {
			t.Errorf("%s: %v", to, err)
			continue
		}
		kernel, err := netlink.RouteGetWithOptions(address.AsSlice(), &netlink.RouteGetOptions{FIBMatch: true})
		if err != nil || len(kernel) != 1 {
			t.Fatalf("%s: got %v, %v, want one route", to, kernel, err)
		}
		got := kernel[0]
		if text := fmt.Sprintf("%v by %v", got.Gw, got.Src); text != want || got.Priority != ifconfig.HostMetric ||
			address.Is4() && (got.Scope == netlink.SCOPE_LINK) != (got.Gw == nil) {
			t.Errorf("%s: got %v, want %s and metric %d", to, got, want, ifconfig.HostMetric)
		}
	}
}

// Errors name the address and the link.
func TestErrors(t *testing.T) {
	l, inside := nettest.New(t)
	if !inside {
		return
	}
	l.Cable("nic0", "192.0.2.1/24")
	nic0 := configure(l, "nic0", ifconfig.LeaseMetric, "192.0.2.10/24", "192.0.2.1")
	check := func(name string, err error, parts ...string) {
		t.Helper()
		for _, part := range parts {
			if err == nil || !strings.Contains(err.Error(), part) {
				t.Errorf("%s: got %v, want an error that contains %q", name, err, part)
			}
		}
	}
	_, _, err := Dial(l.Ctx, []string{"nic0", "gone"}, time.Millisecond, "tcp", "192.0.2.1:9")
	check("closed port", err, "192.0.2.1:9", "by nic0: ", "by gone: ", "no such device")
	_, err = SourceFor(l.Ctx, netip.MustParseAddr("2001:db8::1"))
	check("source without a route", err, "route to 2001:db8::1: ")
	link, err := netip.ParseAddr("fe80::1%nic0")
	if err == nil {
		_, err = SourceFor(l.Ctx, link)
	}
	check("source of a link-local address", err, "route to fe80::1%nic0: ")
	canceled, cancel := context.WithCancel(l.Ctx)
	cancel()
	if _, err = SourceFor(canceled, netip.MustParseAddr("192.0.2.1")); !errors.Is(err, context.Canceled) {
		t.Errorf("canceled: got %v, want %v", err, context.Canceled)
	}

	server := l.Listen("192.0.2.1")
	conn, err := net.Dial("tcp", server.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	gone := newHosts(l, &net.Interface{Index: 1 << 20, Name: "gone"})
	pipe, _ := net.Pipe()
	gone.Keep(pipe) // not over IP
	if logged, _ := l.Log.Matches("."); logged {
		t.Error("connection that is not over IP: got a message, want none")
	}
	gone.Keep(conn)
	l.WaitLog(`level=WARN .*not added" interface=gone address=192\.0\.2\.1 err="route to 192\.0\.2\.1: `)
	if added, _ := l.Log.Matches("route added"); added {
		t.Error("route by a link that does not exist: got a message that it was added")
	}
	err = newHosts(l, nic0).add(&netlink.Route{
		LinkIndex: 1 << 20, Dst: ifconfig.IPNet(netip.MustParsePrefix("198.18.0.7/32")),
	})
	check("route by a link that does not exist", err, "add route to 198.18.0.7/32: ")
}

// fixed is a link.
type fixed struct{ link *net.Interface }

func (f fixed) Interface() *net.Interface { return f.link }
