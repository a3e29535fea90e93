package inspection

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"log/slog"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/mdlayher/packet"
	"github.com/vishvananda/netlink"

	"ironroot/agent/config"
	"ironroot/agent/inventory"
	"ironroot/internal/test/testenv/nettest"
	"ironroot/netboot/lldp"
)

// golden is a frame of lldpd 1.0.16, and its TLVs in the protocol's form.
const (
	golden = "0180c200000e02000000000188cc" +
		"0207" + "04020000000001" + "0407" + "03020000000001" + "0602" + "0078" +
		"0a11" + "6c656166312e6578616d706c652e6f7267" + "0e04" + "009c0080" + "fe09" + "00120f010080000036" + "0000"
	goldenTLVs = `[[1,"04020000000001"],[2,"03020000000001"],[3,"0078"],[5,"6c656166312e6578616d706c652e6f7267"],` +
		`[7,"009c0080"],[127,"00120f010080000036"],[0,""]]`
)

// ownNetwork moves the test's goroutine into a private network namespace, with a cable from each of the links to a port
// "sw-" of the same name.
func ownNetwork(t *testing.T, links ...string) {
	t.Helper()
	nettest.EnterNamespace(t)
	for _, name := range links {
		attrs := netlink.NewLinkAttrs()
		attrs.Name = name
		if err := netlink.LinkAdd(&netlink.Veth{LinkAttrs: attrs, PeerName: "sw-" + name}); err != nil {
			t.Fatalf("veth %s: %v", name, err)
		}
		for _, end := range []string{name, "sw-" + name} {
			link, err := netlink.LinkByName(end)
			if err != nil {
				t.Fatal(err)
			}
			if err := netlink.LinkSetUp(link); err != nil {
				t.Fatalf("raise %s: %v", end, err)
			}
		}
	}
}

// talk repeatedly sends a frame from a port until the test ends.
func talk(t *testing.T, port string, frame []byte) {
	t.Helper()
	link, err := netlink.LinkByName(port)
	if err != nil {
		t.Fatal(err)
	}
	conn, err := packet.Listen(&net.Interface{Index: link.Attrs().Index}, packet.Raw, 0, nil)
	if err != nil {
		t.Fatal(err)
	}
	stop := make(chan struct{})
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		defer conn.Close()
		tick := time.NewTicker(10 * time.Millisecond)
		defer tick.Stop()
		for {
			if _, err := conn.WriteTo(frame, &packet.Addr{HardwareAddr: frame[:6]}); err != nil {
				t.Errorf("send to %s: %v", port, err)
				return
			}
			select {
			case <-tick.C:
			case <-stop:
				return
			}
		}
	}()
	t.Cleanup(func() {
		close(stop)
		<-ended
	})
}

// Received frames are reported as the protocol's pairs: in the collector's data for every interface except loopback,
// and in the inventory only with collect_lldp. A link without frames has an empty list.
func TestLLDP(t *testing.T) {
	ownNetwork(t, "nic0", "silent")
	frame, err := hex.DecodeString(golden)
	if err != nil {
		t.Fatal(err)
	}
	talk(t, "sw-nic0", frame)
	for _, tt := range []struct {
		collectors string
		collect    bool
		raw        string            // lldp_raw; "" is none
		interfaces map[string]string // lldp in the inventory
	}{
		{"default", false, "", map[string]string{"nic0": "null", "silent": "null"}},
		{"default", true, "", map[string]string{"nic0": goldenTLVs, "silent": "[]"}},
		{
			"default,lldp", false, `{"bridge0":[],"nic0":` + goldenTLVs + `,"silent":[]}`,
			map[string]string{"nic0": "null", "silent": "null"},
		},
	} {
		// The silent interface uses all of the timeout. A busy machine must deliver the frame of the other one within
		// it.
		const timeout = 6 * time.Second
		m := newMachine(t,
			&config.Config{InspectionCollectors: tt.collectors, CollectLLDP: tt.collect, LLDPTimeout: timeout})
		if err := os.RemoveAll(m.System.Sys("class/net/eth0")); err != nil {
			t.Fatal(err)
		}
		for i, name := range []string{"nic0", "silent"} {
			write(t, m.System, "sys/class/net/"+name+"/address", "52:54:00:00:00:0"+string(rune('1'+i))+"\n")
			write(t, m.System, "sys/class/net/"+name+"/device/vendor", "0x1af4\n")
		}
		write(t, m.System, "sys/class/net/bridge0/address", "52:54:00:00:00:03\n")
		write(t, m.System, "sys/class/net/lo/address", "00:00:00:00:00:00\n")
		write(t, m.System, "sys/class/net/bonding_masters", "\n")
		m.Neighbours = listen(t, "nic0", "silent")
		m.Inventory = inventory.New(inventory.Options{
			System: m.System, Neighbours: m.Neighbours, Config: m.Config,
		})
		if _, err := Run(t.Context(), m.Options); err != nil {
			t.Fatal(err)
		}
		if got := string(m.posted["lldp_raw"]); got != tt.raw {
			t.Errorf("%s: lldp_raw: got %s, want %s", tt.collectors, got, tt.raw)
		}
		var inv struct {
			Interfaces []struct {
				Name string
				LLDP json.RawMessage
			}
		}
		if err := json.Unmarshal(m.posted["inventory"], &inv); err != nil {
			t.Fatal(err)
		}
		got := map[string]string{}
		for _, i := range inv.Interfaces {
			got[i.Name] = string(i.LLDP)
		}
		if diff := cmp.Diff(tt.interfaces, got); diff != "" {
			t.Errorf("%s, collect %v: inventory differs (-want +got):\n%s", tt.collectors, tt.collect, diff)
		}
	}
}

// listener listens on the links in the namespace of the test's goroutine.
type listener struct{ *lldp.Listener }

func listen(t *testing.T, links ...string) listener {
	t.Helper()
	l := lldp.New(nil)
	t.Cleanup(l.Close)
	for _, name := range links {
		link, err := netlink.LinkByName(name)
		if err != nil {
			t.Fatal(err)
		}
		l.Open(link.Attrs().Index, name)
		l.Expect(link.Attrs().Index, true)
	}
	return listener{l}
}

func (l listener) WaitLLDP(ctx context.Context, quiet time.Duration) (map[string]lldp.Frame, error) {
	return l.Wait(ctx, quiet)
}

// deaf receives nothing and returns an error.
type deaf struct{ err error }

func (d deaf) WaitLLDP(context.Context, time.Duration) (map[string]lldp.Frame, error) {
	return nil, d.err
}

// An agent that cannot open packet sockets posts empty lists and logs the error. The inspection succeeds.
func TestLLDPWithoutCapability(t *testing.T) {
	m := newMachine(t, &config.Config{InspectionCollectors: "lldp"})
	var log strings.Builder
	m.Log = slog.New(slog.NewTextHandler(&log, nil))
	m.Neighbours = deaf{errors.New("it needs CAP_NET_RAW")}
	if _, err := Run(t.Context(), m.Options); err != nil {
		t.Fatal(err)
	}
	if got, want := string(m.posted["lldp_raw"]), `{"eth0":[]}`; got != want || string(m.posted["error"]) != "null" {
		t.Errorf("got %s and error %s, want %s and null", got, m.posted["error"], want)
	}
	if !strings.Contains(log.String(), "WARN") || !strings.Contains(log.String(), "CAP_NET_RAW") {
		t.Errorf("got log %q, want a warning that names the capability", log.String())
	}
}

// Without a listener the collector fails and posts no data.
func TestLLDPWithoutListener(t *testing.T) {
	m := newMachine(t, &config.Config{InspectionCollectors: "lldp"})
	_, err := Run(t.Context(), m.Options)
	if got, posted := m.posted["lldp_raw"]; err == nil || posted {
		t.Errorf("got %s and %v, want an error", got, err)
	}
}

func TestWantsLLDP(t *testing.T) {
	for _, tt := range []struct {
		c    config.Config
		want bool
	}{
		{config.Config{}, false},
		{config.Config{InspectionCollectors: "default,logs"}, false},
		{config.Config{InspectionCollectors: "default, lldp"}, true},
		{config.Config{CollectLLDP: true}, true},
	} {
		if got := WantsLLDP(&tt.c); got != tt.want {
			t.Errorf("collectors %q, collect_lldp %v: got %v, want %v",
				tt.c.InspectionCollectors, tt.c.CollectLLDP, got, tt.want)
		}
	}
}
