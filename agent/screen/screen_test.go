package screen

import (
	"bytes"
	"crypto/x509"
	"errors"
	"flag"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"ironroot/agent/advice"
	"ironroot/agent/status"
	"ironroot/netboot/lldp"
)

var update = flag.Bool("update", false, "write the golden screens")

const uuid = "4c9e53e9-138a-489f-a945-d4844245b7ee"

func at(clock string) time.Time {
	t, err := time.Parse(time.TimeOnly, clock)
	if err != nil {
		panic(err)
	}
	return t
}

func prefixes(texts ...string) []netip.Prefix {
	var list []netip.Prefix
	for _, text := range texts {
		list = append(list, netip.MustParsePrefix(text))
	}
	return list
}

func logLines(n int) []string {
	var lines []string
	for i := range n {
		lines = append(lines,
			fmt.Sprintf("15:15:%02d.000 INFO  line %d of the log interface=eth%d address=2001:db8::%d server=192.0.2.1",
				i, i, i, i))
	}
	return lines
}

func links() []status.Link {
	return []status.Link{
		{
			Name: "eno1", Up: true, Carrier: true, Speed: 25000, Addresses: prefixes("192.0.2.15/24"),
			Neighbour: lldp.Neighbour{System: "leaf-3", Port: "Ethernet1/12"},
		},
		{Name: "eno2", Up: true},
		{Name: "eno3", Up: true},
	}
}

func ready() status.State {
	return status.State{
		Version: "1.0.0", Hostname: "node-17", Phase: status.Ready, NodeUUID: uuid, NodeName: "rack-4-node-17",
		Links: links(), APIs: []status.API{{URL: "https://ironic.example:6385", Tried: at("15:15:43")}},
		Beat: status.Beat{Accepted: at("15:15:43")},
	}
}

func operators() status.State {
	s := ready()
	s.HostKeys = []string{
		"ssh-ed25519 SHA256:2XAlsNjDnF1OSgZsRZcYzWCQ8hHHlO0C5fJPC5mv4dQ",
		"ecdsa-sha2-nistp256 SHA256:jkS5sVTZm5lWpl0mPbNYJkqnzMYlLMcYRxoFaAtyKcg",
	}
	return s
}

func executing() status.State {
	s := ready()
	s.Command = status.Command{Name: "deploy.execute_deploy_step", Step: "write_image", Started: at("15:16:00")}
	s.Work = []status.Progress{{
		What: "writing image", Device: "/dev/nvme0n1", Phase: "transfer", Attempt: 2, Done: 420 << 20,
		Total: 1000 << 20, Rate: 110 << 20,
	}}
	return s
}

func manyDisks() status.State {
	s := ready()
	s.Command = status.Command{Name: "clean.execute_clean_step", Step: "erase_devices", Started: at("15:16:00")}
	for i := range 6 {
		s.Work = append(s.Work, status.Progress{
			What: "erasing disk", Device: fmt.Sprintf("/dev/sd%c", 'a'+i), Done: int64(i) << 40, Total: 16 << 40,
			Rate: 200 << 20,
		})
	}
	return s
}

func failed() status.State {
	s := ready()
	s.Command = status.Command{
		Name: "deploy.execute_deploy_step",
		Step: "write_image", Started: at("15:16:00"), Ended: at("15:17:30"), Failed: true,
	}
	s.Problems = []status.Problem{{
		Source: "command",
		Text: "Error verifying image checksum: Image failed to verify against checksum. location: /dev/sda; " +
			"image ID: 7d4c; image checksum: 8a1c9b; verification checksum: 93b1ff",
		Advice: "the image is not the one its checksum was made of",
	}}
	return s
}

func noDHCP() status.State {
	return status.State{Version: "1.0.0", Hostname: "ironroot", Phase: status.Network, Links: []status.Link{
		{
			Name: "eno1", Up: true, Carrier: true, Speed: 1000,
			Neighbour: lldp.Neighbour{System: "leaf-3", Port: "Ethernet1/12"}, VLANs: []int{100, 200},
			Trouble: "no answer from a DHCP server to 4 requests",
		},
		{Name: "eno2", Up: true},
	}, APIs: []status.API{{URL: "https://ironic.example:6385"}}}
}

func noCarrier() status.State {
	s := noDHCP()
	s.Links = []status.Link{{Name: "eno1", Up: true}, {Name: "eno2", Up: true}}
	return s
}

func noDriver() status.State {
	s := noDHCP()
	s.Links = nil
	s.Adapters = []status.Adapter{
		{Address: "0000:00:03.0", ID: "1011:0019", Missing: []string{"tulip"}},
		{Address: "0000:3b:00.0", ID: "15b3:1017", Missing: []string{"ib_ipoib"}, InfiniBand: true},
		{Address: "0000:3c:00.0", ID: "14e4:164e", Present: []string{"bnx2x"}},
		{Address: "0000:3d:00.0", ID: "1ae0:0042"},
		{Address: "0000:3e:00.0", ID: "1ae0:0042"},
	}
	return s
}

func noTrust() status.State {
	s := ready()
	s.Phase, s.NodeUUID, s.Beat = status.Lookup, "", status.Beat{}
	s.APIs = []status.API{
		{
			URL: "https://ironic-a.example:6385", Tried: at("15:15:43"),
			Trouble: "TLS: certificate signed by unknown authority", Advice: advice.For(x509.UnknownAuthorityError{}),
		},
		{
			URL: "https://ironic-b.example:6385", Tried: at("15:15:44"), Trouble: "connection refused",
			Advice: advice.For(unix.ECONNREFUSED),
		},
	}
	return s
}

// longNames has only IPv6 and names of maximum length, on the smallest screen.
func longNames() status.State {
	s := ready()
	s.Hostname = strings.Repeat("a-very-long-host-name.", 4) + "example"
	s.NodeName = strings.Repeat("long", 20)
	s.APIs[0].URL = "https://[2001:db8:1111:2222:3333:4444:5555:6666]:6385/with/a/long/path"
	s.Links = []status.Link{{
		Name: "enp129s0f0np0", Up: true, Carrier: true, Speed: 100000,
		Neighbour: lldp.Neighbour{System: "spine-über.example", Port: "HundredGigE0/0/0/31"},
		Addresses: prefixes("2001:db8:1111:2222:3333:4444:5555:7777/64", "fd00:1111:2222:3333:4444:5555:6666:8888/64"),
	}}
	return s
}

func manyLinks() status.State {
	s := ready()
	s.Links = nil
	for i := range 40 {
		s.Links = append(s.Links, status.Link{
			Name: fmt.Sprintf("ens%df0", i), Up: true, Carrier: i%2 == 0, Speed: 10000,
			Addresses: prefixes(fmt.Sprintf("198.51.100.%d/24", i+1)),
		})
	}
	return s
}

// done is a command that succeeded while heartbeats fail, on a node without a name.
func done() status.State {
	s := ready()
	s.NodeName, s.Beat.Failed = "", true
	s.Command = status.Command{
		Name: "clean.execute_clean_step", Step: "erase_devices", Started: at("15:16:00"), Ended: at("15:17:30"),
	}
	return s
}

// unmeasured is work with an unknown total, before the first accepted heartbeat.
func unmeasured() status.State {
	s := ready()
	s.Beat = status.Beat{Failed: true}
	s.Command = status.Command{Name: "image.install_bootloader", Started: at("15:16:00")}
	s.Work = []status.Progress{{What: "unpacking image", Device: "/dev/sda", Done: 420 << 20, Rate: 110 << 20}}
	return s
}

// managers is the work of custom hardware managers, of which one reports no percentage.
func managers() status.State {
	s := ready()
	s.Command = status.Command{
		Name: "clean.execute_clean_step", Step: "update_firmware", Started: at("15:16:00"),
	}
	s.Work = []status.Progress{
		{
			What: "hardware manager", Device: "acme", Phase: "writing", Done: 25e7, Total: 1e9, Rate: 1e7, Parts: true,
		},
		{What: "hardware manager", Device: "site", Phase: "waiting for the adapter", Parts: true},
	}
	return s
}

func locked() status.State {
	s := ready()
	s.Phase = status.Lockdown
	return s
}

type picture struct {
	state         status.State
	log           int
	width, height int
}

func pictures() map[string]picture {
	return map[string]picture{
		"starting":   {status.State{Version: "1.0.0"}, 3, 80, 25},
		"no-carrier": {noCarrier(), 5, 80, 25},
		"no-dhcp":    {noDHCP(), 5, 80, 25},
		"no-driver":  {noDriver(), 5, 80, 25},
		"no-trust":   {noTrust(), 30, 80, 25},
		"ready":      {ready(), 30, 80, 25},
		"executing":  {executing(), 30, 80, 25},
		"many-disks": {manyDisks(), 30, 80, 25},
		"failed":     {failed(), 30, 80, 25},
		"long-names": {longNames(), 30, 80, 25},
		"narrow":     {longNames(), 5, 40, 12},
		"many-links": {manyLinks(), 30, 80, 25},
		"wide":       {executing(), 60, 160, 50},
		"locked":     {locked(), 30, 80, 25},
		"done":       {done(), 30, 80, 25},
		"unmeasured": {unmeasured(), 30, 80, 25},
		"managers":   {managers(), 30, 80, 25},
		"operators":  {operators(), 30, 80, 25},
	}
}

// TestScreens compares the terminal's content with reviewed screens.
func TestScreens(t *testing.T) {
	for name, p := range pictures() {
		t.Run(name, func(t *testing.T) {
			vt := newTerminal(p.width, p.height)
			if err := NewPainter(vt).Paint(Draw(&p.state, logLines(p.log), p.width, p.height)); err != nil {
				t.Fatal(err)
			}
			golden := filepath.Join("testdata", name+".txt")
			if *update {
				if err := os.WriteFile(golden, []byte(vt.String()), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(golden)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(string(want), vt.String()); diff != "" {
				t.Errorf("screen (-want +got):\n%s", diff)
			}
			if vt.row != p.height-1 || !vt.hidden {
				t.Errorf("the cursor is on row %d, hidden %v; want it hidden on the last row, %d",
					vt.row, vt.hidden, p.height-1)
			}
		})
	}
}

// Painting a frame over another has the same result as painting it alone, and writes less if little changed.
func TestPaintChanges(t *testing.T) {
	vt := newTerminal(80, 25)
	var sent bytes.Buffer
	painter := NewPainter(&sent)
	show := func(s status.State, log []string) int {
		t.Helper()
		frame := Draw(&s, log, 80, 25)
		sent.Reset()
		if err := painter.Paint(frame); err != nil {
			t.Fatal(err)
		}
		if _, err := vt.Write(sent.Bytes()); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(strings.TrimRight(text(frame), "\n")+"\n", vt.String()); diff != "" {
			t.Errorf("terminal (-frame +got):\n%s", diff)
		}
		return sent.Len()
	}
	first := show(noDHCP(), logLines(3))
	show(ready(), logLines(20))
	show(executing(), logLines(30))
	more := executing()
	more.Work[0].Done += 50 << 20
	if n := show(more, logLines(30)); n == 0 || n > first/4 {
		t.Errorf("a longer bar takes %d bytes, the first picture %d; want less than a quarter", n, first)
	}
	if n := show(more, logLines(30)); n != 0 {
		t.Errorf("the same picture again takes %d bytes, want none", n)
	}
	if _, err := vt.Write([]byte("kernel: something broke\nand that\n")); err != nil { // scrolls
		t.Fatal(err)
	}
	painter.Forget()
	show(more, logLines(30))
	sent.Reset()
	if err := painter.Release(); err != nil {
		t.Fatal(err)
	}
	if _, err := vt.Write(append(sent.Bytes(), "panic: a stack\n"...)); err != nil || vt.hidden ||
		!strings.HasSuffix(vt.String(), "panic: a stack\n") {
		t.Errorf("after Release: %v, cursor hidden %v, the screen is\n%s", err, vt.hidden, vt)
	}
}

// broken is a terminal whose writes can fail.
type broken struct {
	*terminal
	err error
}

func (b *broken) Write(p []byte) (int, error) {
	if b.err != nil {
		return 0, b.err
	}
	return b.terminal.Write(p)
}

// After an error of the terminal, and after Release, the whole frame is written again.
func TestPaintAfterError(t *testing.T) {
	vt := &broken{newTerminal(80, 25), os.ErrClosed}
	painter := NewPainter(vt)
	s := ready()
	frame := Draw(&s, nil, 80, 25)
	paint := func(want error) {
		t.Helper()
		if err := painter.Paint(frame); !errors.Is(err, want) {
			t.Fatalf("Paint: got error %v, want %v", err, want)
		}
		if diff := cmp.Diff(strings.TrimRight(text(frame), "\n")+"\n", vt.String()); want == nil && diff != "" {
			t.Errorf("terminal (-frame +got):\n%s", diff)
		}
	}
	paint(os.ErrClosed)
	if err := painter.Release(); !errors.Is(err, os.ErrClosed) {
		t.Errorf("Release: got error %v, want %v", err, os.ErrClosed)
	}
	vt.err = nil
	paint(nil)
	vt.err = os.ErrClosed
	other := executing()
	frame = Draw(&other, nil, 80, 25)
	paint(os.ErrClosed)
	vt.err = nil
	paint(nil)
	if err := painter.Release(); err != nil {
		t.Fatal(err)
	}
	if _, err := vt.Write([]byte("a line\nand another one\n")); err != nil {
		t.Fatal(err)
	}
	paint(nil)
}

// Texts are green for success, yellow for warnings and red for failures.
func TestColours(t *testing.T) {
	alone := ready()
	alone.Phase = status.Lookup
	beginning := ready()
	beginning.Phase = "configuration"
	for _, c := range []struct {
		text  string
		state status.State
		want  style
	}{
		{"locked down", locked(), bad},
		{"looking up", alone, hint},
		{"waiting for commands", ready(), good},
		{"starting", beginning, strong},
		{"https://ironic.example", ready(), good},
		{"https://ironic-a.example", noTrust(), bad},
		{"TLS: certificate", noTrust(), bad},
		{"https://ironic.example", noDHCP(), plain},
		{"none yet", noDHCP(), plain},
		{"accepted at", ready(), good},
		{"latest failed", done(), bad},
		{"not accepted yet", unmeasured(), bad},
		{"eno1  192.0.2.15", ready(), plain},
		{"eno1  no address yet", noDHCP(), hint},
		{"no carrier: eno2", ready(), plain},
		{"no carrier: eno1", noCarrier(), hint},
		{"no network card", status.State{}, hint},
		{"0000:3d:00.0", noDriver(), bad},
		{"deploy.execute_deploy_step", executing(), strong},
		{"deploy.execute_deploy_step", failed(), bad},
		{"clean.execute_clean_step", done(), plain},
		{"Error verifying", failed(), bad},
		{"the image is not", failed(), hint},
	} {
		frame := Draw(&c.state, nil, 80, 25)
		found := false
		for _, r := range frame.rows {
			for _, s := range r {
				if strings.HasPrefix(s.text, c.text) {
					found = true
					if s.style != c.want {
						t.Errorf("%s: got style %s, want %s", c.text, s.style, c.want)
					}
				}
			}
		}
		if !found {
			t.Errorf("no text begins with %q in\n%s", c.text, text(frame))
		}
	}
}

// FuzzDraw checks that a frame with foreign text keeps its size and contains no control sequences.
func FuzzDraw(f *testing.F) {
	f.Add("name", "a problem\x1b[2J", uint16(80), uint16(25))
	f.Add(strings.Repeat("ü\xff", 100), strings.Repeat("x", 1000), uint16(1), uint16(1))
	f.Fuzz(func(t *testing.T, name, problem string, width, height uint16) {
		b := status.NewBoard(name, nil)
		b.Node(name, problem)
		b.Ironic([]string{name, problem})
		b.Tried(name, errors.New(problem))
		b.Begin(problem, name)
		b.Problem(name, errors.New(problem))
		s := b.State()
		s.Hostname, s.Links = name, []status.Link{
			{Name: name, Trouble: problem, Carrier: true, Neighbour: lldp.Neighbour{System: problem, Port: name}},
			{Name: problem},
		}
		s.Work = []status.Progress{{What: name, Device: problem, Total: int64(width), Done: int64(height)}}
		w, h := int(width%300), int(height%100)
		vt := newTerminal(max(w, minWidth), max(h, minHeight))
		frame := Draw(s, []string{name, problem}, w, h)
		if err := NewPainter(vt).Paint(frame); err != nil {
			t.Fatal(err)
		}
		if got, want := vt.String(), strings.TrimRight(text(frame), "\n")+"\n"; got != want {
			t.Errorf("the terminal shows\n%s\nwant\n%s", got, want)
		}
	})
}

// text returns the frame without its colours.
func text(f Frame) string {
	var text strings.Builder
	for _, r := range f.rows {
		line := ""
		for _, s := range r {
			line += s.text
		}
		text.WriteString(strings.TrimRight(line, " ") + "\n")
	}
	return text.String()
}
