package api

import (
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

	"ironroot/agent/api/admission"
	"ironroot/internal/goroutine"
)

// maxHeaderBytes bounds the header of a request. net/http adds 4 KiB.
const maxHeaderBytes = 16 << 10

// connectionLimits are well above what a conductor opens, which is one connection for each request and few requests at
// once, and low enough for the memory of a small machine: an unfinished request costs up to 60 KiB.
func connectionLimits() admission.Limits {
	return admission.Limits{Strangers: 256, StrangerPerPeer: 32, Trusted: 128, TrustedPerPeer: 64, TrustedPeers: 32}
}

// Listen opens the API's port. The host "::" takes IPv4 as well, an IPv4 address nothing but IPv4.
func Listen(ctx context.Context, host string, port int) (net.Listener, error) {
	network := "tcp"
	if addr, err := netip.ParseAddr(host); err == nil && addr.Is4() {
		network = "tcp4"
	}
	var config net.ListenConfig
	l, err := config.Listen(ctx, network, net.JoinHostPort(host, strconv.Itoa(port)))
	if err != nil {
		return nil, fmt.Errorf("api: %w", err)
	}
	return l, nil
}

// Server serves an API on a listener.
type Server struct {
	http *http.Server
	api  *API
	done chan struct{}
	err  error // why it ended, valid once done is closed; nil after Shutdown
}

// Serve starts to answer on l, with TLS when settings is not nil, and limits its connections.
func Serve(l net.Listener, a *API, settings *tls.Config) *Server {
	s := &Server{api: a, done: make(chan struct{}), http: &http.Server{
		Handler:           a,
		ReadHeaderTimeout: headerTime,
		IdleTimeout:       idleTime,
		MaxHeaderBytes:    maxHeaderBytes,
		ErrorLog:          log.New(errorLog{a}, "", 0),
		ConnContext:       admission.WithConn,
		ConnState: func(c net.Conn, state http.ConnState) {
			admission.SetBusy(c, state == http.StateActive)
		},
		// Ironic speaks HTTP/1.1; nothing else needs to be exposed.
		TLSNextProto: map[string]func(*http.Server, *tls.Conn, http.Handler){},
	}}
	limits := connectionLimits()
	if descriptors, err := admission.Descriptors(); err != nil {
		a.Log.Warn("connection limits not adapted", "err", err)
	} else {
		limits = limits.Fit(descriptors)
	}
	l = admission.New(l, limits, a.connectionDropped)
	if settings != nil {
		l = tls.NewListener(l, settings)
	}
	goroutine.Go(func() error { return s.http.Serve(l) }, func(err error) {
		if !errors.Is(err, http.ErrServerClosed) {
			s.err = fmt.Errorf("api: %w", err)
		}
		close(s.done)
	})
	return s
}

// Done is closed when the server has ended, by itself or by Shutdown.
func (s *Server) Done() <-chan struct{} { return s.done }

// Err says why the server ended by itself. It is valid once Done is closed.
func (s *Server) Err() error { return s.err }

// Shutdown closes the port, lets the running requests be answered until ctx ends, then closes their connections.
func (s *Server) Shutdown(ctx context.Context) {
	if err := s.http.Shutdown(ctx); err != nil {
		s.api.Log.Info("requests were cut off", "err", err)
		_ = s.http.Close() // what it closes is being given up
	}
	<-s.done
}

// Idle waits until no request is being answered, or ctx ends.
func (a *API) Idle(ctx context.Context) {
	select {
	case <-a.running.none():
	case <-ctx.Done():
	}
}

// requests counts the requests that are being answered.
type requests struct {
	mu    sync.Mutex
	count int
	zero  chan struct{} // closed at the end of the last one
}

// enter counts one more; the function it returns takes it away.
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

func (r *requests) none() <-chan struct{} {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.count > 0 {
		return r.zero
	}
	closed := make(chan struct{})
	close(closed)
	return closed
}
