package admission

import (
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"
)

// patience bounds the wait for an event.
const patience = time.Minute

// fixture is a Listener on the loopback interface with a peer for each address of 127.0.0.0/8.
type fixture struct {
	t *testing.T
	l *Listener

	mu      sync.Mutex
	dropped map[netip.Addr]int
}

func start(t *testing.T, limits Limits) *fixture {
	t.Helper()
	inner, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	f := &fixture{t: t, dropped: map[netip.Addr]int{}}
	f.l = New(inner, limits, func(peer netip.Addr) {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.dropped[peer]++
	})
	t.Cleanup(func() { _ = f.l.Close() })
	return f
}

// dial connects from an address and returns both ends; the server's is nil where the connection was not admitted.
func (f *fixture) dial(from string) (client, server net.Conn) {
	f.t.Helper()
	d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}, Timeout: patience}
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

// open reports whether a connection is still open at the server.
func open(server net.Conn) bool {
	select {
	case <-server.(*conn).gone:
		return false
	default:
		return true
	}
}

func (f *fixture) want(name string, servers []net.Conn, want ...bool) {
	f.t.Helper()
	for i, server := range servers {
		if got := open(server); got != want[i] {
			f.t.Errorf("%s: connection %d open: got %v, want %v", name, i+1, got, want[i])
		}
	}
}

func authenticate(server net.Conn) { Authenticate(WithConn(context.Background(), server)) }

func limits() Limits {
	return Limits{Strangers: 4, StrangerPerPeer: 2, Trusted: 3, TrustedPerPeer: 2, TrustedPeers: 2}
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
	if err := first.SetReadDeadline(time.Now().Add(patience)); err != nil {
		t.Fatal(err)
	}
	if _, err := first.Read(make([]byte, 1)); err == nil || errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("client of the closed connection: got %v, want a reset", err)
	}
	if got := f.dropped[netip.MustParseAddr("127.0.0.2")]; got != 1 {
		t.Errorf("dropped connections of the peer: got %d, want 1", got)
	}
}

// The peer with most connections pays for a new one, not the oldest of all.
func TestFullPool(t *testing.T) {
	f := start(t, limits())
	var servers []net.Conn
	for _, from := range []string{"127.0.0.2", "127.0.0.3", "127.0.0.3", "127.0.0.4", "127.0.0.5"} {
		_, server := f.dial(from)
		servers = append(servers, server)
	}
	f.want("peer with two of four", servers, true, false, true, true, true)
	_, server := f.dial("127.0.0.6")
	f.want("one of each peer", append(servers, server), false, false, true, true, true, true)
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
		if got, want := open(server), i >= 16; got != want {
			t.Errorf("stranger %d open: got %v, want %v", i+1, got, want)
		}
	}
	// A peer's limit closes what has not presented the token, and keeps what has.
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
	for i := range 3 { // fill the space of trusted peers with idle connections
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
	if got, want := len(f.l.known), limits().TrustedPeers; got != want {
		t.Errorf("remembered peers: got %d, want %d", got, want)
	}
	if _, server := f.dial("127.0.0.2"); f.l.trusts(server.(*conn)) {
		t.Error("a peer that was forgotten is trusted")
	}
}

// However fast connections are dropped, Accept waits until their owners let go of them.
func TestAcceptWaitsForOwners(t *testing.T) {
	f := start(t, Limits{Strangers: 1, StrangerPerPeer: 1, Trusted: 1, TrustedPerPeer: 1, TrustedPeers: 1})
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
	d := net.Dialer{Timeout: patience}
	dial := func() {
		c, err := d.DialContext(t.Context(), "tcp4", f.l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close() })
	}
	owned := make([]net.Conn, 0, 2+overlap)
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
	for range 2 { // the second has no effect
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
	if got := len(f.l.strangers.conns) + len(f.l.trusted.conns); got != 0 {
		t.Errorf("connections in the pools: got %d, want 0", got)
	}
}

func TestFit(t *testing.T) {
	usual := Limits{Strangers: 256, StrangerPerPeer: 32, Trusted: 128, TrustedPerPeer: 64, TrustedPeers: 32}
	for descriptors, want := range map[int]Limits{
		4096: usual,
		256:  {Strangers: 42, StrangerPerPeer: 32, Trusted: 22, TrustedPerPeer: 22, TrustedPeers: 32},
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

// slowKey counts how many signatures are made at once, and lets none end before it is told to.
type slowKey struct {
	*ecdsa.PrivateKey
	begun, end chan struct{}
}

func (k slowKey) Sign(random io.Reader, digest []byte, options crypto.SignerOpts) ([]byte, error) {
	k.begun <- struct{}{}
	<-k.end
	return k.PrivateKey.Sign(random, digest, options)
}

func newSlowKey(t *testing.T) (slowKey, *tls.Config) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	slow := slowKey{key, make(chan struct{}), make(chan struct{})}
	return slow, &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: slow}}}
}

// Strangers wait for each other's signature; a trusted peer does not wait for theirs, and one that is gone gets none.
func TestHandshakesOfStrangersQueue(t *testing.T) {
	f := start(t, limits())
	key, settings := newSlowKey(t)
	settings = Handshakes(settings)
	handshake := func(from string, trusted bool) (ended chan error, server net.Conn) {
		client, server := f.dial(from)
		if trusted {
			authenticate(server)
		}
		go func() {
			_ = tls.Client(client, &tls.Config{InsecureSkipVerify: true}).HandshakeContext(t.Context()) // the server's end is tested
		}()
		ended = make(chan error, 1)
		go func() { ended <- tls.Server(server, settings).HandshakeContext(t.Context()) }()
		return ended, server
	}
	first, _ := handshake("127.0.0.2", false)
	<-key.begun
	gone, server := handshake("127.0.0.3", false)
	next, _ := handshake("127.0.0.4", false)
	conductor, _ := handshake("127.0.0.9", true)
	<-key.begun // the conductor's, while the first stranger's goes on
	server.(*conn).evict()
	if err := <-gone; err == nil || !strings.Contains(err.Error(), net.ErrClosed.Error()) {
		t.Errorf("stranger that was dropped: got %v, want %v", err, net.ErrClosed)
	}
	key.end <- struct{}{}
	key.end <- struct{}{}
	<-key.begun // the next stranger's
	key.end <- struct{}{}
	for name, ended := range map[string]chan error{"first stranger": first, "next stranger": next, "conductor": conductor} {
		if err := <-ended; err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}
