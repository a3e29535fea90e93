package netboot

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"ironroot/internal/testenv"
	"ironroot/netboot/listing"
	"ironroot/netboot/networkdata"
)

const insideEnv = "IRONROOT_TEST_NAMESPACE"

// patience is how long a test waits for what should take milliseconds to a few seconds on a busy machine.
const patience = 30 * time.Second

// lab is a machine's side of some cables: the test's own process in a network namespace of its own, and a second
// namespace that the other ends lead to.
type lab struct {
	t      *testing.T
	ctx    context.Context
	work   chan func()
	handle netns.NsHandle
	resolv string
	log    logged
}

// logged is a log that tests wait for lines of.
type logged struct {
	mu      sync.Mutex
	text    strings.Builder
	changed chan struct{} // closed at the next line
}

func (l *logged) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.changed != nil {
		close(l.changed)
		l.changed = nil
	}
	return l.text.Write(p)
}

// matches tells whether a line is logged by now; changed is closed at the next one.
func (l *logged) matches(line string) (found bool, changed <-chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.changed == nil {
		l.changed = make(chan struct{})
	}
	return regexp.MustCompile("(?m)" + line).MatchString(l.text.String()), l.changed
}

// told waits for a line of the network's log.
func (l *lab) told(line string) {
	l.t.Helper()
	ctx, cancel := context.WithTimeout(l.ctx, patience)
	defer cancel()
	for {
		found, changed := l.log.matches(line)
		if found {
			return
		}
		select {
		case <-changed:
		case <-ctx.Done():
			l.t.Fatalf("no line %q in the log after %v", line, patience)
		}
	}
}

// inNamespace is nettest.New.
func inNamespace(t *testing.T, programs ...string) (*lab, bool) {
	t.Helper()
	testenv.Root(t)
	testenv.Programs(t, programs...)
	if os.Getenv(insideEnv) != t.Name() {
		t.Parallel()
		cmd := exec.Command(os.Args[0], "-test.run=^"+t.Name()+"$", "-test.v", "-test.timeout=2m")
		cmd.Env = append(os.Environ(), insideEnv+"="+t.Name())
		cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWNET, Pdeathsig: syscall.SIGKILL}
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("in the namespace: %v\n%s", err, out)
		}
		if !strings.Contains(string(out), "--- PASS: "+t.Name()) {
			t.Fatalf("in the namespace the test did not run:\n%s", out)
		}
		return nil, false
	}
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(cancel)
	l := &lab{t: t, ctx: ctx, work: make(chan func()), resolv: filepath.Join(t.TempDir(), "etc", "resolv.conf")}
	l.startPeer()
	return l, true
}

// startPeer makes the other namespace; it lives on a thread that is locked for good.
func (l *lab) startPeer() {
	ready := make(chan error)
	go func() {
		runtime.LockOSThread()
		err := unix.Unshare(unix.CLONE_NEWNET)
		if err == nil {
			l.handle, err = netns.Get()
		}
		ready <- err
		for work := range l.work {
			work()
		}
	}()
	if err := <-ready; err != nil {
		l.t.Fatalf("second namespace: %v", err)
	}
}

// peer runs f on the other side.
func (l *lab) peer(f func() error) {
	l.t.Helper()
	done := make(chan error)
	l.work <- func() { done <- f() }
	if err := <-done; err != nil {
		l.t.Fatal(err)
	}
}

// cable makes a link name here and peer-name there, up and with the given address there.
func (l *lab) cable(name, address string) {
	l.t.Helper()
	attrs := netlink.NewLinkAttrs()
	attrs.Name = name
	veth := &netlink.Veth{LinkAttrs: attrs, PeerName: "peer-" + name, PeerNamespace: netlink.NsFd(l.handle)}
	if err := netlink.LinkAdd(veth); err != nil {
		l.t.Fatalf("veth %s: %v", name, err)
	}
	l.peer(func() error {
		link, err := netlink.LinkByName("peer-" + name)
		if err != nil {
			return err
		}
		// The other end answers at once: its addresses need not be checked for uniqueness.
		if err := os.WriteFile("/proc/sys/net/ipv6/conf/peer-"+name+"/accept_dad", []byte("0"), 0); err != nil {
			return err
		}
		if address != "" {
			parsed, err := netlink.ParseAddr(address)
			if err != nil {
				return err
			}
			if parsed.IP.To4() == nil {
				parsed.Flags = unix.IFA_F_NODAD
			}
			if err := netlink.AddrAdd(link, parsed); err != nil {
				return err
			}
		}
		return netlink.LinkSetUp(link)
	})
}

// setPeer sets the other end of a cable up or down, which the machine sees as carrier.
func (l *lab) setPeer(name string, up bool) {
	l.t.Helper()
	l.peer(func() error {
		link, err := netlink.LinkByName("peer-" + name)
		if err != nil {
			return err
		}
		if up {
			return netlink.LinkSetUp(link)
		}
		return netlink.LinkSetDown(link)
	})
}

// dnsmasq runs the independent DHCP server on the other side.
func (l *lab) dnsmasq(args ...string) {
	l.t.Helper()
	all := append([]string{
		"--no-daemon", "--conf-file=/dev/null", "--port=0", "--bind-interfaces", "--no-ping", "--dhcp-authoritative",
		"--user=root", "--group=root", "--log-dhcp", "--dhcp-leasefile=" + filepath.Join(l.t.TempDir(), "leases"),
	}, args...)
	cmd := exec.CommandContext(l.ctx, "dnsmasq", all...)
	if cmd.Err != nil {
		cmd.Path, cmd.Err = "/usr/sbin/dnsmasq", nil
	}
	cmd.Stdout, cmd.Stderr = l.t.Output(), l.t.Output()
	l.peer(cmd.Start)
	l.t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
}

// quick is the timing of the client in tests: shorter delays, and leases of seconds are believed.
var quick = timing{
	noCarrier:  500 * time.Millisecond,
	first:      200 * time.Millisecond,
	longest:    time.Second,
	requests:   3,
	minRenewal: 300 * time.Millisecond,
	minLease:   time.Second,
	declined:   300 * time.Millisecond,
}

func (l *lab) start() *Network {
	l.t.Helper()
	return l.startWith(nil, nil)
}

// startWith starts the network with static data, or with what says that such may come.
func (l *lab) startWith(data *networkdata.Data, wait <-chan struct{}) *Network {
	l.t.Helper()
	n, err := Start(l.ctx, Config{
		Log:        slog.New(slog.NewTextHandler(io.MultiWriter(l.t.Output(), &l.log), &slog.HandlerOptions{Level: slog.LevelDebug})),
		Interface:  func(string) bool { return true },
		ResolvConf: l.resolv, Data: data, Wait: wait, timing: quick,
	})
	if err != nil {
		l.t.Fatal(err)
	}
	l.t.Cleanup(func() {
		n.stop()
		<-n.watching
	})
	return n
}

// until waits for a state of the links; it ends the test when that does not come.
func (l *lab) until(n *Network, what string, reached func(map[string]Link) bool) map[string]Link {
	l.t.Helper()
	ctx, cancel := context.WithTimeout(l.ctx, patience)
	defer cancel()
	for {
		changed := n.Changed()
		links := map[string]Link{}
		for _, link := range n.Links() {
			links[link.Name] = link
		}
		if reached(links) {
			return links
		}
		select {
		case <-changed:
		case <-ctx.Done():
			l.t.Fatalf("%s: not so after %v: %+v", what, patience, links)
		}
	}
}

// leased tells whether all named links have a lease whose address the kernel reports.
func leased(names ...string) func(map[string]Link) bool {
	return func(links map[string]Link) bool {
		for _, name := range names {
			if links[name].Lease == nil || !has(links[name], links[name].Lease.Address.String()) {
				return false
			}
		}
		return true
	}
}

func has(link Link, prefix string) bool {
	for _, p := range link.Addresses {
		if p.String() == prefix {
			return true
		}
	}
	return false
}

// routes lists the IPv4 routes of a link as text: destination, gateway, metric.
func (l *lab) routes(name string) []string {
	l.t.Helper()
	link, err := netlink.LinkByName(name)
	if err != nil {
		l.t.Fatal(err)
	}
	list, err := listing.Whole(func() ([]netlink.Route, error) { return netlink.RouteList(link, netlink.FAMILY_V4) })
	if err != nil {
		l.t.Fatal(err)
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

func addr(text string) netip.Addr { return netip.MustParseAddr(text) }
