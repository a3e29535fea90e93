package webserver

import (
	"errors"
	"io"
	"net"
	"net/http"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// serve starts a server on a free port and sends a request to it.
func serve(t *testing.T, handler http.HandlerFunc, failed func(error)) (*Server, net.Listener, net.Conn) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := Serve(t.Context(), Listener(l), &http.Server{Handler: handler}, failed)
	conn, err := net.Dial("tcp", l.Addr().String())
	if err == nil {
		_, err = io.WriteString(conn, "GET / HTTP/1.1\r\nHost: test\r\n\r\n")
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return s, l, conn
}

// Close ends the context of a request, and returns when its handler has returned.
func TestCloseWaitsForHandlers(t *testing.T) {
	called := make(chan struct{})
	var returned atomic.Bool
	s, _, _ := serve(t, func(_ http.ResponseWriter, r *http.Request) {
		close(called)
		<-r.Context().Done()
		time.Sleep(100 * time.Millisecond) // longer than a Close that does not wait
		returned.Store(true)
	}, func(err error) { t.Errorf("got %v, want no error after Close", err) })
	<-called
	for range 2 {
		if err := s.Close(); err != nil || !returned.Load() {
			t.Errorf("close: got %v, handler has returned: %t, want no error and true", err, returned.Load())
		}
	}
}

// Close does not wait for connections that a handler has taken over.
func TestHijacked(t *testing.T) {
	taken := make(chan net.Conn, 1)
	s, _, _ := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		conn, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
		}
		taken <- conn
	}, nil)
	conn := <-taken
	if err := errors.Join(s.Close(), conn.Close()); err != nil {
		t.Error(err)
	}
}

// A server that ends for another reason than Close reports the error.
func TestFailed(t *testing.T) {
	failed := make(chan error, 1)
	s, l, _ := serve(t, func(http.ResponseWriter, *http.Request) {}, func(err error) { failed <- err })
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if err := <-failed; !errors.Is(err, net.ErrClosed) {
		t.Errorf("got %v, want %v", err, net.ErrClosed)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}

// Accept returns the error of a closed listener when Close interrupts it, and its caller can close the listener, too.
func TestListenerClosesOnce(t *testing.T) {
	for range 200 {
		inner, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		l := Listener(inner)
		ended := make(chan error)
		go func() {
			_, err := l.Accept()
			ended <- errors.Join(err, l.Close())
		}()
		time.Sleep(100 * time.Microsecond) // Accept waits
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
		if err := <-ended; !errors.Is(err, net.ErrClosed) || errors.Is(err, syscall.EINVAL) {
			t.Fatalf("got %v, want %v", err, net.ErrClosed)
		}
	}
}
