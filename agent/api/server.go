package api

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log"
	"net"
	"net/http"
	"net/netip"
	"strconv"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"

	"ironroot/agent/api/admission"
	"ironroot/internal/goroutine"
	"ironroot/internal/webserver"
)

// maxHeaderBytes limits a request's header. net/http adds 4 KiB.
const maxHeaderBytes = 16 << 10

// connectionLimits returns limits that exceed the needs of a conductor, which opens one connection for each request
// and sends few requests concurrently. They are low enough for the memory of a small machine: an unfinished request
// needs up to 60 KiB.
func connectionLimits() admission.Limits {
	return admission.Limits{Untrusted: 256, UntrustedPerPeer: 32, Trusted: 128, TrustedPerPeer: 64, TrustedPeers: 32}
}

// backlog is the number of connections that the kernel accepts before the agent does. The agent's limits do not hold
// for them, and each can keep a block of 32 KiB of a network card's receive buffers in use. Go's default,
// net.core.somaxconn, is 4096: enough to fill the memory of a small machine, which makes the kernel panic.
const backlog = 512

// Listen opens the API's port. Host "::" accepts IPv4 and IPv6, an IPv4 address only IPv4. The port is free when the
// listener has been closed.
func Listen(ctx context.Context, host string, port int) (net.Listener, error) {
	network := "tcp"
	if addr, err := netip.ParseAddr(host); err == nil && addr.Is4() {
		network = "tcp4"
	}
	var config net.ListenConfig
	l, err := config.Listen(ctx, network, net.JoinHostPort(host, strconv.Itoa(port)))
	if err != nil {
		return nil, fmt.Errorf("open API port: %w", err)
	}
	if err := setBacklog(l.(syscall.Conn)); err != nil {
		return nil, fmt.Errorf("limit the backlog of API port %d: %w", port, errors.Join(err, l.Close()))
	}
	return webserver.Listener(l), nil
}

// setBacklog limits the backlog of a listener: a second call of listen(2) changes only the limit.
func setBacklog(l syscall.Conn) error {
	raw, err := l.SyscallConn()
	if err != nil {
		return err
	}
	var listenErr error
	err = raw.Control(func(fd uintptr) { listenErr = unix.Listen(int(fd), backlog) })
	return cmp.Or(err, listenErr)
}

// Server serves an API on a listener.
type Server struct {
	http *http.Server
	api  *API
	done chan struct{}
	err  error // cause of its end, valid once done is closed; nil after Shutdown
}

// Serve starts a server on l, with TLS if settings is not nil, and limits its connections.
func Serve(l net.Listener, a *API, settings *tls.Config) *Server {
	s := &Server{api: a, done: make(chan struct{}), http: &http.Server{
		Handler:           a,
		ReadHeaderTimeout: headerTimeout,
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    maxHeaderBytes,
		ErrorLog:          log.New(errorLog{a}, "", 0),
		ConnContext:       admission.WithConn,
		ConnState: func(c net.Conn, state http.ConnState) {
			admission.SetBusy(c, state == http.StateActive)
		},
		// Ironic uses HTTP/1.1; HTTP/2 is not needed.
		TLSNextProto: map[string]func(*http.Server, *tls.Conn, http.Handler){},
	}}
	limits := connectionLimits()
	if descriptors, err := admission.Descriptors(); err != nil {
		a.Log.Warn("connection limits not adjusted to file descriptors", "err", err)
	} else {
		limits = limits.Fit(descriptors)
	}
	l = admission.New(l, limits, a)
	if settings != nil {
		l = tls.NewListener(l, settings)
	}
	goroutine.Go(func() error { return s.http.Serve(l) }, func(err error) {
		if !errors.Is(err, http.ErrServerClosed) {
			s.err = fmt.Errorf("serve API: %w", err)
		}
		close(s.done)
	})
	return s
}

// Done returns a channel that is closed when the server has ended, because of an error or of Shutdown.
func (s *Server) Done() <-chan struct{} { return s.done }

// Err returns the error that ended the server, nil after Shutdown. It is valid once Done is closed.
func (s *Server) Err() error { return s.err }

// Shutdown closes the port, waits for running requests until ctx ends, and then closes their connections.
func (s *Server) Shutdown(ctx context.Context) {
	if err := s.http.Shutdown(ctx); err != nil {
		s.api.Log.Info("requests aborted", "err", err)
		_ = s.http.Close() // the connections are abandoned
	}
	<-s.done
}

// Idle waits until no request is running, or until ctx ends.
func (a *API) Idle(ctx context.Context) {
	select {
	case <-a.running.idle():
	case <-ctx.Done():
	}
}

// requests counts running requests.
type requests struct {
	mu    sync.Mutex
	count int
	zero  chan struct{} // closed when count becomes 0
}

// enter increments the count. The function it returns decrements it.
func (r *requests) enter() (leave func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.count == 0 {
		r.zero = make(chan struct{})
	}
	r.count++
	return func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		if r.count--; r.count == 0 {
			close(r.zero)
		}
	}
}

// idle returns a channel that is closed when no request is running.
func (r *requests) idle() <-chan struct{} {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.count > 0 {
		return r.zero
	}
	closed := make(chan struct{})
	close(closed)
	return closed
}
