package status

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/netip"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"ironroot/internal/test/testenv"
	"ironroot/netboot/lldp"
	"ironroot/netboot/snapshot"
)

// network has a link without carrier and one whose DHCP server does not answer.
func network() []snapshot.Link {
	return []snapshot.Link{
		{Name: "eno1", MAC: net.HardwareAddr{2, 0, 0, 0, 0, 1}, Up: true},
		{Name: "eno2", MAC: net.HardwareAddr{
			2, 0, 0, 0, 0, 2,
		}, Up: true, Carrier: true, Err: errors.New("no answer from a DHCP server"), History: snapshot.History{
			DHCP:      snapshot.Attempts{Since: time.Now().Add(-9 * time.Second), Sent: 4},
			Neighbour: lldp.Neighbour{System: "leaf-3", Port: "Ethernet1/12"},
		}},
	}
}

func show(b *Board, links []snapshot.Link) {
	described := describe(links, nil, func(string) int { return 1000 })
	b.setNetwork("node", []string{"192.0.2.53", "2001:db8::53"}, links, described)
}

// A node without contact to Ironic reports after 10 s and then at increasing intervals. The intervals start again when
// contact is lost again.
func TestReport(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out testenv.Log
		b := NewBoard("1", nil)
		ctx, cancel := context.WithCancel(t.Context())
		go Reporter{Board: b, Log: slog.New(slog.NewTextHandler(&out, nil))}.Run(ctx)
		show(b, network())
		b.Ironic([]string{"https://ironic.example"})
		b.Enter(Network)
		reports := func(after time.Duration) int {
			time.Sleep(after)
			synctest.Wait()
			return strings.Count(out.String(), "not in touch")
		}
		var got []int
		for _, after := range []time.Duration{
			9 * time.Second,
			2 * time.Second, 18 * time.Second, 2 * time.Second, 38 * time.Second, 2 * time.Second, time.Hour,
		} {
			got = append(got, reports(after))
		}
		if diff := cmp.Diff([]int{0, 1, 1, 2, 2, 3, 5 + 11}, got); diff != "" {
			t.Errorf("reports by then (-want +got):\n%s", diff)
		}
		first, _, _ := strings.Cut(out.String(), "next_report=40s")
		for _, text := range []string{
			`doing="waiting for network"`, "eno2 (02:00:00:00:00:02): carrier", "neighbour leaf-3, port Ethernet1/12",
			"DHCP: asked 4 times in 19s, no answer", "no carrier on eno1", "name servers 192.0.2.53, 2001:db8::53",
			"https://ironic.example", "not tried yet", "what to do: no DHCP reply on eno2", "leaf-3 port Ethernet1/12",
		} {
			if !strings.Contains(first, text) {
				t.Errorf("the first report lacks %q:\n%s", text, first)
			}
		}
		b.Enter(Ready)
		b.HeartbeatDone(nil)
		before := reports(time.Hour)
		b.HeartbeatDone(unix.ECONNREFUSED)
		if after := reports(11 * time.Second); before != 16 || after != 17 {
			t.Errorf("got %d reports when Ironic was reached and %d when it was lost again, want 16 and 17",
				before, after)
		}
		cancel()
		synctest.Wait()
	})
}

func TestAdvice(t *testing.T) {
	dark, lit := network()[:1], network()
	good := network()
	good[1].Addresses = []netip.Prefix{netip.MustParsePrefix("192.0.2.1/24")}
	good[1].Err = nil
	for name, c := range map[string]struct {
		links []snapshot.Link
		phase Phase
		api   error
		want  string
	}{
		"nothing": {nil, Network, nil, "no network card found"},
		"dark":    {dark, Network, nil, "no carrier on any link"},
		"no DHCP": {
			lit, Network, nil,
			"no DHCP reply on eno2: check that the provisioning VLAN is untagged on leaf-3 port Ethernet1/12",
		},
		"refused":      {good, Lookup, unix.ECONNREFUSED, "is ironic-api running"},
		"all is well":  {good, Ready, nil, ""},
		"unplugged":    {dark, Ready, unix.ENETUNREACH, "no carrier on any link"},
		"not yet sure": {good, Lookup, nil, ""},
	} {
		b := NewBoard("1", nil)
		b.Enter(c.phase)
		show(b, c.links)
		b.Ironic([]string{"u"})
		if c.api != nil {
			b.Tried("u", c.api)
			b.HeartbeatDone(c.api)
		}
		got := strings.Join(b.State().Advice(), "\n")
		if !strings.HasPrefix(got, c.want) || (got == "") != (c.want == "") {
			t.Errorf("%s: got %q, want %q", name, got, c.want)
		}
	}
}

// Suggestions for adapters without an interface precede those for links.
func TestAdapterAdvice(t *testing.T) {
	b := NewBoard("1", nil)
	b.Enter(Network)
	show(b, nil)
	b.Adapters([]Adapter{
		{Address: "0000:00:03.0", ID: "1011:0019", Missing: []string{"tulip"}},
		{Address: "0000:3b:00.0", ID: "15b3:1017", Missing: []string{"mlx5_ib", "ib_ipoib"}, InfiniBand: true},
		{Address: "0000:3c:00.0", ID: "14e4:164e", Present: []string{"bnx2x"}},
		{Address: "0000:3d:00.0", ID: "1ae0:0042"},
	})
	want := []string{
		"network adapter 0000:00:03.0 (PCI ID 1011:0019) needs module tulip, which this image lacks: " +
			"add the module to a list in initramfs/modules and build the image again",
		"InfiniBand adapter 0000:3b:00.0 (PCI ID 15b3:1017) needs modules mlx5_ib, ib_ipoib, which this image lacks: " +
			"build the image with --module-groups server,infiniband",
		"network adapter 0000:3c:00.0 (PCI ID 14e4:164e) is not served by its module bnx2x: " +
			"the kernel's messages say why, such as missing firmware",
		"network adapter 0000:3d:00.0 (PCI ID 1ae0:0042) has no driver in this kernel: " +
			"use a newer kernel, or a network adapter that it supports",
	}
	if diff := cmp.Diff(want, b.State().Advice()); diff != "" {
		t.Errorf("without links (-want +got):\n%s", diff)
	}
	b.Adapters(b.State().Adapters[:1])
	show(b, network()[:1])
	if got := b.State().Advice(); len(got) != 2 || got[0] != want[0] ||
		!strings.HasPrefix(got[1], "no carrier on any link") {
		t.Errorf("with a link without carrier: got %q, want the adapter's advice and the link's", got)
	}
	good := network()
	good[1].Addresses = []netip.Prefix{netip.MustParsePrefix("192.0.2.1/24")}
	show(b, good)
	if got := b.State().Advice(); got != nil {
		t.Errorf("with an address: got %q, want no advice", got)
	}
}

func TestNameServers(t *testing.T) {
	if got := nameServers("testdata/resolv.conf"); !cmp.Equal(got, []string{"192.0.2.53", "2001:db8::53"}) {
		t.Errorf("got %q", got)
	}
	if got := nameServers("testdata/none"); got != nil {
		t.Errorf("without a file: got %q, want none", got)
	}
}
