package admission

import (
	"context"
	"net"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"ironroot/internal/goroutine"
)

// Limits are the limits of a listener. All are numbers of connections except TrustedPeers.
type Limits struct {
	Untrusted        int // of all peers that are not trusted
	UntrustedPerPeer int
	Trusted          int // of all trusted peers, in addition to Untrusted
	TrustedPerPeer   int
	TrustedPeers     int // number of trusted addresses
}

// maxUnclosed is the number of evicted connections whose owners have not closed them yet and still use memory.
const maxUnclosed = 128

// Listener is a net.Listener with limits. It is safe for concurrent use.
type Listener struct {
	net.Listener
	log             Log
	maxTrustedPeers int

	once   sync.Once
	closed chan struct{}
	slots  chan struct{} // one element per connection that its owner has not closed

	turn    turn          // of untrusted connections
	maxTurn time.Duration // limits the duration of a turn

	mu           sync.Mutex
	untrusted    pool
	trusted      pool
	tally        tally
	networks     tally        // of IPv6 addresses
	trustedPeers []netip.Addr // the latest last
}

// Log receives the dropped connections.
type Log interface {
	// ConnectionDropped is called with the peer of each connection that is closed or rejected because of a limit. It
	// must not block.
	ConnectionDropped(peer netip.Addr)
}

// New returns a listener that admits connections of l within the limits. The log may be nil.
func New(l net.Listener, limits Limits, log Log) *Listener {
	return &Listener{
		Listener: l, log: log, maxTrustedPeers: limits.TrustedPeers,
		closed:    make(chan struct{}),
		maxTurn:   maxTurn,
		slots:     make(chan struct{}, limits.Untrusted+limits.Trusted+maxUnclosed),
		tally:     tally{peers: map[netip.Addr]*peer{}},
		networks:  tally{peers: map[netip.Addr]*peer{}},
		untrusted: newPool(limits.Untrusted, limits.UntrustedPerPeer),
		trusted:   newPool(limits.Trusted, limits.TrustedPerPeer),
	}
}

// Accept implements [net.Listener]. It returns admitted connections and closes all others.
func (l *Listener) Accept() (net.Conn, error) {
	for {
		select {
		case l.slots <- struct{}{}:
		case <-l.closed:
			return nil, net.ErrClosed
		}
		raw, err := l.Listener.Accept()
		if err != nil {
			<-l.slots
			return nil, err
		}
		if c := l.admit(raw); c != nil {
			return c, nil
		}
		reset(raw)
		l.dropped(peerOf(raw))
		<-l.slots
	}
}

// dropped logs a dropped connection.
func (l *Listener) dropped(peer netip.Addr) {
	if l.log != nil {
		l.log.ConnectionDropped(peer)
	}
}

// Close implements [net.Listener]. Admitted connections stay open.
func (l *Listener) Close() error {
	l.once.Do(func() { close(l.closed) })
	return l.Listener.Close()
}

// admit adds a connection to its pool. It returns nil if the pool is full and no connection can be closed.
func (l *Listener) admit(raw net.Conn) *conn {
	addr := peerOf(raw)
	l.mu.Lock()
	c := &conn{Conn: raw, listener: l, gone: make(chan struct{})}
	p := &l.untrusted
	if slices.Contains(l.trustedPeers, addr) {
		p, c.peer = &l.trusted, &peer{addr: addr}
	} else {
		c.peer = l.tally.add(addr, time.Now())
		if network, ok := networkOf(addr); ok {
			c.peer.network = l.networks.add(network, time.Now())
		}
	}
	victim, ok := p.makeSpace(c.peer)
	if ok {
		p.add(c)
	}
	l.mu.Unlock()
	if victim != nil {
		victim.evict()
	}
	if !ok {
		return nil
	}
	return c
}

// authenticate moves all connections of c's peer to the trusted pool, as far as it has capacity.
func (l *Listener) authenticate(c *conn) {
	l.mu.Lock()
	var victims []*conn
	if c.pool != nil {
		c.authenticated = true
		l.remember(c.peer.addr)
		for _, other := range slices.Clone(l.untrusted.conns) {
			if other.peer.addr != c.peer.addr {
				continue
			}
			victim, ok := l.trusted.makeSpace(c.peer)
			if victim != nil {
				victims = append(victims, victim)
			}
			if ok {
				l.untrusted.remove(other)
				l.trusted.add(other)
			}
		}
	}
	l.mu.Unlock()
	for _, victim := range victims {
		victim.evict()
	}
}

// remember adds a peer to the trusted peers, or renews it. The least recent one is removed if there are too many.
func (l *Listener) remember(addr netip.Addr) {
	if len(l.trustedPeers) > 0 && l.trustedPeers[len(l.trustedPeers)-1] == addr {
		return
	}
	l.trustedPeers = slices.DeleteFunc(l.trustedPeers, func(other netip.Addr) bool { return other == addr })
	l.trustedPeers = append(l.trustedPeers, addr)
	if len(l.trustedPeers) > l.maxTrustedPeers {
		l.trustedPeers = slices.Delete(l.trustedPeers, 0, len(l.trustedPeers)-l.maxTrustedPeers)
	}
}

// trusts reports whether the connection is in the trusted pool.
func (l *Listener) trusts(c *conn) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return c.pool == &l.trusted
}

// rank returns the rank of c's peer.
func (l *Listener) rank(c *conn) int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return c.peer.rank()
}

// leave removes a connection from its pool.
func (l *Listener) leave(c *conn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if c.pool != nil {
		c.pool.remove(c)
	}
}

// conn is an admitted connection.
type conn struct {
	net.Conn
	listener *Listener
	peer     *peer
	closing  sync.Once
	leaving  sync.Once
	gone     chan struct{}        // closed when the connection is closed
	hold     atomic.Pointer[hold] // the connection's turn; nil if it has none

	// Guarded by Listener.mu.
	pool          *pool // nil once removed
	authenticated bool
	busy          bool // a request is running
}

// Read implements [net.Conn]. On an untrusted connection it returns data only once the connection has the turn. The
// turn ends with the next Read or Write, or after maxTurn.
func (c *conn) Read(p []byte) (int, error) {
	c.yield()
	n, err := c.Conn.Read(p)
	if n > 0 && !c.listener.trusts(c) {
		if !c.listener.turn.take(c.listener.rank(c), c.gone) {
			return 0, net.ErrClosed
		}
		held := new(hold)
		c.hold.Store(held)
		goroutine.AfterTime(c.listener.maxTurn, func() {
			if c.hold.CompareAndSwap(held, nil) {
				c.listener.turn.pass()
			}
		})
		if c.isGone() { // Close can have run concurrently
			c.yield()
		}
	}
	return n, err
}

// Write implements [net.Conn]. It ends the turn, which a client that does not read would otherwise keep.
func (c *conn) Write(p []byte) (int, error) {
	c.yield()
	return c.Conn.Write(p)
}

// isGone reports whether the connection is closed.
func (c *conn) isGone() bool {
	select {
	case <-c.gone:
		return true
	default:
		return false
	}
}

// yield ends the connection's turn, if it has one.
func (c *conn) yield() {
	if c.hold.Swap(nil) != nil {
		c.listener.turn.pass()
	}
}

// Close implements [net.Conn]. It is called by the connection's owner.
func (c *conn) Close() error {
	c.listener.leave(c)
	c.leaving.Do(func() { close(c.gone) })
	c.yield()
	err := c.Conn.Close()
	c.closing.Do(func() { <-c.listener.slots })
	return err
}

// evict closes a connection that was removed from its pool because of a limit. Its owner receives an error.
func (c *conn) evict() {
	c.leaving.Do(func() { close(c.gone) })
	reset(c.Conn)
	c.listener.dropped(c.peer.addr)
}

// reset closes a connection with a TCP reset, so that the kernel keeps no state of it.
func reset(c net.Conn) {
	if tcp, ok := c.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0) // the connection is abandoned
	}
	_ = c.Close() // the connection is abandoned
}

// peerOf returns the remote address, the zero Addr if it is not a TCP address.
func peerOf(c net.Conn) netip.Addr {
	if tcp, ok := c.RemoteAddr().(*net.TCPAddr); ok {
		return tcp.AddrPort().Addr().Unmap()
	}
	return netip.Addr{}
}

// unwrap returns the admitted connection below layers such as TLS, nil if there is none.
func unwrap(c net.Conn) *conn {
	for c != nil {
		if admitted, ok := c.(*conn); ok {
			return admitted
		}
		wrapper, ok := c.(interface{ NetConn() net.Conn })
		if !ok {
			return nil
		}
		c = wrapper.NetConn()
	}
	return nil
}

// SetBusy records whether a request is running on a connection. c can be wrapped by TLS.
func SetBusy(c net.Conn, busy bool) {
	if admitted := unwrap(c); admitted != nil {
		admitted.listener.mu.Lock()
		defer admitted.listener.mu.Unlock()
		admitted.busy = busy
	}
}

type contextKey struct{}

// WithConn returns a context for the requests of a connection, for http.Server.ConnContext.
func WithConn(ctx context.Context, c net.Conn) context.Context {
	return context.WithValue(ctx, contextKey{}, unwrap(c))
}

// Authenticate records that a request presented a valid token. ctx is the request's context. Connections that no
// Listener accepted are ignored.
func Authenticate(ctx context.Context) {
	if c, _ := ctx.Value(contextKey{}).(*conn); c != nil {
		c.listener.authenticate(c)
		c.yield()
	}
}

// Authenticated reports whether a request on a connection of the same peer presented a valid token recently enough for
// its connections to be trusted. ctx is the request's context. It is false for connections that no Listener accepted.
func Authenticated(ctx context.Context) bool {
	c, _ := ctx.Value(contextKey{}).(*conn)
	return c != nil && c.listener.trusts(c)
}

// Yield ends the turn of the request's connection, so that others can proceed while the request waits.
func Yield(ctx context.Context) {
	if c, _ := ctx.Value(contextKey{}).(*conn); c != nil {
		c.yield()
	}
}
