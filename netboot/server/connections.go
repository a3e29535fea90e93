package server

import (
	"errors"
	"log/slog"
	"net"
	"net/netip"
	"sync"
)

// Limits of HTTP connections.
const (
	maxConnections           = 256
	maxConnectionsPerAddress = 32
)

var errTooManyConnections = errors.New("too many connections")

// limitedListener limits the connections, in total and of each address. If there are too many in total, a new one
// displaces the oldest of the address with the most. If all addresses have one, connections of new addresses wait.
type limitedListener struct {
	net.Listener
	maxPerAddress int
	log           *slog.Logger

	mu      sync.Mutex
	changed *sync.Cond // a connection was closed, or the listener
	closed  bool
	pool    pool
	open    map[*slot]net.Conn
}

func limitConnections(inner net.Listener, maxTotal, maxPerAddress int, log *slog.Logger) *limitedListener {
	l := &limitedListener{
		Listener: inner, maxPerAddress: maxPerAddress, log: log,
		pool: pool{limit: maxTotal}, open: map[*slot]net.Conn{},
	}
	l.changed = sync.NewCond(&l.mu)
	return l
}

// Accept implements [net.Listener]. It closes connections that exceed a limit.
func (l *limitedListener) Accept() (net.Conn, error) {
	for {
		conn, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		admitted, displaced := l.admit(conn)
		if displaced != nil {
			l.drop(displaced)
		}
		if admitted != nil {
			return admitted, nil
		}
		l.drop(conn)
	}
}

// drop closes a connection because of a limit.
func (l *limitedListener) drop(conn net.Conn) {
	err := errors.Join(errTooManyConnections, conn.Close())
	l.log.Warn("connection closed", "client", conn.RemoteAddr().String(), "err", err)
}

// admit adds a connection. It returns nil if a limit is exceeded, and the connection to close for the new one.
func (l *limitedListener) admit(conn net.Conn) (admitted, displaced net.Conn) {
	address := addressOf(conn.RemoteAddr())
	l.mu.Lock()
	defer l.mu.Unlock()
	for {
		own := l.pool.count(address)
		if l.closed || own >= l.maxPerAddress {
			return nil, nil
		}
		removed, ok := l.pool.makeSpace(address)
		if ok {
			displaced = l.open[removed]
			delete(l.open, removed)
			s := &slot{address: address}
			l.pool.add(s)
			l.open[s] = conn
			return &connection{conn, l, s}, displaced
		}
		if own > 0 {
			return nil, nil
		}
		l.changed.Wait()
	}
}

// leave removes a connection.
func (l *limitedListener) leave(s *slot) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if s.pool != nil {
		s.pool.remove(s)
		delete(l.open, s)
		l.changed.Broadcast()
	}
}

// Close implements [net.Listener]. Admitted connections stay open.
func (l *limitedListener) Close() error {
	l.mu.Lock()
	l.closed = true
	l.changed.Broadcast()
	l.mu.Unlock()
	return l.Listener.Close()
}

// connection is an admitted connection.
type connection struct {
	net.Conn
	listener *limitedListener
	slot     *slot
}

// Close implements [net.Conn].
func (c *connection) Close() error {
	c.listener.leave(c.slot)
	return c.Conn.Close()
}

// addressOf returns the IP address of a client, the zero Addr if it has none.
func addressOf(client net.Addr) netip.Addr {
	switch client := client.(type) {
	case *net.TCPAddr:
		return client.AddrPort().Addr().Unmap()
	case *net.UDPAddr:
		return client.AddrPort().Addr().Unmap()
	}
	return netip.Addr{}
}
