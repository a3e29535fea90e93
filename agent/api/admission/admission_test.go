package admission

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// eventTimeout limits the wait for an event.
const eventTimeout = time.Minute

// fixture is a Listener on the loopback interface. Each address of 127.0.0.0/8 is a peer.
type fixture struct {
	t *testing.T
	l *Listener

	mu      sync.Mutex
	dropped map[netip.Addr]int
}

// ConnectionDropped implements [Log].
func (f *fixture) ConnectionDropped(peer netip.Addr) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.dropped[peer]++
}

func start(t *testing.T, limits Limits) *fixture {
	t.Helper()
	inner, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	f := &fixture{t: t, dropped: map[netip.Addr]int{}}
	f.l = New(inner, limits, f)
	t.Cleanup(func() { _ = f.l.Close() })
	return f
}

// dial connects from an address and returns both ends. The server's is nil if the connection was not admitted.
func (f *fixture) dial(from string) (client, server net.Conn) {
	f.t.Helper()
	d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}, Timeout: eventTimeout}
	client, err := d.DialContext(f.t.Context(), "tcp4", f.l.Addr().String())
	if err != nil {
		f.t.Fatal(err)
	}
	f.t.Cleanup(func() { _ = client.Close() })
	raw, err := f.l.Listener.Accept()
	if err != nil {
		f.t.Fatal(err)
	}
	f.l.slots <- struct{}{}
	if c := f.l.admit(raw); c != nil {
		f.t.Cleanup(func() { _ = c.Close() })
		return client, c
	}
	<-f.l.slots
	reset(raw)
	return client, nil
}

func (f *fixture) want(name string, servers []net.Conn, want ...bool) {
	f.t.Helper()
	for i, server := range servers {
		if got := !server.(*conn).isGone(); got != want[i] {
			f.t.Errorf("%s: connection %d open: got %v, want %v", name, i+1, got, want[i])
		}
	}
}

func authenticate(server net.Conn) { Authenticate(WithConn(context.Background(), server)) }

func limits() Limits {
	return Limits{Untrusted: 4, UntrustedPerPeer: 2, Trusted: 3, TrustedPerPeer: 2, TrustedPeers: 2}
}

func TestPeerLimit(t *testing.T) {
	f := start(t, limits())
	var servers []net.Conn
	var first net.Conn
	for i := range 3 {
		client, server := f.dial("127.0.0.2")
		if i == 0 {
			first = client
		}
		servers = append(servers, server)
	}
	_, other := f.dial("127.0.0.3")
	f.want("third connection of a peer", append(servers, other), false, true, true, true)
	if err := first.SetReadDeadline(time.Now().Add(eventTimeout)); err != nil {
		t.Fatal(err)
	}
	if _, err := first.Read(make([]byte, 1)); !errors.Is(err, unix.ECONNRESET) {
		t.Errorf("client of the closed connection: got %v, want %v", err, unix.ECONNRESET)
	}
	if got := f.dropped[netip.MustParseAddr("127.0.0.2")]; got != 1 {
		t.Errorf("dropped connections of the peer: got %d, want 1", got)
	}
}

// A full pool closes a connection of the peer that recently opened the most, among equals the oldest.
func TestFullPool(t *testing.T) {
	f := start(t, limits())
	var servers []net.Conn
	for _, from := range []string{"127.0.0.2", "127.0.0.3", "127.0.0.3", "127.0.0.4", "127.0.0.5"} {
		_, server := f.dial(from)
		servers = append(servers, server)
	}
	f.want("peer with two of four", servers, true, false, true, true, true)
	_, server := f.dial("127.0.0.6")
	servers = append(servers, server)
	f.want("peer with two attempts", servers, true, false, false, true, true, true)
	_, server = f.dial("127.0.0.7")
	servers = append(servers, server)
	f.want("one attempt of each peer", servers, false, false, false, true, true, true, true)
	if _, refused := f.dial("127.0.0.3"); refused != nil {
		t.Error("a peer with more attempts than all others was admitted")
	}
}

// A peer that opens one connection keeps it while others repeatedly open theirs.
func TestNewPeerUnderFlood(t *testing.T) {
	f := start(t, limits())
	flood := func() {
		for i := range 20 {
			f.dial(fmt.Sprintf("127.0.1.%d", i+1))
		}
	}
	flood()
	flood()
	_, conductor := f.dial("127.0.0.9")
	flood()
	f.want("new peer", []net.Conn{conductor}, true)
}

// Many addresses of one IPv6 network with one connection each lose one to a peer of another network. Within a network
// the addresses are compared.
func TestNetworks(t *testing.T) {
	p, addresses, networks := newPool(4, 4), tally{peers: map[netip.Addr]*peer{}}, tally{peers: map[netip.Addr]*peer{}}
	l := &Listener{tally: addresses, networks: networks, untrusted: p}
	connect := func(from string) *conn {
		client, server := net.Pipe()
		t.Cleanup(func() { _, _ = client.Close(), server.Close() })
		return l.admit(from6{server, net.TCPAddrFromAddrPort(netip.MustParseAddrPort("[" + from + "]:1"))})
	}
	conductor := connect("2001:db8:1::9")
	for i := range 20 {
		connect(fmt.Sprintf("2001:db8:2::%x", i+1))
	}
	if conductor.isGone() {
		t.Error("the only connection of a network was closed for those of another")
	}
	if again := connect("2001:db8:1::9"); again == nil {
		t.Error("second connection of the conductor: got it refused, want it accepted")
	}
	neighbour := connect("2001:db8:2::1:9")
	for range 20 {
		connect("2001:db8:2::1")
	}
	if neighbour.isGone() {
		t.Error("the only connection of an address was closed for those of another one of its network")
	}
}

// from6 is a connection from an address.
type from6 struct {
	net.Conn
	from net.Addr
}

func (c from6) RemoteAddr() net.Addr { return c.from }

func TestTally(t *testing.T) {
	counted := tally{peers: map[netip.Addr]*peer{}}
	now := time.Now()
	a, b := netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("192.0.2.2")
	for i, step := range []struct {
		addr  netip.Addr
		after time.Duration
		want  int
	}{
		{a, 0, 1},
		{a, tallyWindow / 2, 2},
		{b, tallyWindow, 1},
		{a, tallyWindow, 3},
		{b, 2 * tallyWindow, 2},
		{a, 3 * tallyWindow, 1},
	} {
		if got := counted.add(step.addr, now.Add(step.after)).attempts(); got != step.want {
			t.Errorf("step %d: got %d attempts, want %d", i+1, got, step.want)
		}
	}
	for i := range 2 * maxTallied {
		counted.add(netip.AddrFrom4([4]byte{10, byte(i >> 16), byte(i >> 8), byte(i)}), now.Add(3*tallyWindow))
	}
	if got := len(counted.peers); got != maxTallied {
		t.Errorf("counted peers: got %d, want %d", got, maxTallied)
	}
	counted.add(a, now.Add(5*tallyWindow))
	counted.add(a, now.Add(7*tallyWindow))
	if got := len(counted.peers); got != 1 {
		t.Errorf("counted peers after a while: got %d, want 1", got)
	}
}

func TestTrustedPeersHaveTheirOwnSpace(t *testing.T) {
	f := start(t, limits())
	_, conductor := f.dial("127.0.0.9")
	_, second := f.dial("127.0.0.9")
	authenticate(conductor)
	var flood []net.Conn
	for i := range 20 {
		_, server := f.dial(fmt.Sprintf("127.0.1.%d", i+1))
		flood = append(flood, server)
	}
	f.want("conductor under a flood", []net.Conn{conductor, second}, true, true)
	for i, server := range flood {
		if got, want := !server.(*conn).isGone(), i >= 16; got != want {
			t.Errorf("connection %d open: got %v, want %v", i+1, got, want)
		}
	}
	// A peer's limit closes connections that have not presented the token, and keeps those that have.
	_, third := f.dial("127.0.0.9")
	f.want("third of the conductor", []net.Conn{conductor, second, third}, true, false, true)
	authenticate(third)
	SetBusy(conductor, true)
	SetBusy(third, true)
	if _, refused := f.dial("127.0.0.9"); refused != nil {
		t.Error("a connection was admitted in place of requests that are being answered")
	}
	SetBusy(conductor, false)
	_, fourth := f.dial("127.0.0.9")
	f.want("idle connection", []net.Conn{conductor, third, fourth}, false, true, true)
}

func TestPeerThatBecomesTrusted(t *testing.T) {
	f := start(t, limits())
	var servers []net.Conn
	for i := range 3 { // fill the trusted pool with idle connections
		_, server := f.dial(fmt.Sprintf("127.0.0.%d", i/2+2))
		authenticate(server)
		servers = append(servers, server)
	}
	for i := range 4 {
		f.dial(fmt.Sprintf("127.0.1.%d", i+1))
	}
	_, late := f.dial("127.0.0.8")
	authenticate(late)
	if !f.l.trusts(late.(*conn)) {
		t.Error("the peer that presented a token last is not trusted")
	}
	f.want("trusted peers", append(servers, late), false, true, true, true)
	if got, want := len(f.l.trustedPeers), limits().TrustedPeers; got != want {
		t.Errorf("remembered peers: got %d, want %d", got, want)
	}
	if _, server := f.dial("127.0.0.2"); f.l.trusts(server.(*conn)) {
		t.Error("a peer that was removed is trusted")
	}
}

// Accept waits until the owners of dropped connections have closed them.
func TestAcceptWaitsForOwners(t *testing.T) {
	f := start(t, Limits{Untrusted: 1, UntrustedPerPeer: 1, Trusted: 1, TrustedPerPeer: 1, TrustedPeers: 1})
	accepted := make(chan net.Conn)
	ended := make(chan error, 1)
	go func() {
		for {
			c, err := f.l.Accept()
			if err != nil {
				ended <- err
				return
			}
			accepted <- c
		}
	}()
	d := net.Dialer{Timeout: eventTimeout}
	dial := func() {
		c, err := d.DialContext(t.Context(), "tcp4", f.l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close() })
	}
	owned := make([]net.Conn, 0, 2+maxUnclosed)
	for range cap(owned) {
		dial()
		owned = append(owned, <-accepted)
	}
	dial()
	if got := len(f.l.slots); got != cap(f.l.slots) {
		t.Errorf("slots in use: got %d, want all %d", got, cap(f.l.slots))
	}
	select {
	case <-accepted:
		t.Error("a connection was accepted while the owners of all others keep theirs")
	default:
	}
	for range 2 { // the second call has no effect
		_ = owned[0].Close()
	}
	owned = append(owned, <-accepted)
	dial() // and Accept waits again until the listener is closed
	if err := f.l.Close(); err != nil {
		t.Error(err)
	}
	if err := <-ended; !errors.Is(err, net.ErrClosed) {
		t.Errorf("Accept after Close: got %v, want %v", err, net.ErrClosed)
	}
	for _, c := range owned {
		_ = c.Close()
	}
	if got := len(f.l.slots); got != 0 {
		t.Errorf("slots in use after all connections were closed: got %d, want 0", got)
	}
	if got := len(f.l.untrusted.conns) + len(f.l.trusted.conns); got != 0 {
		t.Errorf("connections in the pools: got %d, want 0", got)
	}
	if got := len(f.l.untrusted.count) + len(f.l.trusted.count); got != 0 {
		t.Errorf("peers whose connections are counted: got %d, want 0", got)
	}
	if err := f.l.Close(); !errors.Is(err, net.ErrClosed) {
		t.Errorf("closed twice: got %v, want %v", err, net.ErrClosed)
	}
	if err := owned[0].Close(); !errors.Is(err, net.ErrClosed) {
		t.Errorf("connection closed again: got %v, want %v", err, net.ErrClosed)
	}
}

// A connection that is not admitted is reset, and Accept returns the next admitted one.
func TestAcceptRefuses(t *testing.T) {
	few := Limits{Untrusted: 1, UntrustedPerPeer: 1, Trusted: 1, TrustedPerPeer: 1, TrustedPeers: 1}
	for _, c := range []struct {
		name  string
		start func() (*Listener, func() int)
	}{
		{"counted", func() (*Listener, func() int) {
			f := start(t, few)
			return f.l, func() int {
				f.mu.Lock()
				defer f.mu.Unlock()
				return f.dropped[netip.MustParseAddr("127.0.0.3")]
			}
		}},
		{"not counted", func() (*Listener, func() int) {
			f := start(t, few)
			return New(f.l.Listener, few, nil), func() int { return 2 }
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			l, dropped := c.start()
			accepted := make(chan net.Conn, 4)
			go func() {
				for {
					conn, err := l.Accept()
					if err != nil {
						close(accepted)
						return
					}
					accepted <- conn
				}
			}()
			connect := func(from string) (net.Conn, error) {
				d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}, Timeout: eventTimeout}
				client, err := d.DialContext(t.Context(), "tcp4", l.Addr().String())
				if err == nil {
					t.Cleanup(func() { _ = client.Close() })
				}
				return client, err
			}
			dial := func(from string) net.Conn {
				client, err := connect(from)
				if err != nil {
					t.Fatal(err)
				}
				return client
			}
			dial("127.0.0.3")
			first := <-accepted
			dial("127.0.0.2")
			second := <-accepted // in place of the first
			refused, err := connect("127.0.0.3")
			if err == nil { // the reset can arrive while it connects
				if err := refused.SetReadDeadline(time.Now().Add(eventTimeout)); err != nil {
					t.Fatal(err)
				}
				_, err = refused.Read(make([]byte, 1))
			}
			if !errors.Is(err, unix.ECONNRESET) {
				t.Errorf("client that was not admitted: got %v, want %v", err, unix.ECONNRESET)
			}
			last := dial("127.0.0.4")
			third := <-accepted // in place of the second
			if got, want := third.RemoteAddr().String(), last.LocalAddr().String(); got != want {
				t.Errorf("accepted: got %s, want %s", got, want)
			}
			if got := dropped(); got != 2 {
				t.Errorf("dropped connections of the peer: got %d, want 2", got)
			}
			for _, conn := range []net.Conn{first, second, third} {
				_ = conn.Close()
			}
			if err := l.Close(); err != nil {
				t.Error(err)
			}
			for range accepted {
				t.Error("one more connection was accepted")
			}
			if got := len(l.slots); got != 0 {
				t.Errorf("slots in use: got %d, want 0", got)
			}
		})
	}
}

// faulty is a listener without free file descriptors.
type faulty struct{ net.Listener }

func (faulty) Accept() (net.Conn, error) { return nil, unix.EMFILE }

func TestAcceptFails(t *testing.T) {
	l := New(faulty{}, limits(), nil)
	for range 2 * cap(l.slots) { // each failure releases its slot
		if _, err := l.Accept(); !errors.Is(err, unix.EMFILE) {
			t.Fatalf("got error %v, want %v", err, unix.EMFILE)
		}
	}
}

// The least recent trusted peer is removed.
func TestRemember(t *testing.T) {
	three := limits()
	three.TrustedPeers = 3
	f := start(t, three)
	trusted := func(from string, want bool) {
		t.Helper()
		_, server := f.dial(from)
		defer server.Close()
		if got := f.l.trusts(server.(*conn)); got != want {
			t.Errorf("%s trusted: got %v, want %v", from, got, want)
		}
	}
	present := func(from string) {
		t.Helper()
		_, server := f.dial(from)
		authenticate(server)
		_ = server.Close()
	}
	for _, from := range []string{"127.0.0.2", "127.0.0.3", "127.0.0.4", "127.0.0.2"} {
		present(from)
	}
	for _, from := range []string{"127.0.0.2", "127.0.0.3", "127.0.0.4"} {
		trusted(from, true)
	}
	present("127.0.0.5")
	trusted("127.0.0.3", false)
	for _, from := range []string{"127.0.0.2", "127.0.0.4", "127.0.0.5"} {
		trusted(from, true)
	}
}

// Connections are found below TLS. Those that no Listener accepted are ignored.
func TestWrapped(t *testing.T) {
	f := start(t, limits())
	_, server := f.dial("127.0.0.2")
	encrypted := tls.Server(server, &tls.Config{MinVersion: tls.VersionTLS12})
	SetBusy(encrypted, true)
	if !server.(*conn).busy {
		t.Error("connection below TLS: got it idle, want it busy")
	}
	Authenticate(WithConn(context.Background(), encrypted))
	if !f.l.trusts(server.(*conn)) {
		t.Error("connection below TLS: got it not trusted")
	}
	client, other := net.Pipe()
	defer client.Close()
	defer other.Close()
	SetBusy(other, true)
	authenticate(other)
	Yield(WithConn(context.Background(), other))
}

func TestFit(t *testing.T) {
	usual := Limits{Untrusted: 256, UntrustedPerPeer: 32, Trusted: 128, TrustedPerPeer: 64, TrustedPeers: 32}
	for descriptors, want := range map[int]Limits{
		4096: usual,
		320:  {Untrusted: 21, UntrustedPerPeer: 21, Trusted: 11, TrustedPerPeer: 11, TrustedPeers: 32},
	} {
		got := usual.Fit(descriptors)
		if got != want {
			t.Errorf("%d descriptors: got %+v, want %+v", descriptors, got, want)
		}
	}
	if n, err := Descriptors(); err != nil || n < 3 {
		t.Errorf("descriptors of this process: got %d, %v", n, err)
	}
}

// reader is a connection whose client sends a byte that the server reads.
type reader struct {
	client, server net.Conn
	read           chan error
}

func (f *fixture) connect(from string) reader {
	f.t.Helper()
	client, server := f.dial(from)
	return reader{client, server, make(chan error, 1)}
}

func (f *fixture) send(r reader) {
	f.t.Helper()
	if _, err := io.WriteString(r.client, "x"); err != nil {
		f.t.Fatal(err)
	}
	go func() {
		_, err := r.server.Read(make([]byte, 1))
		r.read <- err
	}()
}

// waiting waits until n connections wait for their turn.
func (f *fixture) waiting(n int) {
	f.t.Helper()
	for limit := time.Now().Add(eventTimeout); ; time.Sleep(time.Millisecond) {
		f.l.turn.mu.Lock()
		got := len(f.l.turn.waiting)
		f.l.turn.mu.Unlock()
		if got == n {
			return
		}
		if time.Now().After(limit) {
			f.t.Fatalf("connections that wait for the turn: got %d, want %d", got, n)
		}
	}
}

// A turn ends when the connection is read again or closed. A closed connection no longer waits.
func TestTurnEnds(t *testing.T) {
	f := start(t, limits())
	f.l.maxTurn = 2 * eventTimeout
	first, second, third := f.connect("127.0.0.2"), f.connect("127.0.0.3"), f.connect("127.0.0.4")
	outcome := func(r reader, want error) {
		t.Helper()
		select {
		case err := <-r.read:
			if !errors.Is(err, want) {
				t.Fatalf("got error %v, want %v", err, want)
			}
		case <-time.After(eventTimeout):
			t.Fatalf("no turn after %v", eventTimeout)
		}
	}
	f.send(first)
	outcome(first, nil)
	f.send(second)
	f.waiting(1)
	go func() { // nothing more arrives
		_, err := first.server.Read(make([]byte, 1))
		first.read <- err
	}()
	outcome(second, nil)
	f.send(third)
	f.waiting(1)
	if err := third.server.Close(); err != nil {
		t.Error(err)
	}
	outcome(third, net.ErrClosed)
	fourth := f.connect("127.0.0.5")
	f.send(fourth)
	f.waiting(1)
	if err := second.server.Close(); err != nil {
		t.Error(err)
	}
	outcome(fourth, nil)
}

// Untrusted connections take turns, the latest first. Trusted connections do not wait, and closed ones get no turn.
func TestUntrustedTakeTurns(t *testing.T) {
	f := start(t, limits())
	f.l.maxTurn = eventTimeout
	conductor := f.connect("127.0.0.9")
	authenticate(conductor.server)
	first, second, third := f.connect("127.0.0.2"), f.connect("127.0.0.3"), f.connect("127.0.0.4")
	gone := f.connect("127.0.0.5")
	f.send(first)
	if err := <-first.read; err != nil {
		t.Fatal(err)
	}
	for i, p := range []reader{second, gone, third} {
		f.send(p)
		f.waiting(i + 1)
	}
	f.send(conductor)
	if err := <-conductor.read; err != nil {
		t.Errorf("conductor while others wait: %v", err)
	}
	gone.server.(*conn).evict()
	if err := <-gone.read; !errors.Is(err, net.ErrClosed) {
		t.Errorf("closed connection: got %v, want %v", err, net.ErrClosed)
	}
	f.waiting(2)
	if _, err := first.server.Write([]byte("x")); err != nil { // ends its turn
		t.Fatal(err)
	}
	if err := <-third.read; err != nil {
		t.Errorf("latest connection: %v", err)
	}
	f.waiting(1)
	Yield(WithConn(context.Background(), third.server))
	if err := <-second.read; err != nil {
		t.Errorf("connection that waited for longest: %v", err)
	}
	authenticate(second.server) // ends its turn, because a command can take hours
	f.l.turn.mu.Lock()
	defer f.l.turn.mu.Unlock()
	if f.l.turn.taken {
		t.Error("a connection that presented the token keeps the turn")
	}
}

// A connection whose data is not processed loses the turn after maxTurn.
func TestTurnIsLimited(t *testing.T) {
	f := start(t, limits())
	firstClient, first := f.dial("127.0.0.2")
	secondClient, second := f.dial("127.0.0.3")
	for i, client := range []net.Conn{firstClient, secondClient} {
		if _, err := io.WriteString(client, "x"); err != nil {
			t.Fatal(err)
		}
		server := []net.Conn{first, second}[i]
		read := make(chan error, 1)
		go func() {
			_, err := server.Read(make([]byte, 1))
			read <- err
		}()
		select {
		case err := <-read:
			if err != nil {
				t.Fatal(err)
			}
		case <-time.After(eventTimeout):
			t.Fatalf("connection %d: no turn after %v, want one after %v", i+1, eventTimeout, maxTurn)
		}
	}
}

// After any sequence of reads, writes and closes the turn is free, and no state of a connection remains.
func TestChurn(t *testing.T) {
	f := start(t, Limits{Untrusted: 8, UntrustedPerPeer: 4, Trusted: 4, TrustedPerPeer: 4, TrustedPeers: 2})
	var owners, clients sync.WaitGroup
	owners.Go(func() {
		for {
			c, err := f.l.Accept()
			if err != nil {
				return
			}
			background := make(chan struct{})
			owners.Go(func() { // net/http reads in the background and closes concurrently, too
				defer close(background)
				for p := make([]byte, 1); ; {
					if _, err := c.Read(p); err != nil {
						return
					}
					if p[0] == 'a' {
						authenticate(c)
					}
				}
			})
			owners.Go(func() {
				_, _ = c.Write([]byte("x"))
				if c.RemoteAddr().(*net.TCPAddr).Port%4 > 1 {
					<-background
				}
				_ = c.Close()
			})
		}
	})
	for i := range 16 {
		clients.Go(func() {
			d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, byte(2+i%5))}, Timeout: eventTimeout}
			for n := range 50 {
				c, err := d.DialContext(t.Context(), "tcp4", f.l.Addr().String())
				if err != nil {
					continue // it can be closed already
				}
				_, _ = io.WriteString(c, "yyyya"[n%5:])
				_ = c.Close()
			}
		})
	}
	clients.Wait()
	if err := f.l.Close(); err != nil {
		t.Error(err)
	}
	owners.Wait()
	if f.l.turn.taken || len(f.l.turn.waiting) > 0 ||
		len(f.l.slots) > 0 || len(f.l.untrusted.conns)+len(f.l.trusted.conns) > 0 {
		t.Errorf("got turn taken %v, %d waiting, %d slots, %d untrusted, %d trusted, want none", f.l.turn.taken,
			len(f.l.turn.waiting), len(f.l.slots), len(f.l.untrusted.conns), len(f.l.trusted.conns))
	}
}
