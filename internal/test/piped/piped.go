// Package piped serves HTTP on connections in memory, so that tests of time limits run in a bubble of
// testing/synctest.
package piped

import (
	"context"
	"net"
	"net/http"
	"sync"
)

// listener accepts the server's ends of pipes.
type listener struct {
	conns   chan net.Conn
	closed  chan struct{}
	closing sync.Once
}

// Accept implements [net.Listener].
func (l *listener) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

// Close implements [net.Listener].
func (l *listener) Close() error {
	l.closing.Do(func() { close(l.closed) })
	return nil
}

// Addr implements [net.Listener].
func (*listener) Addr() net.Addr { return &net.TCPAddr{} }

// Serve starts a server and returns a client that sends all requests to it, for any host. Tests must call stop before
// their bubble ends.
func Serve(handler http.Handler) (client *http.Client, stop func()) {
	l := &listener{conns: make(chan net.Conn), closed: make(chan struct{})}
	server := &http.Server{Handler: handler} //nolint:gosec // there is no other client
	go server.Serve(l)                       //nolint:errcheck // ends when stop is called
	transport := &http.Transport{
		DisableCompression: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			here, there := net.Pipe()
			select {
			case l.conns <- there:
				return here, nil
			case <-l.closed:
				return nil, net.ErrClosed
			case <-ctx.Done():
				return nil, ctx.Err()
			}
		},
	}
	return &http.Client{Transport: transport}, func() {
		transport.CloseIdleConnections()
		server.Close() //nolint:errcheck // the test has ended
	}
}
