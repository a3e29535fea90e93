//go:build linux

package sshd

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/crypto/ssh"
	"golang.org/x/sys/unix"

	"ironroot/agent/api/admission"
	"ironroot/uinit/account"
	"ironroot/uinit/worker"
)

// dialFrom logs in from an address of 127.0.0.0/8.
func (r *rig) dialFrom(from, user string, methods ...ssh.AuthMethod) (*ssh.Client, error) {
	dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}, Timeout: eventTimeout}
	conn, err := dialer.DialContext(r.t.Context(), "tcp", r.server.address.String())
	if err != nil {
		return nil, err
	}
	c, channels, requests, err := ssh.NewClientConn(conn, conn.RemoteAddr().String(), &ssh.ClientConfig{
		User: user, Auth: methods, HostKeyCallback: ssh.InsecureIgnoreHostKey(),
	})
	if err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	return ssh.NewClient(c, channels, requests), nil
}

func (r *rig) dial(t *testing.T, user, given string) *ssh.Client {
	t.Helper()
	client, err := r.dialFrom("127.0.0.1", user, ssh.Password(given))
	if err != nil {
		t.Fatal(err)
	}
	return client
}

func TestLimiter(t *testing.T) {
	l := newLimiter(limits{
		Attempt: rate{3 * time.Second, 5}, AllAttempts: rate{time.Second, 20}, MaxWait: 10 * time.Second,
	})
	now := time.Now()
	first, second := netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("192.0.2.2")
	attempt := func(from netip.Addr, want time.Duration, wantOK bool) {
		t.Helper()
		if wait, ok := l.reserve(from, now); wait != want || ok != wantOK {
			t.Errorf("%v: got %v, %v, want %v, %v", from, wait, ok, want, wantOK)
		}
	}
	for range 5 {
		attempt(first, 0, true)
	}
	attempt(first, 3*time.Second, true)
	attempt(first, 6*time.Second, true)
	attempt(first, 9*time.Second, true)
	attempt(first, 0, false) // longer than MaxWait, which counts nothing
	attempt(second, 0, true) // another address does not wait
	l.cancel(first)
	attempt(first, 9*time.Second, true)
	now = now.Add(9 * time.Second)
	attempt(first, 3*time.Second, true)
	now = now.Add(time.Hour)
	for range 5 {
		attempt(first, 0, true)
	}
	// All addresses together have a rate, too.
	for i := range 15 {
		attempt(netip.AddrFrom4([4]byte{198, 51, 100, byte(i)}), 0, true)
	}
	attempt(second, time.Second, true)
	attempt(netip.MustParseAddr("2001:db8::1"), 2*time.Second, true)
}

// Attempts from as many addresses of an IPv6 network as there can be connections do not lock out a user in this
// network. The rate of a single address still holds.
func TestLimiterNetwork(t *testing.T) {
	l := newLimiter(defaultLimits)
	start := time.Now()
	user, now := netip.MustParseAddr("2001:db8::ffff"), start
	attackers := make([]time.Time, defaultLimits.Connections.Untrusted) // when each can try again, from a new address
	tried := 0
	for ; now.Sub(start) < 2*time.Minute; now = now.Add(100 * time.Millisecond) {
		for i, ready := range attackers {
			if ready.After(now) {
				continue
			}
			wait, ok := l.reserve(netip.MustParseAddr(fmt.Sprintf("2001:db8::1:%x", tried)), now)
			if !ok {
				t.Fatalf("attempt %d of the attacker would wait too long, want all to wait for their turns", tried)
			}
			attackers[i] = now.Add(wait)
			tried++
		}
	}
	rate := defaultLimits.NetworkAttempts
	if most := int(now.Sub(start)/rate.Interval) + rate.Burst + len(attackers); tried > most {
		t.Errorf("got %d attempts from a network in %v, want at most %d", tried, now.Sub(start), most)
	}
	if wait, ok := l.reserve(user, now); !ok || wait > 10*time.Second {
		t.Errorf("got a wait of %v, %v for the user, want at most 10 s", wait, ok)
	}
	if wait, ok := l.reserve(netip.MustParseAddr("2001:db8:0:1::1"), now); !ok || wait != 0 {
		t.Errorf("got a wait of %v, %v in another network, want none", wait, ok)
	}
	for range defaultLimits.Attempt.Burst - 1 {
		l.reserve(user, now)
	}
	if wait, _ := l.reserve(user, now); wait < defaultLimits.Attempt.Interval {
		t.Errorf("got a wait of %v after %d attempts from one address, want at least %v",
			wait, defaultLimits.Attempt.Burst, defaultLimits.Attempt.Interval)
	}
}

// The memory for addresses and networks is bounded.
func TestLimiterPeers(t *testing.T) {
	for address, want := range map[string]string{
		"192.0.2.1": "[192.0.2.1/32]", "::ffff:192.0.2.1": "[192.0.2.1/32]",
		"2001:db8:1:2:3::4": "[2001:db8:1:2:3::4/128 2001:db8:1:2::/64]", "fe80::1%eth0": "[fe80::1/128 fe80::/64]",
	} {
		if got := fmt.Sprint(peersOf(netip.MustParseAddr(address))); got != want {
			t.Errorf("%s: got %s, want %s", address, got, want)
		}
	}
	l := newLimiter(limits{Attempt: rate{3 * time.Second, 5}, AllAttempts: rate{1, 1}, MaxWait: time.Hour})
	now := time.Now()
	guilty := netip.MustParseAddr("192.0.2.1")
	for range 10 {
		l.reserve(guilty, now)
	}
	for i := range 5 * maxPeers {
		l.reserve(netip.AddrFrom4([4]byte{10, 0, byte(i >> 8), byte(i)}), now.Add(time.Duration(i)*time.Microsecond))
	}
	if len(l.peers) != maxPeers || l.peers[netip.PrefixFrom(guilty, 32)] == nil {
		t.Errorf("got %d addresses, want %d with the one that tried most", len(l.peers), maxPeers)
	}
	l.reserve(netip.MustParseAddr("198.51.100.1"), now.Add(time.Hour))
	if len(l.peers) != 1 {
		t.Errorf("got %d addresses, want those without attempts forgotten", len(l.peers))
	}
	if l.reserve(netip.Addr{}, now); len(l.peers) != 2 {
		t.Error("connections without an address do not count")
	}
}

// A thousand failed logins, most of them from one address, neither fill memory or log nor lock out a user for long.
func TestFailedLogins(t *testing.T) {
	const failed, parallel = 1000, 8
	r := newRig(t, func(_ *account.List, l *limits) {
		l.Attempt = rate{100 * time.Millisecond, 5} // not 3 s: the test would take an hour
		l.AllAttempts = rate{time.Millisecond, 50}
	})
	r.ssh("true")
	pid := r.serverProcess()
	before := r.highWater(pid)
	var group sync.WaitGroup
	var mu sync.Mutex
	tried, others := 0, 0
	try := func() bool { // reports whether to continue
		mu.Lock()
		defer mu.Unlock()
		tried++
		return tried <= failed
	}
	for worker := range parallel {
		from := "127.0.0.2"
		if worker%2 == 1 {
			from = fmt.Sprintf("127.0.1.%d", worker)
		}
		group.Go(func() {
			for more := true; more; {
				password := ssh.RetryableAuthMethod(ssh.PasswordCallback(func() (string, error) {
					more = try()
					return "wrong", nil
				}), 5)
				client, err := r.dialFrom(from, "rescue", password)
				if err == nil {
					_ = client.Close()
					t.Error("a wrong password was accepted")
					return
				}
				mu.Lock()
				if !strings.Contains(err.Error(), "unable to authenticate") {
					others++ // closed because of a limit
				}
				mu.Unlock()
			}
		})
	}
	group.Wait()
	start := time.Now()
	r.want(r.ssh("echo hello"), result{out: "hello\n"})
	if took := time.Since(start); took > time.Minute {
		t.Errorf("the login of the user took %v", took)
	}
	client, err := r.dialFrom("127.0.0.2", "rescue", ssh.Password(secret)) // from the address of the attacker
	if err != nil {
		t.Errorf("login from the address of the failed ones: %v", err)
	} else {
		_ = client.Close()
	}
	after := r.highWater(pid) // fails if the process has ended
	const growth = 40 << 20
	if after-before > growth {
		t.Errorf("memory grew from %d to %d bytes, want at most %d more", before, after, growth)
	}
	if lines := strings.Count(r.log.String(), `msg="login failed"`); lines < 10 || lines > 200 {
		t.Errorf("got %d lines about failed logins, want few", lines)
	}
	t.Logf("%d attempts, %d connections closed because of limits, memory %d to %d", tried, others, before, after)
}

// A thousand connections that never log in, half of them from one address, neither fill memory or the table of open
// files nor lock out a user. Every second one has begun the protocol.
func TestSilentConnections(t *testing.T) {
	const count, most = 1000, 32
	r := newRig(t, nil)
	r.ssh("true")
	pid := r.serverProcess()
	before := r.highWater(pid)
	var silent []net.Conn
	for i := range count {
		from := "127.0.0.2"
		if i >= count/2 {
			from = fmt.Sprintf("127.0.%d.%d", 1+i%4, 1+i/4)
		}
		dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}, Timeout: eventTimeout}
		conn, err := dialer.DialContext(t.Context(), "tcp", r.server.address.String())
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close() //nolint:errcheck // the server can have closed it
		if i%2 == 0 {
			_, _ = io.WriteString(conn, "SSH-2.0-silent\r\n") // fails if the server has closed it
		}
		silent = append(silent, conn)
	}
	start := time.Now()
	r.want(r.ssh("echo hello"), result{out: "hello\n"}) // every other connection was accepted before
	if took := time.Since(start); took > time.Minute {
		t.Errorf("the login of the user took %v", took)
	}
	if open := countOpen(silent, most); open == 0 || open > most {
		t.Errorf("%d silent connections are open, want some, and at most %d", open, most)
	}
	files, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid)) // fails if the process has ended
	const others = 32                                         // the listener, pipes, and files of the Go runtime
	if err != nil || len(files) > most+others {
		t.Errorf("the server has %d open files, %v, want at most %d", len(files), err, most+others)
	}
	const growth = 40 << 20
	after := r.highWater(pid)
	if after-before > growth {
		t.Errorf("memory grew from %d to %d bytes, want at most %d more", before, after, growth)
	}
	t.Logf("%d files, memory %d to %d", len(files), before, after)
}

// countOpen returns the number of connections that the peer has not closed. It waits until at most the given number of
// them are left.
func countOpen(conns []net.Conn, most int) int {
	var reads sync.WaitGroup
	var open atomic.Int32
	closed := make(chan struct{}, len(conns))
	for _, conn := range conns {
		reads.Go(func() {
			if _, err := io.Copy(io.Discard, conn); errors.Is(err, os.ErrDeadlineExceeded) {
				open.Add(1)
			} else {
				closed <- struct{}{}
			}
		})
	}
	timeout := time.After(eventTimeout)
wait:
	for range len(conns) - most {
		select {
		case <-closed:
		case <-timeout:
			break wait
		}
	}
	for _, conn := range conns {
		_ = conn.SetReadDeadline(time.Now()) // ends the reads of open ones
	}
	reads.Wait()
	return int(open.Load())
}

// A user who is known and one who is not take the same work: the hash belongs to the same account.
func TestUnknownUserIsChecked(t *testing.T) {
	list := account.List{account.Rescue(hash(t, secret), "/bin/sh", "")}
	for range 3 {
		if list.MatchesPassword("nobody", []byte(secret)) {
			t.Error("an unknown user logs in with the password of another")
		}
	}
}

// Connections without a login are closed after a time, connections without sessions too, and the numbers are limited.
func TestConnectionLimits(t *testing.T) {
	r := newRig(t, func(_ *account.List, l *limits) {
		l.Login, l.Idle, l.PerConn, l.Sessions = 10*time.Second, 5*time.Second, 3, 5
		l.Connections.UntrustedPerPeer = 4
	})
	var silent []net.Conn
	for range 12 {
		conn, err := new(net.Dialer).DialContext(t.Context(), "tcp", r.server.address.String())
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		silent = append(silent, conn)
	}
	for _, conn := range silent {
		_ = conn.SetReadDeadline(time.Now().Add(eventTimeout))
		_, err := io.Copy(io.Discard, conn)
		if errors.Is(err, os.ErrDeadlineExceeded) {
			t.Fatalf("a silent connection stays open: %v", err)
		}
	}
	first := r.dial(t, "rescue", secret)
	defer first.Close()
	for i := range 4 {
		session, err := first.NewSession()
		if want := i < 3; (err == nil) != want {
			t.Fatalf("session %d of the first connection: got %v, want accepted: %v", i, err, want)
		}
		if err == nil {
			defer session.Close()
		}
	}
	second := r.dial(t, "rescue", secret) // after the sessions of the first one, which would be closed as idle
	var open []*ssh.Session
	for i := range 3 {
		session, err := second.NewSession()
		if want := i < 2; (err == nil) != want {
			t.Fatalf("session %d of the second connection: got %v, want accepted: %v", i, err, want)
		}
		if err == nil {
			open = append(open, session)
		}
	}
	for _, session := range open {
		if err := session.Close(); err != nil && !errors.Is(err, io.EOF) {
			t.Error(err)
		}
	}
	_ = second.Wait() // closed by the server, for it has no session
	if _, err := first.NewSession(); err == nil {
		t.Error("more sessions than the limit of the connection")
	}
	r.log.find(t, "user logged out")
}

// The configuration of the server's process is bounded, and its errors contain nothing of it.
func FuzzReadConfig(f *testing.F) {
	good, err := json.Marshal(config{
		Accounts: account.List{account.Rescue(account.Account{}.Hash, "/bin/sh", "")}, HostKeys: [][]byte{{1}},
		Limits: limits{Connections: admission.Limits{Trusted: 1}},
	})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(good)
	f.Add([]byte(`{"Accounts":[{"name":"root","hash":"$1$x$y"}]}`))
	f.Add([]byte(`{"Accounts":[{}]}`))
	f.Add([]byte("{"))
	f.Fuzz(func(t *testing.T, text []byte) {
		c := new(config)
		err := worker.DecodeInput(bytes.NewReader(text), c)
		if err == nil && c.Accounts.Check() != nil {
			t.Error("invalid accounts")
		}
	})
}

// Requests of a client for a terminal: any bytes give valid modes, and no panic.
func FuzzModes(f *testing.F) {
	f.Add([]byte{1, 0, 0, 0, 3, 50, 0, 0, 0, 1, 70, 0, 0, 0, 0, 0})
	f.Add([]byte{3, 0, 0, 0, 255, 128, 0, 0, 150, 0, 200, 1, 2, 3})
	f.Add([]byte{1, 0})
	f.Fuzz(func(t *testing.T, encoded []byte) {
		var termios unix.Termios
		applyModes(&termios, encoded)
		if termios.Cflag != 0 {
			t.Errorf("got %#x as control modes", termios.Cflag)
		}
	})
}

func TestModes(t *testing.T) {
	termios := unix.Termios{Iflag: unix.ICRNL, Lflag: unix.ECHO | unix.ISIG, Oflag: unix.OPOST}
	termios.Cc[unix.VERASE] = 0x7f
	applyModes(&termios, []byte{
		3, 0, 0, 0, 8, // VERASE
		4, 0, 0, 0, 255, // VKILL is not used
		36, 0, 0, 0, 0, 42, 0, 0, 0, 1, // ICRNL, IUTF8
		53, 0, 0, 0, 0, // ECHO
		129, 0, 0, 150, 0, // speed: ignored
		72, 0, 0, 0, 1, // ONLCR
		200, 53, 0, 0, 0, 1, // unknown length: the rest is ignored
	})
	want := unix.Termios{Iflag: unix.IUTF8, Lflag: unix.ISIG, Oflag: unix.OPOST | unix.ONLCR}
	want.Cc[unix.VERASE] = 8
	if termios != want {
		t.Errorf("got %+v, want %+v", termios, want)
	}
}

// An address that is in use, and one without a server.
func TestStartFails(t *testing.T) {
	r := newRig(t, nil)
	o := Options{
		Accounts: account.List{account.Rescue(hash(t, secret), "/bin/sh", "")}, Address: r.server.address.String(),
	}
	if _, err := Start(t.Context(), o); !errors.Is(err, unix.EADDRINUSE) {
		t.Errorf("got %v, want the address in use", err)
	}
	o.Accounts[0].Name = "Root:0"
	if _, err := Start(t.Context(), o); err == nil || strings.Contains(err.Error(), "Root:0") {
		t.Errorf("got %v, want an invalid account", err)
	}
	if _, err := os.Stat(filepath.Join(r.dir, "known")); err != nil {
		t.Error(err)
	}
}
