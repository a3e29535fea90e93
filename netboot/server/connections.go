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
	httpConnections = 256
	httpPerClient   = 32 // of an address
)

var errTooManyConnections = errors.New("too many connections")

// connections is a listener that limits the connections, in total and of each client. If there are too many in total,
// a new one displaces the oldest of the client with the most. If all clients have one, new clients wait.
type connections struct {
	net.Listener
	perClient int
	log       *slog.Logger

	mu      sync.Mutex
	changed *sync.Cond // a connection was closed, or the listener
	closed  bool
	pool    pool
	open    map[*slot]net.Conn
}

func limitConnections(l net.Listener, total, perClient int, log *slog.Logger) *connections {
	c := &connections{
		Listener: l, perClient: perClient, log: log, pool: pool{limit: total}, open: map[*slot]net.Conn{},
	}
	c.changed = sync.NewCond(&c.mu)
	return c
}

// Accept implements [net.Listener]. It closes connections that exceed a limit.
func (c *connections) Accept() (net.Conn, error) {
	for {
		conn, err := c.Listener.Accept()
		if err != nil {
			return nil, err
		}
		admitted, displaced := c.admit(conn)
		if displaced != nil {
			c.drop(displaced)
		}
		if admitted != nil {
			return admitted, nil
		}
		c.drop(conn)
	}
}

// drop closes a connection because of a limit.
func (c *connections) drop(conn net.Conn) {
	err := errors.Join(errTooManyConnections, conn.Close())
	c.log.Warn("connection closed", "client", conn.RemoteAddr().String(), "err", err)
}

// admit adds a connection. It returns nil if a limit is exceeded, and the connection to close for the new one.
func (c *connections) admit(conn net.Conn) (admitted, displaced net.Conn) {
	client := clientOf(conn.RemoteAddr())
	c.mu.Lock()
	defer c.mu.Unlock()
	for {
		own := c.pool.count(client)
		if c.closed || own >= c.perClient {
			return nil, nil
		}
		removed, ok := c.pool.makeSpace(client)
		if ok {
			displaced = c.open[removed]
			delete(c.open, removed)
			s := &slot{client: client}
			c.pool.add(s)
			c.open[s] = conn
			return &connection{Conn: conn, close: func() { c.leave(s) }}, displaced
		}
		if own > 0 {
			return nil, nil
		}
		c.changed.Wait()
	}
}

// leave removes a connection.
func (c *connections) leave(s *slot) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if s.pool != nil {
		s.pool.remove(s)
		delete(c.open, s)
		c.changed.Broadcast()
	}
}

// Close implements [net.Listener]. Admitted connections stay open.
func (c *connections) Close() error {
	c.mu.Lock()
	c.closed = true
	c.changed.Broadcast()
	c.mu.Unlock()
	return c.Listener.Close()
}

// connection is an admitted connection.
type connection struct {
	net.Conn
	close func()
}

// Close implements [net.Conn].
func (c *connection) Close() error {
	c.close()
	return c.Conn.Close()
}

// clientOf returns the IP address of a client, the zero Addr if it has none.
func clientOf(address net.Addr) netip.Addr {
	switch address := address.(type) {
	case *net.TCPAddr:
		return address.AddrPort().Addr().Unmap()
	case *net.UDPAddr:
		return address.AddrPort().Addr().Unmap()
	}
	return netip.Addr{}
}
