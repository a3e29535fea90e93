//go:build linux

package netboot

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/mdlayher/packet"
	"github.com/vishvananda/netlink"

	"ironroot/internal/test/testenv/nettest"
	"ironroot/netboot/ifconfig"
	"ironroot/netboot/lldp"
	"ironroot/netboot/snapshot"
)

// neighbour sends one LLDP frame of a switch of that name (of four letters) from the other end of a cable, once it
// transmits.
func (l *lab) neighbour(name, system string) {
	l.T.Helper()
	frame := []byte("\x01\x80\xc2\x00\x00\x0e\x02\x00\x00\x00\x00\x01\x88\xcc" +
		"\x02\x07\x04\x02\x00\x00\x00\x00\x01" + "\x04\x05\x05swp1" + "\x06\x02\x00\x78" + "\x0a\x04" +
		system + "\x00\x00")
	l.Peer(func() error {
		if err := nettest.WaitActive(l.Ctx, "peer-"+name); err != nil {
			return err
		}
		link, err := netlink.LinkByName("peer-" + name)
		if err != nil {
			return err
		}
		conn, err := packet.Listen(&net.Interface{Index: link.Attrs().Index}, packet.Raw, 0, nil)
		if err != nil {
			return err
		}
		defer conn.Close()
		_, err = conn.WriteTo(frame, &packet.Addr{HardwareAddr: frame[:6]})
		return err
	})
}

func isUp(names ...string) func(map[string]snapshot.Link) bool {
	return func(links map[string]snapshot.Link) bool {
		return !slices.ContainsFunc(names, func(name string) bool { return !links[name].Up || !links[name].Carrier })
	}
}

// Frames are heard by themselves while the network starts: who asks later gets them at once. A link without a carrier
// is waited for only as long as it may still get one, a silent one for one silence, and one that appears late is
// heard.
func TestNetworkHearsLLDP(t *testing.T) {
	l, inside := inNamespace(t)
	if !inside {
		return
	}
	l.Cable("nic0", "")
	l.Cable("nic1", "")
	l.Cable("unplugged", "")
	l.SetPeer("unplugged", false)
	n := l.start()
	l.until(n, "the links are up", isUp("nic0", "nic1"))
	l.neighbour("nic0", "leaf")
	l.neighbour("nic1", "spin")
	started := time.Now()
	frames, err := n.WaitLLDP(l.Ctx, nettest.Timeout)
	if err != nil {
		t.Fatal(err)
	}
	if took := time.Since(started); took > nettest.Timeout/2 {
		t.Errorf("waited %v, want no longer than the carrier is waited for, %v", took, quick.noCarrier)
	}
	check := func(frames map[string]lldp.Frame, want map[string]string) {
		t.Helper()
		if len(frames) != len(want) {
			t.Errorf("got %d links, want %d", len(frames), len(want))
		}
		for name, system := range want {
			if f, ok := frames[name]; !ok || f.Neighbour().System != system {
				t.Errorf("%s: got %v %+v, want system %q", name, ok, f, system)
			}
		}
	}
	check(frames, map[string]string{"nic0": "leaf", "nic1": "spin", "unplugged": ""})

	// A link that appears late, and one that is plugged in.
	l.Cable("late", "")
	l.SetPeer("unplugged", true)
	l.until(n, "all links are up", isUp("late", "unplugged"))
	l.neighbour("unplugged", "edge")
	frames, err = n.WaitLLDP(l.Ctx, 5*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	check(frames, map[string]string{"nic0": "leaf", "nic1": "spin", "unplugged": "edge", "late": ""})
	if err := netlink.LinkDel(ifconfig.ByIndex(l.until(n, "", isUp("nic0"))["nic0"].Index)); err != nil {
		t.Fatal(err)
	}
	l.until(n, "nic0 is gone", func(links map[string]snapshot.Link) bool { _, there := links["nic0"]; return !there })
	check(n.LLDP(), map[string]string{"nic1": "spin", "unplugged": "edge", "late": ""})

	if err := n.Down(l.Ctx); err != nil {
		t.Fatal(err)
	}
	if _, err := n.WaitLLDP(l.Ctx, time.Hour); err == nil {
		t.Error("network that is down: got no error")
	}
}

// fakeFirmware records its calls with the state of the link.
type fakeFirmware struct {
	mu    sync.Mutex
	calls []string
}

func (f *fakeFirmware) note(call string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.calls = append(f.calls, call)
}

func (f *fakeFirmware) Stop(name string) error {
	link, err := netlink.LinkByName(name)
	if err != nil {
		return err
	}
	f.note(fmt.Sprintf("stop %s up=%v", name, link.Attrs().Flags&net.FlagUp != 0))
	return errors.New("locked down")
}

func (f *fakeFirmware) Restore() error { f.note("restore"); return nil }

func (f *fakeFirmware) RestorePersistent() error { f.note("restore persistent"); return nil }

// LLDP agents in the firmware of cards are stopped only if the options request it, before the link is raised, and
// started again when the network ends. A failure to stop one is a warning, and the link is used.
//
// Parity: F6
func TestNetworkStopsFirmwareLLDP(t *testing.T) {
	l, inside := inNamespace(t)
	if !inside {
		return
	}
	l.Cable("nic0", "")
	for _, wanted := range []bool{false, true} {
		var log strings.Builder
		firmware := &fakeFirmware{}
		ctx, cancel := context.WithCancel(l.Ctx)
		n, err := Start(ctx, Config{
			Log: slog.New(slog.NewTextHandler(&log, nil)), virtual: true,
			ResolvConf: l.resolv,
			timing:     quick, StopFirmwareLLDP: wanted, firmware: firmware,
		})
		if err != nil {
			t.Fatal(err)
		}
		l.until(n, "the link is up", isUp("nic0"))
		if err := n.RestoreFirmwareLLDP(true); err != nil {
			t.Error(err)
		}
		cancel()
		<-n.watching
		var want []string
		warnings := 0
		if wanted {
			want, warnings = []string{"stop nic0 up=false", "restore persistent", "restore"}, 1
		}
		if diff := cmp.Diff(want, firmware.calls); diff != "" {
			t.Errorf("wanted %v: calls differ (-want +got):\n%s", wanted, diff)
		}
		if got := strings.Count(log.String(), "locked down"); got != warnings {
			t.Errorf("wanted %v: got %d warnings, want %d: %s", wanted, got, warnings, log.String())
		}
		if err := netlink.LinkSetDown(ifconfig.ByIndex(index(t, "nic0"))); err != nil {
			t.Fatal(err)
		}
	}
}

func index(t *testing.T, name string) int {
	t.Helper()
	link, err := netlink.LinkByName(name)
	if err != nil {
		t.Fatal(err)
	}
	return link.Attrs().Index
}
