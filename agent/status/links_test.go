package status

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"ironroot/netboot/dhcp4"
	"ironroot/netboot/lldp"
	"ironroot/netboot/snapshot"
	"ironroot/storage/sysfs"
)

// source is a network whose links a test changes.
type source struct {
	mu      sync.Mutex
	links   []snapshot.Link
	changed chan struct{}
}

func (s *source) Links() []snapshot.Link {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.links
}

func (s *source) Changed() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.changed
}

func (s *source) LLDP() map[string]lldp.Frame {
	name := func(id byte) lldp.TLV { return lldp.TLV{Type: 127, Value: []byte{0, 0x80, 0xc2, 3, 0, id, 0}} }
	return map[string]lldp.Frame{"test0": {TLVs: []lldp.TLV{name(7), name(9)}}}
}

func (s *source) set(links ...snapshot.Link) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.links = links
	close(s.changed)
	s.changed = make(chan struct{})
}

// The board shows the links of the network and their changes until the context ends.
func TestFollow(t *testing.T) {
	s := &source{changed: make(chan struct{})}
	b := NewBoard("1", nil)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ended := make(chan struct{})
	first := b.Changed()
	go func() {
		defer close(ended)
		b.Follow(ctx, s)
	}()
	<-first
	host, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	if got := b.State(); got.Hostname != host || got.Links != nil {
		t.Errorf("without links: got host name %q and links %v, want %q and none", got.Hostname, got.Links, host)
	}
	second := b.Changed()
	s.set(snapshot.Link{Name: "test0", MAC: net.HardwareAddr{2, 0, 0, 0, 0, 1}, Up: true, Carrier: true})
	<-second
	want := []Link{{Name: "test0", MAC: "02:00:00:00:00:01", Up: true, Carrier: true, VLANs: []int{7, 9}}}
	diff := cmp.Diff(want, b.State().Links, cmp.Comparer(func(a, b netip.Prefix) bool { return a == b }))
	if diff != "" {
		t.Errorf("links (-want +got):\n%s", diff)
	}
	cancel()
	<-ended
}

func TestDescribe(t *testing.T) {
	silent := errors.New("no answer")
	prefix := netip.MustParsePrefix
	asked := func(times int) snapshot.History { return snapshot.History{DHCP: snapshot.Attempts{Sent: times}} }
	rejected := asked(3)
	rejected.DHCP.Rejected = "no address in it"
	got := describe([]snapshot.Link{
		{Name: "dark"},
		{Name: "lit", Carrier: true, Addresses: []netip.Prefix{
			prefix("fe80::1/64"), prefix("192.0.2.1/24"), prefix("127.0.0.1/8"),
		}},
		{Name: "rejected", Err: silent, History: rejected},
		{Name: "asked", Err: silent, History: asked(3)},
		{Name: "once", Err: silent, History: asked(1)},
		{Name: "leased", Err: silent, Lease: &dhcp4.Lease{}, History: asked(3)},
		{Name: "well", History: asked(3)},
	}, nil, func(link string) int { return len(link) })
	want := []Link{
		{Name: "dark"},
		{Name: "lit", Carrier: true, Speed: 3, Addresses: []netip.Prefix{prefix("192.0.2.1/24")}},
		{Name: "rejected", Trouble: "no address in it"},
		{Name: "asked", Trouble: "no answer to 3 requests"},
		{Name: "once", Trouble: "no answer"},
		{Name: "leased", Trouble: "no answer"},
		{Name: "well"},
	}
	if diff := cmp.Diff(want, got, cmp.Comparer(func(a, b netip.Prefix) bool { return a == b })); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestLinkSpeed(t *testing.T) {
	for text, want := range map[string]int{"1000\n": 1000, "-1\n": 0, "": 0, "fast\n": 0} {
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, "speed"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if got := linkSpeed(&sysfs.Reader{}, dir); got != want {
			t.Errorf("%q: got %d, want %d", text, got, want)
		}
	}
	if got := linkSpeed(&sysfs.Reader{}, t.TempDir()); got != 0 {
		t.Errorf("without a file: got %d, want 0", got)
	}
}

func TestSpeedText(t *testing.T) {
	for speed, want := range map[int]string{
		-1: "", 0: "", 10: "10 Mbit/s", 1000: "1 Gbit/s", 2500: "2.5 Gbit/s", 25000: "25 Gbit/s", 1500: "1500 Mbit/s",
	} {
		if got := (&Link{Speed: speed}).SpeedText(); got != want {
			t.Errorf("%d: got %q, want %q", speed, got, want)
		}
	}
}

func TestPort(t *testing.T) {
	for want, n := range map[string]lldp.Neighbour{
		"": {}, "leaf-3": {System: "leaf-3"}, "port Eth1": {Port: "Eth1"},
		"leaf-3 port Eth1": {System: "leaf-3", Port: "Eth1"},
	} {
		if got := (&Link{Neighbour: n}).Port(); got != want {
			t.Errorf("%+v: got %q, want %q", n, got, want)
		}
	}
}
