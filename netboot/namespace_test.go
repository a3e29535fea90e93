//go:build linux

package netboot

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"path/filepath"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"ironroot/internal/test/testenv/nettest"
	"ironroot/netboot/dhcp/dhcptest"
	"ironroot/netboot/listing"
	"ironroot/netboot/networkdata"
	"ironroot/netboot/snapshot"
)

// lab is the two namespaces of nettest, and the resolver's file of a network in the machine's.
type lab struct {
	*nettest.Lab
	resolv string
}

// inNamespace is nettest.New.
func inNamespace(t *testing.T, programs ...string) (*lab, bool) {
	t.Helper()
	l, inside := nettest.New(t, programs...)
	if !inside {
		return nil, false
	}
	return &lab{Lab: l, resolv: filepath.Join(t.TempDir(), "etc", "resolv.conf")}, true
}

// quick is the timing of links in tests.
var quick = timing{noCarrier: 500 * time.Millisecond, cardWait: 500 * time.Millisecond, DHCP: dhcptest.Quick}

func (l *lab) start() *Network {
	l.T.Helper()
	return l.startWith(nil, nil)
}

// startWith starts the network with static data, or with what says that such may come.
func (l *lab) startWith(data *networkdata.Data, wait <-chan struct{}) *Network {
	l.T.Helper()
	n, err := Start(l.Ctx, Config{
		Log: slog.New(slog.NewTextHandler(io.MultiWriter(l.T.Output(), &l.Log), &slog.HandlerOptions{
			Level: slog.LevelDebug,
		})),
		virtual:    true,
		ResolvConf: l.resolv, Data: data, Wait: wait, timing: quick,
	})
	if err != nil {
		l.T.Fatal(err)
	}
	l.T.Cleanup(func() {
		n.stop()
		<-n.watching
	})
	return n
}

// until waits for a state of the links; it ends the test when that does not come.
func (l *lab) until(n *Network, what string, reached func(map[string]snapshot.Link) bool) map[string]snapshot.Link {
	l.T.Helper()
	ctx, cancel := context.WithTimeout(l.Ctx, nettest.Timeout)
	defer cancel()
	for {
		changed := n.Changed()
		links := map[string]snapshot.Link{}
		for _, link := range n.Links() {
			links[link.Name] = link
		}
		if reached(links) {
			return links
		}
		select {
		case <-changed:
		case <-ctx.Done():
			l.T.Fatalf("%s: not so after %v: %+v", what, nettest.Timeout, links)
		}
	}
}

// leased reports whether all named links have a lease whose address the kernel reports.
func leased(names ...string) func(map[string]snapshot.Link) bool {
	return func(links map[string]snapshot.Link) bool {
		for _, name := range names {
			if links[name].Lease == nil || !has(links[name], links[name].Lease.Address.String()) {
				return false
			}
		}
		return true
	}
}

func has(link snapshot.Link, prefix string) bool {
	for _, p := range link.Addresses {
		if p.String() == prefix {
			return true
		}
	}
	return false
}

// routes lists the IPv4 routes of a link as text: destination, gateway, metric.
func (l *lab) routes(name string) []string {
	l.T.Helper()
	link, err := netlink.LinkByName(name)
	if err != nil {
		l.T.Fatal(err)
	}
	list, err := listing.Whole(func() ([]netlink.Route, error) { return netlink.RouteList(link, netlink.FAMILY_V4) })
	if err != nil {
		l.T.Fatal(err)
	}
	var texts []string
	for _, r := range list {
		text := "default"
		if r.Dst != nil && r.Dst.String() != "0.0.0.0/0" {
			text = r.Dst.String()
		}
		if r.Gw != nil {
			text += " via " + r.Gw.String()
		}
		texts = append(texts, fmt.Sprintf("%s src %s metric %d", text, r.Src, r.Priority))
	}
	return texts
}

func mac(t *testing.T, name string) net.HardwareAddr {
	t.Helper()
	link, err := netlink.LinkByName(name)
	if err != nil {
		t.Fatal(err)
	}
	return link.Attrs().HardwareAddr
}
