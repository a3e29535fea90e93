package lldp

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/mdlayher/packet"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"ironroot/internal/test/testenv"
	"ironroot/internal/test/testenv/nettest"
)

// cable makes a pair of links, nic and its switch's port "sw-"+nic. Both are up if up is true.
func cable(t *testing.T, nic string, up bool) (index int) {
	t.Helper()
	attrs := netlink.NewLinkAttrs()
	attrs.Name, attrs.MTU = nic, 9500
	if err := netlink.LinkAdd(&netlink.Veth{LinkAttrs: attrs, PeerName: "sw-" + nic, PeerMTU: 9500}); err != nil {
		t.Fatalf("veth %s: %v", nic, err)
	}
	if up {
		raise(t, nic)
	}
	return byName(t, nic).Attrs().Index
}

func raise(t *testing.T, nic string) {
	t.Helper()
	for _, name := range []string{nic, "sw-" + nic} {
		if err := netlink.LinkSetUp(byName(t, name)); err != nil {
			t.Fatalf("raise %s: %v", name, err)
		}
	}
}

func byName(t *testing.T, name string) netlink.Link {
	t.Helper()
	link, err := netlink.LinkByName(name)
	if err != nil {
		t.Fatal(err)
	}
	return link
}

// send sends a frame from the switch's port, once it transmits.
func send(t *testing.T, nic string, frame []byte) {
	t.Helper()
	if err := nettest.WaitActive(t.Context(), "sw-"+nic); err != nil {
		t.Fatal(err)
	}
	conn, err := packet.Listen(&net.Interface{Index: byName(t, "sw-"+nic).Attrs().Index}, packet.Raw, 0, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := conn.WriteTo(frame, &packet.Addr{HardwareAddr: frame[:6]}); err != nil {
		t.Fatalf("send to %s: %v", nic, err)
	}
}

// tlv encodes a TLV.
func tlv(kind int, value string) string {
	return string(binary.BigEndian.AppendUint16(nil, uint16(kind<<9|len(value)))) + value
}

const end = "\x00\x00"

// frame adds an Ethernet header for the nearest bridge to TLVs.
func frame(tlvs ...string) []byte {
	return []byte("\x01\x80\xc2\x00\x00\x0e\x02\x00\x00\x00\x00\x01\x88\xcc" + strings.Join(tlvs, ""))
}

// from returns the frame of a switch with a name.
func from(system string, more ...string) []byte {
	return frame(append([]string{
		tlv(1, "\x04\x02\x00\x00\x00\x00\x01"), tlv(2, "\x05swp1"), tlv(3, "\x00\x78"), tlv(5, system),
	}, append(more, end)...)...)
}

// count returns how often a text is in a log.
func count(log *testenv.Log, text string) int { return strings.Count(log.String(), text) }

func newListener(t *testing.T) (*Listener, *testenv.Log) {
	t.Helper()
	j := &testenv.Log{}
	l := New(slog.New(slog.NewTextHandler(j, &slog.HandlerOptions{Level: slog.LevelDebug})))
	t.Cleanup(func() {
		l.Close()
		t.Log(j.String())
	})
	return l, j
}

// until waits until a link's newest frame is from a system.
func until(t *testing.T, l *Listener, nic, system string) Frame {
	t.Helper()
	limit := time.After(nettest.Timeout)
	for {
		l.mu.Lock()
		changed := l.changed
		l.mu.Unlock()
		f := l.Frames()[nic]
		if f.Neighbour().System == system {
			return f
		}
		select {
		case <-changed:
		case <-limit:
			t.Fatalf("%s: no frame of %q after %v: %+v", nic, system, nettest.Timeout, f)
		}
	}
}

// systems maps frames to system names; "-" is a link without a frame.
func systems(frames map[string]Frame) map[string]string {
	result := map[string]string{}
	for name, f := range frames {
		if result[name] = f.Neighbour().System; f.TLVs == nil {
			result[name] = "-"
		}
	}
	return result
}

// Frames are received on all links, from before they are up and by all three groups. A silent link costs one timeout.
func TestListener(t *testing.T) {
	if !nettest.Namespace(t) {
		return
	}
	l, log := newListener(t)
	started := time.Now()
	for i, nic := range []string{"nic0", "nic1", "nic2", "silent", "unplugged"} {
		index := cable(t, nic, false)
		l.Open(index, nic)
		l.Expect(index, nic != "unplugged")
		raise(t, nic)
		if i < 3 {
			f := from("leaf" + nic[3:])
			f[5] = groups()[i][5]
			send(t, nic, f)
		}
	}
	for i, nic := range []string{"nic0", "nic1", "nic2"} {
		until(t, l, nic, fmt.Sprintf("leaf%d", i))
	}
	const quiet = time.Second
	frames, err := l.Wait(t.Context(), quiet)
	if err != nil {
		t.Fatal(err)
	}
	if took := time.Since(started); took < quiet {
		t.Errorf("got an answer after %v, want the silent link to be waited for %v", took, quiet)
	}
	want := map[string]string{"nic0": "leaf0", "nic1": "leaf1", "nic2": "leaf2", "silent": "-", "unplugged": "-"}
	if diff := cmp.Diff(want, systems(frames)); diff != "" {
		t.Errorf("frames differ (-want +got):\n%s", diff)
	}
	if count(log, `level=INFO msg="LLDP neighbour found" interface=nic1 system=leaf1 port=swp1`) != 1 {
		t.Error("want the neighbour of nic1 in the log once")
	}
	// Wait returns at once for links with a frame or after a timeout; an hour would exceed the test's limit.
	if frames, err = l.Wait(t.Context(), time.Hour); err != nil || len(frames) != len(want) {
		t.Errorf("second wait: got %v, %v", systems(frames), err)
	}
	// The newest frame is kept.
	send(t, "nic0", from("spine0"))
	until(t, l, "nic0", "spine0")
	if count(log, "LLDP neighbour found") != 3 {
		t.Error("want each neighbour in the log once")
	}
	if byName(t, "nic0").Attrs().Promisc != 0 {
		t.Error("nic0 is promiscuous, want a member of groups only")
	}
}

// The first frame of a link restarts the timeout of the others.
func TestWaitRestartsAfterEveryArrival(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const quiet = time.Minute
		l := New(nil)
		for index, nic := range []string{"nic0", "nic1", "silent"} {
			l.ports[index] = &port{name: nic}
			l.Expect(index, true)
		}
		started := time.Now()
		go func() {
			for index, nic := range []string{"nic0", "nic1"} {
				time.Sleep(quiet / 2)
				l.receive(l.ports[index], from("leaf-"+nic))
			}
		}()
		frames, err := l.Wait(t.Context(), quiet)
		if err != nil {
			t.Fatal(err)
		}
		if took := time.Since(started); took != 2*quiet {
			t.Errorf("waited %v, want %v", took, 2*quiet)
		}
		diff := cmp.Diff(map[string]string{"nic0": "leaf-nic0", "nic1": "leaf-nic1", "silent": "-"}, systems(frames))
		if diff != "" {
			t.Errorf("frames differ (-want +got):\n%s", diff)
		}
	})
}

// Wait does not wait for a link that has been silent for long enough, but for one that has just got its carrier.
func TestSilenceBeforeCounts(t *testing.T) {
	if !nettest.Namespace(t) {
		return
	}
	l, _ := newListener(t)
	index := cable(t, "silent", true)
	l.Open(index, "silent")
	l.Expect(index, true)
	ago := func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.ports[index].since = time.Now().Add(-time.Hour)
	}
	ago()
	if frames, err := l.Wait(t.Context(), time.Hour); err != nil || len(frames) != 1 {
		t.Errorf("got %v, %v, want the silent link at once", systems(frames), err)
	}
	for name, restart := range map[string]func(){
		"carrier after a wait for it": func() { l.ports[index].silent = false; ago(); l.Begin(index) },
		"carrier lost and found":      func() { ago(); l.Expect(index, false); l.Expect(index, true) },
	} {
		restart()
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		if _, err := l.Wait(ctx, time.Hour); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%s: got %v, want that it is waited for", name, err)
		}
		cancel()
	}
}

// A link that goes down and up again, is renamed, gets malformed frames or is removed loses no more than necessary.
func TestListenerOverTime(t *testing.T) {
	if !nettest.Namespace(t) {
		return
	}
	l, log := newListener(t)
	index := cable(t, "nic0", true)
	l.Open(index, "nic0")
	send(t, "nic0", from("leaf1"))
	until(t, l, "nic0", "leaf1")
	if err := netlink.LinkSetDown(byName(t, "nic0")); err != nil {
		t.Fatal(err)
	}
	raise(t, "nic0")
	send(t, "nic0", from("leaf2"))
	until(t, l, "nic0", "leaf2")

	send(t, "nic0", frame(tlv(1, "\x04\x02\x00\x00\x00\x00\x01"), tlv(5, "broken"), "\xff"))
	big := from("leaf3", strings.Repeat(tlv(127, strings.Repeat("x", 511)), 17), tlv(127, strings.Repeat("y", 400)))
	if len(big) > maxFrame || len(big) < maxFrame-100 {
		t.Fatalf("frame of %d bytes, want close to %d", len(big), maxFrame)
	}
	send(t, "nic0", big)
	f := until(t, l, "nic0", "leaf3")
	if !f.Complete || len(f.TLVs) != 4+17+1+1 || len(f.TLVs[4].Value) != 511 {
		t.Errorf("large frame: got %d TLVs, complete %v", len(f.TLVs), f.Complete)
	}
	// The malformed frame arrived in between and did not replace the stored one.
	if count(log, "malformed LLDP frame") != 1 {
		t.Error("want one malformed frame in the log")
	}

	// It says good-bye.
	send(t, "nic0", frame(tlv(1, "\x04\x02\x00\x00\x00\x00\x01"), tlv(2, "\x05swp1"), tlv(3, "\x00\x00"), end))
	until(t, l, "nic0", "")
	l.Open(index, "renamed")
	send(t, "nic0", from("leaf4"))
	until(t, l, "renamed", "leaf4")
	if err := netlink.LinkDel(byName(t, "nic0")); err != nil {
		t.Fatal(err)
	}
	l.Forget(index)
	if got := l.Frames(); len(got) != 0 {
		t.Errorf("after the link is gone: got %v, want nothing", got)
	}
	l.Close()
	if count(log, "WARN") != 0 {
		t.Error("want no warning in the log")
	}
}

// A frame that exceeds the limit is truncated, and its TLVs before that are valid.
func TestListenerCutsHugeFrames(t *testing.T) {
	if !nettest.Namespace(t) {
		return
	}
	l, _ := newListener(t)
	l.Open(cable(t, "nic0", true), "nic0")
	send(t, "nic0", from("leaf1", strings.Repeat(tlv(127, strings.Repeat("x", 511)), 18)))
	f := until(t, l, "nic0", "leaf1")
	if f.Complete || len(f.TLVs) != 4+17 {
		t.Errorf("got %d TLVs, complete %v, want 21 of a frame that is not complete", len(f.TLVs), f.Complete)
	}
}

// Frames are received on 150 links, each with a neighbour of its own.
func TestListenerHearsManyLinks(t *testing.T) {
	if !nettest.Namespace(t) {
		return
	}
	const links = 150
	l, log := newListener(t)
	want := map[string]string{}
	for i := range links {
		name := fmt.Sprintf("nic%d", i)
		index := cable(t, name, true)
		l.Open(index, name)
		l.Expect(index, true)
		want[name] = "leaf-" + name
		send(t, name, from(want[name]))
	}
	frames, err := l.Wait(t.Context(), nettest.Timeout)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, systems(frames)); diff != "" {
		t.Errorf("frames differ (-want +got):\n%s", diff)
	}
	if count(log, "level=WARN") != 0 {
		t.Error("want no warning in the log")
	}
	for name := range want {
		l.Forget(byName(t, name).Attrs().Index)
	}
	if l.stored != 0 {
		t.Errorf("without links: got %d bytes of frames, want 0", l.stored)
	}
}

// The number of links has a limit, which is logged once. After a link is removed, another one can be opened.
func TestListenerBoundsLinks(t *testing.T) {
	if !nettest.Namespace(t) {
		return
	}
	l, log := newListener(t)
	for i := range maxLinks - 1 {
		l.ports[-1-i] = &port{name: fmt.Sprintf("other%d", i), closed: true}
	}
	t.Cleanup(func() { // before the listener is closed: these links have no socket
		for i := range maxLinks - 1 {
			delete(l.ports, -1-i)
		}
	})
	indexes := map[string]int{}
	for _, name := range []string{"nic0", "nic1", "nic2"} {
		indexes[name] = cable(t, name, true)
		l.Open(indexes[name], name)
	}
	if got := len(l.Frames()); got != maxLinks {
		t.Errorf("got %d links, want %d", got, maxLinks)
	}
	if got := count(log, "too many links"); got != 1 {
		t.Errorf("got %d warnings of too many links, want 1", got)
	}
	l.Forget(indexes["nic0"])
	l.Open(indexes["nic2"], "nic2")
	send(t, "nic2", from("leaf2"))
	until(t, l, "nic2", "leaf2")
}

// The memory for frames has a limit, which is logged once. A dropped frame does not replace a stored one, and a
// smaller frame frees memory for others.
func TestListenerBoundsFrames(t *testing.T) {
	l, log := newListener(t)
	many := from("leaf0", strings.Repeat(tlv(127, ""), (maxFrame-100)/2)) // the worst case: TLVs without a value
	f, err := Parse(many)
	if err != nil {
		t.Fatal(err)
	}
	ports := make([]*port, maxStored/f.memory()+3)
	for i := range ports {
		ports[i] = &port{name: fmt.Sprintf("nic%d", i)}
		l.receive(ports[i], many)
		if l.stored > maxStored {
			t.Fatalf("after %d frames: got %d bytes of frames, want at most %d", i+1, l.stored, maxStored)
		}
	}
	full, next := ports[0], ports[len(ports)-1]
	if next.frame.TLVs != nil || count(log, "frame dropped") != 1 {
		t.Errorf("got %d TLVs of the last link, want none and one warning", len(next.frame.TLVs))
	}
	l.receive(full, from("leaf1"))
	l.receive(next, many)
	if got := full.frame.Neighbour().System; got != "leaf1" || next.frame.TLVs == nil {
		t.Errorf("after a smaller frame: got system %q and %d TLVs of the last link, want leaf1 and a frame",
			got, len(next.frame.TLVs))
	}
	l.receive(full, many)
	if got := full.frame.Neighbour().System; got != "leaf1" {
		t.Errorf("after a dropped frame: got system %q, want leaf1", got)
	}
}

// A link that cannot be opened is a warning, and frames are received on the others.
func TestOneSocketFails(t *testing.T) {
	if !nettest.Namespace(t) {
		return
	}
	l, log := newListener(t)
	index := cable(t, "nic0", true)
	l.Open(index+1000, "broken")
	l.Expect(index+1000, true)
	l.Open(index, "nic0")
	l.Expect(index, true)
	send(t, "nic0", from("leaf1"))
	frames, err := l.Wait(t.Context(), nettest.Timeout)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(map[string]string{"nic0": "leaf1"}, systems(frames)); diff != "" {
		t.Errorf("frames differ (-want +got):\n%s", diff)
	}
	if count(log, "level=WARN") != 1 || count(log, "interface=broken") != 1 {
		t.Error("want one warning, of the broken link")
	}
}

// Wait ends with its context and with the listener.
func TestWaitEnds(t *testing.T) {
	if !nettest.Namespace(t) {
		return
	}
	l, _ := newListener(t)
	index := cable(t, "nic0", true)
	l.Open(index, "nic0")
	l.Expect(index, true)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := l.Wait(ctx, time.Hour); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want %v", err, context.Canceled)
	}
	time.AfterFunc(50*time.Millisecond, l.Close)
	frames, err := l.Wait(t.Context(), time.Hour)
	if !errors.Is(err, ErrClosed) || len(frames) != 1 {
		t.Errorf("got %v and %d links, want %v and 1", err, len(frames), ErrClosed)
	}
}

// OnDemand opens all links, and does not wait for those without a carrier.
func TestOnDemand(t *testing.T) {
	if !nettest.Namespace(t) {
		return
	}
	cable(t, "nic0", true)
	cable(t, "nic1", false)
	sending, stop := context.WithCancel(t.Context())
	defer stop()
	go func() {
		for tick := time.NewTicker(20 * time.Millisecond); sending.Err() == nil; <-tick.C {
			send(t, "nic0", from("leaf1"))
		}
	}()
	frames, err := OnDemand{}.WaitLLDP(t.Context(), 5*time.Second) // sw-nic0 is silent
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]string{"nic0": "leaf1", "sw-nic0": "-", "nic1": "-", "sw-nic1": "-"}
	if diff := cmp.Diff(want, systems(frames)); diff != "" {
		t.Errorf("frames differ (-want +got):\n%s", diff)
	}
}

// Without the capability to open packet sockets, the error names it.
func TestWithoutCapability(t *testing.T) {
	if !nettest.Namespace(t) {
		return
	}
	cable(t, "nic0", true)
	testenv.DropCapability(t, 13) // CAP_NET_RAW
	_, err := OnDemand{}.WaitLLDP(t.Context(), time.Second)
	if !errors.Is(err, unix.EPERM) || !strings.Contains(err.Error(), "CAP_NET_RAW") {
		t.Errorf("got %v, want %v and the name of the capability", err, unix.EPERM)
	}
}

// panicOnce is a log handler that panics at the first neighbour.
type panicOnce struct {
	slog.Handler
	panicked *atomic.Bool
}

func (h panicOnce) Handle(ctx context.Context, r slog.Record) error {
	if r.Message == "LLDP neighbour found" && !h.panicked.Swap(true) {
		panic("oops")
	}
	return h.Handler.Handle(ctx, r)
}

// A frame that causes a panic is dropped, and the link still receives frames.
func TestListenerContainsPanics(t *testing.T) {
	testenv.ExpectPanics(t)
	if !nettest.Namespace(t) {
		return
	}
	var panicked atomic.Bool
	l := New(slog.New(panicOnce{slog.NewTextHandler(io.Discard, nil), &panicked}))
	defer l.Close()
	index := cable(t, "nic0", true)
	l.Open(index, "nic0")
	send(t, "nic0", from("first"))
	until(t, l, "nic0", "first")
	send(t, "nic0", from("second"))
	until(t, l, "nic0", "second")
	if !panicked.Load() {
		t.Error("nothing panicked")
	}
}
