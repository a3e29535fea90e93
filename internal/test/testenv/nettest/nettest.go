// Package nettest provides network namespaces for tests. The process of the test runs in one namespace, the machine.
// Virtual cables connect it with a second namespace, the peer. The package also contains a socket that returns given
// packets, and a log whose lines a test can wait for.
package nettest

import (
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"

	"ironroot/internal/pause"
	"ironroot/internal/test/testenv"
)

const insideEnv = "IRONROOT_TEST_NAMESPACE"

// Timeout limits the wait for an event that takes milliseconds to seconds on a busy machine.
const Timeout = time.Minute

// Lab represents the two namespaces and the log of a test.
type Lab struct {
	T   *testing.T
	Ctx context.Context // ends with the test
	Log Log

	work   chan func()
	handle netns.NsHandle
}

// New is Namespace with a Lab, which it returns if inside is true. It ends the test if a program is missing.
func New(t *testing.T, programs ...string) (l *Lab, inside bool) {
	t.Helper()
	testenv.Programs(t, programs...)
	if !Namespace(t) {
		return nil, false
	}
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(cancel)
	l = &Lab{T: t, Ctx: ctx, work: make(chan func())}
	l.startPeer()
	return l, true
}

// Namespace runs the test again as a process in a new network namespace, in parallel with other tests, and reports
// whether the caller is that process. It ends the test without root privileges.
func Namespace(t *testing.T) (inside bool) {
	t.Helper()
	testenv.Root(t)
	if os.Getenv(insideEnv) != t.Name() {
		t.Parallel()
	}
	return Rerun(t, 10*time.Minute)
}

// Rerun runs the test again as a process in a new network namespace, so that all of its threads are in it, and reports
// whether the caller is that process. The process must end within the limit.
func Rerun(t *testing.T, limit time.Duration) (inside bool) {
	t.Helper()
	if os.Getenv(insideEnv) == t.Name() {
		return true
	}
	testenv.Linux(t, "network namespaces")
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^"+t.Name()+"$", "-test.v",
		"-test.timeout="+limit.String())
	cmd.Env = append(os.Environ(), insideEnv+"="+t.Name())
	cmd.SysProcAttr = newNamespace()
	out, err := cmd.CombinedOutput()
	t.Logf("in the namespace:\n%s", out)
	if err != nil {
		t.Fatalf("in the namespace: %v", err)
	}
	if !strings.Contains(string(out), "--- PASS: "+t.Name()) {
		t.Fatal("in the namespace the test did not run")
	}
	return false
}

// EnterNamespace moves the goroutine of a test into a new network namespace. It locks the goroutine to its thread, and
// the test must not unlock it: the thread ends with the test. It ends the test without root privileges.
func EnterNamespace(t *testing.T) {
	t.Helper()
	testenv.Root(t)
	testenv.Linux(t, "network namespaces")
	runtime.LockOSThread()
	if err := enterNewNamespace(); err != nil {
		t.Fatalf("network namespace: %v", err)
	}
}

// startPeer creates the peer's namespace, in a goroutine that stays locked to its thread.
func (l *Lab) startPeer() {
	ready := make(chan error)
	go func() {
		runtime.LockOSThread()
		err := enterNewNamespace()
		if err == nil {
			l.handle, err = netns.Get()
		}
		ready <- err
		for work := range l.work {
			work()
		}
	}()
	if err := <-ready; err != nil {
		l.T.Fatalf("second namespace: %v", err)
	}
}

// Peer calls f in the peer's namespace.
func (l *Lab) Peer(f func() error) {
	l.T.Helper()
	done := make(chan error)
	l.work <- func() { done <- f() }
	if err := <-done; err != nil {
		l.T.Fatal(err)
	}
}

// Cable creates a link name on the machine and its other end, peer-name, on the peer. The peer's end is up and has the
// address, unless it is "".
func (l *Lab) Cable(name, address string) {
	l.T.Helper()
	attrs := netlink.NewLinkAttrs()
	attrs.Name = name
	veth := &netlink.Veth{LinkAttrs: attrs, PeerName: "peer-" + name, PeerNamespace: netlink.NsFd(l.handle)}
	if err := netlink.LinkAdd(veth); err != nil {
		l.T.Fatalf("veth %s: %v", name, err)
	}
	l.Peer(func() error {
		link, err := netlink.LinkByName("peer-" + name)
		if err != nil {
			return err
		}
		// The kernel does not check whether the peer's addresses are unique, so that the peer answers at once.
		if err := os.WriteFile("/proc/sys/net/ipv6/conf/peer-"+name+"/accept_dad", []byte("0"), 0); err != nil {
			return err
		}
		if address != "" {
			if err := addAddress(link, address); err != nil {
				return err
			}
		}
		return netlink.LinkSetUp(link)
	})
}

// Active waits until both ends of a cable transmit. Both must be up.
func (l *Lab) Active(name string) {
	l.T.Helper()
	if err := WaitActive(l.Ctx, name); err != nil {
		l.T.Fatal(err)
	}
	l.Peer(func() error { return WaitActive(l.Ctx, "peer-"+name) })
}

// WaitActive waits until a link of the calling thread's namespace transmits. It must be up and have a carrier. The
// kernel drops packets until it has activated the link, which it does up to a second later.
func WaitActive(ctx context.Context, name string) error {
	ctx, cancel := context.WithTimeout(ctx, Timeout)
	defer cancel()
	for {
		link, err := netlink.LinkByName(name)
		if err != nil {
			return err
		}
		state := link.Attrs().OperState
		if state == netlink.OperUp {
			return nil
		}
		if err := pause.For(ctx, 10*time.Millisecond); err != nil {
			return fmt.Errorf("link %s: state %s: %w", name, state, err)
		}
	}
}

// AddPeerAddress adds an address to the peer's end of a cable.
func (l *Lab) AddPeerAddress(name, address string) {
	l.T.Helper()
	l.Peer(func() error {
		link, err := netlink.LinkByName("peer-" + name)
		if err != nil {
			return err
		}
		return addAddress(link, address)
	})
}

// Listen accepts TCP connections at an address of the peer, on any port.
func (l *Lab) Listen(address string) net.Listener {
	l.T.Helper()
	var listener net.Listener
	l.Peer(func() (err error) {
		listener, err = (&net.ListenConfig{}).Listen(l.Ctx, "tcp", net.JoinHostPort(address, "0"))
		return err
	})
	l.T.Cleanup(func() { _ = listener.Close() })
	return listener
}

// Dial connects from the peer to an address. It is a function for [net/http.Transport].
func (l *Lab) Dial(ctx context.Context, network, address string) (conn net.Conn, err error) {
	l.Peer(func() error {
		conn, err = new(net.Dialer).DialContext(ctx, network, address)
		return nil
	})
	return conn, err
}

// Configure adds addresses to a link of the namespace of the calling thread, and sets it up. The kernel does not check
// whether IPv6 addresses are unique, so that they can be used at once.
func Configure(t testing.TB, name string, addresses ...string) {
	t.Helper()
	link, err := netlink.LinkByName(name)
	if err != nil {
		t.Fatalf("link %s: %v", name, err)
	}
	for _, address := range addresses {
		if err := addAddress(link, address); err != nil {
			t.Fatalf("add %s to %s: %v", address, name, err)
		}
	}
	if err := netlink.LinkSetUp(link); err != nil {
		t.Fatalf("set %s up: %v", name, err)
	}
}

func addAddress(link netlink.Link, address string) error {
	parsed, err := netlink.ParseAddr(address)
	if err != nil {
		return err
	}
	if parsed.IP.To4() == nil {
		parsed.Flags = flagNoDAD
	}
	return netlink.AddrAdd(link, parsed)
}

// Bridge creates a bridge name on the machine and returns its kernel index. Tests use it in place of a bond, which the
// kernel that they run on may lack.
func (l *Lab) Bridge(name string) int {
	l.T.Helper()
	attrs := netlink.NewLinkAttrs()
	attrs.Name = name
	if err := netlink.LinkAdd(&netlink.Bridge{LinkAttrs: attrs}); err != nil {
		l.T.Fatalf("bridge %s: %v", name, err)
	}
	bridge, err := netlink.LinkByName(name)
	if err != nil {
		l.T.Fatal(err)
	}
	return bridge.Attrs().Index
}

// SetPeer sets the peer's end of a cable up or down. The carrier of the machine's end follows.
func (l *Lab) SetPeer(name string, up bool) {
	l.T.Helper()
	l.Peer(func() error {
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

// Dnsmasq runs dnsmasq, an independent DHCP server, on the peer. It is killed at the end of the test.
func (l *Lab) Dnsmasq(args ...string) {
	l.T.Helper()
	dnsmasq(l.T, func(cmd *exec.Cmd) error {
		l.Peer(cmd.Start)
		return nil
	}, args)
}

// Dnsmasq runs dnsmasq in the namespace of the calling thread. It is killed at the end of the test.
func Dnsmasq(t testing.TB, args ...string) {
	t.Helper()
	dnsmasq(t, (*exec.Cmd).Start, args)
}

// dnsmasq starts dnsmasq and waits until it listens. Until then, dnsmasq is bound to port 67 of all interfaces, so that
// no other DHCP server can start.
func dnsmasq(t testing.TB, start func(*exec.Cmd) error, args []string) {
	t.Helper()
	testenv.Programs(t, "dnsmasq")
	cmd := exec.CommandContext(t.Context(), "dnsmasq", append([]string{
		"--no-daemon", "--conf-file=/dev/null", "--port=0", "--bind-interfaces", "--no-ping", "--dhcp-authoritative",
		"--user=root", "--group=root", "--log-dhcp", "--dhcp-leasefile=" + filepath.Join(t.TempDir(), "leases"),
	}, args...)...)
	if cmd.Err != nil {
		cmd.Path, cmd.Err = "/usr/sbin/dnsmasq", nil
	}
	var log Log
	output := io.MultiWriter(&log, t.Output())
	cmd.Stdout, cmd.Stderr = output, output
	if err := start(cmd); err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	var result error
	go func() {
		result = cmd.Wait()
		close(ended)
	}()
	t.Cleanup(func() {
		_ = cmd.Process.Kill() // it may have ended already
		<-ended
	})
	for {
		found, changed := log.Matches(`^dnsmasq: started`)
		if found {
			return
		}
		select {
		case <-changed:
		case <-ended:
			t.Fatalf("dnsmasq ended: %v", result)
		case <-time.After(Timeout):
			t.Fatalf("dnsmasq does not listen after %v", Timeout)
		}
	}
}

// Raise sets a link of the machine up and returns its current state.
func (l *Lab) Raise(name string) *net.Interface {
	l.T.Helper()
	link, err := netlink.LinkByName(name)
	if err == nil {
		err = netlink.LinkSetUp(link)
	}
	if err != nil {
		l.T.Fatal(err)
	}
	present, err := net.InterfaceByName(name)
	if err != nil {
		l.T.Fatal(err)
	}
	return present
}

// WaitLog waits until a line of the log matches the expression.
func (l *Lab) WaitLog(expression string) {
	l.T.Helper()
	ctx, cancel := context.WithTimeout(l.Ctx, Timeout)
	defer cancel()
	for {
		found, changed := l.Log.Matches(expression)
		if found {
			return
		}
		select {
		case <-changed:
		case <-ctx.Done():
			l.T.Fatalf("no line %q in the log after %v", expression, Timeout)
		}
	}
}

// Log stores the lines that are written to it. It is safe for concurrent use.
type Log struct {
	mu      sync.Mutex
	text    strings.Builder
	changed chan struct{} // closed at the next line
}

// Write adds lines.
func (l *Log) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.changed != nil {
		close(l.changed)
		l.changed = nil
	}
	return l.text.Write(p)
}

// Matches reports whether a line matches the expression; changed is closed when the next line is written.
func (l *Log) Matches(expression string) (found bool, changed <-chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.changed == nil {
		l.changed = make(chan struct{})
	}
	return regexp.MustCompile("(?m)" + expression).MatchString(l.text.String()), l.changed
}

// Conn is a socket whose calls of ReadFrom are answered by functions, in order. It is closed after the last one.
type Conn struct {
	net.PacketConn
	Reads []func(p []byte) (int, error)
}

// ReadFrom calls the next function of Reads.
func (c *Conn) ReadFrom(p []byte) (int, net.Addr, error) {
	if len(c.Reads) == 0 {
		return 0, nil, net.ErrClosed
	}
	read := c.Reads[0]
	c.Reads = c.Reads[1:]
	n, err := read(p)
	return n, &net.UDPAddr{}, err
}

// Packet returns a function for Conn that returns a packet.
func Packet(data []byte) func([]byte) (int, error) {
	return func(p []byte) (int, error) { return copy(p, data), nil }
}
