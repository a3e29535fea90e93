// Package webserver runs HTTP servers whose Close waits for everything that they have started: the port is free, all
// connections are closed, and all handlers have returned. Close of [http.Server] waits neither for handlers nor, if
// Serve has not been called yet, for the listener.
package webserver

import (
	"context"
	"errors"
	"net"
	"net/http"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"ironroot/internal/goroutine"
)

// Server is a running HTTP server.
type Server struct {
	http  *http.Server
	ended chan struct{}
	conns sync.WaitGroup // of net/http's goroutines, which call the handlers
}

// Serve starts an HTTP server on l, which runs until ctx ends or Close is called. It sets the ConnState of server and
// disables HTTP/2. failed, if not nil, is called with the error if the server ends for another reason.
func Serve(ctx context.Context, l net.Listener, server *http.Server, failed func(error)) *Server {
	s := &Server{http: server, ended: make(chan struct{})}
	server.Protocols = new(http.Protocols)
	server.Protocols.SetHTTP1(true)
	server.ConnState = s.count
	stop := goroutine.AfterContext(ctx, func() { _ = s.Close() })
	goroutine.Go(func() error { return server.Serve(l) }, func(err error) {
		if failed != nil && !errors.Is(err, http.ErrServerClosed) {
			failed(err)
		}
		stop()
		close(s.ended)
	})
	return s
}

// count counts the connections. The first state of each is set before Serve accepts the next one or returns, the last
// one after its handler has returned.
func (s *Server) count(_ net.Conn, state http.ConnState) {
	switch state {
	case http.StateNew:
		s.conns.Add(1)
	case http.StateClosed, http.StateHijacked:
		s.conns.Done()
	}
}

// Close closes the port and all connections, and waits until the handlers have returned. Their requests' contexts end.
// It may be called more than once, but not by a handler.
func (s *Server) Close() error {
	err := s.http.Close()
	<-s.ended
	s.conns.Wait()
	return err
}

// listener is a listener whose Close frees the port.
type listener struct {
	*net.TCPListener
	closing   atomic.Bool
	closeOnce sync.Once
	closeErr  error
}

// Listener returns a listener whose Close frees the port, even while this process starts a program: until the program
// runs, it has copies of all descriptors, and a copy of a socket that listens keeps the port in use. It returns
// listeners that are not of TCP unchanged.
func Listener(l net.Listener) net.Listener {
	tcp, ok := l.(*net.TCPListener)
	if !ok {
		return l
	}
	return &listener{TCPListener: tcp}
}

// Accept implements [net.Listener].
func (l *listener) Accept() (net.Conn, error) {
	conn, err := l.TCPListener.Accept()
	if err != nil && l.closing.Load() {
		return nil, net.ErrClosed // after the shutdown the kernel returns another error
	}
	return conn, err
}

// Close implements [net.Listener]. It may be called more than once.
func (l *listener) Close() error {
	l.closeOnce.Do(func() {
		l.closing.Store(true)
		if raw, err := l.SyscallConn(); err == nil {
			// Copies cannot listen any more. Where the system does not support that, they are closed as soon as the
			// program runs.
			_ = raw.Control(func(fd uintptr) { _ = unix.Shutdown(int(fd), unix.SHUT_RD) })
		}
		l.closeErr = l.TCPListener.Close()
	})
	return l.closeErr
}
