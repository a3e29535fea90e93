// Package imagetest contains what the tests of the image packages share: HTTP servers with faults, disks and content.
package imagetest

import (
	"bytes"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// Server is an HTTP server that handles each request by its next step. The last step is repeated.
type Server struct {
	*httptest.Server
	Requests atomic.Int64
	mu       sync.Mutex
	Headers  []http.Header // of each request; must be read after the last one
}

// Serve starts a Server, which ends with the test.
func Serve(t testing.TB, steps ...http.HandlerFunc) *Server {
	t.Helper()
	s := &Server{}
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		n := int(s.Requests.Add(1))
		s.mu.Lock()
		s.Headers = append(s.Headers, r.Header.Clone())
		s.mu.Unlock()
		steps[min(n, len(steps))-1](w, r)
	}))
	t.Cleanup(func() {
		s.CloseClientConnections()
		s.Close()
	})
	return s
}

// Connections counts the open connections of a server.
type Connections struct {
	open   atomic.Int64
	closed chan struct{}
}

// CountConnections counts the connections of a server that was not started yet.
func CountConnections(s *httptest.Server) *Connections {
	c := &Connections{closed: make(chan struct{}, 1)}
	s.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		switch state {
		case http.StateNew:
			c.open.Add(1)
		case http.StateClosed:
			c.open.Add(-1)
			select {
			case c.closed <- struct{}{}:
			default: // one that was not received yet
			}
		}
	}
	return c
}

// AwaitClosed waits until no connection is open. After a minute, it is an error of the test.
func (c *Connections) AwaitClosed(t testing.TB, what string) {
	t.Helper()
	for timeout := time.After(time.Minute); c.open.Load() > 0; {
		select {
		case <-c.closed: // the server hears of it a moment later
		case <-timeout:
			t.Errorf("%s: %d connections are open, want none", what, c.open.Load())
			return
		}
	}
}

// Content serves data, and ranges of it.
func Content(data []byte) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(data))
	}
}

// WithoutRanges serves data and ignores ranges.
func WithoutRanges(data []byte) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", fmt.Sprint(len(data)))
		w.Write(data) //nolint:errcheck // the client may disconnect
	}
}

// Unsized serves data and ignores ranges, without a Content-Length.
func Unsized(data []byte) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusOK)
		w.(http.Flusher).Flush()
		w.Write(data) //nolint:errcheck // the client may disconnect
	}
}

// Status responds with a status code.
func Status(code int) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "no", code) }
}

// Truncated announces the length of data and closes the connection after n bytes.
func Truncated(data []byte, n int) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", fmt.Sprint(len(data)))
		w.Write(data[:n]) //nolint:errcheck // the client may disconnect
		panic(http.ErrAbortHandler)
	}
}

// Stalled sends n bytes of data and then nothing until the client disconnects.
func Stalled(data []byte, n int) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Length", fmt.Sprint(len(data)))
		w.Write(data[:n]) //nolint:errcheck // the client may disconnect
		w.(http.Flusher).Flush()
		<-r.Context().Done()
	}
}

// Endless repeats data forever, without a Content-Length.
func Endless(data []byte) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		for {
			if _, err := w.Write(data); err != nil {
				return
			}
		}
	}
}

// Dripping sends the header at once and then one byte of data per interval.
func Dripping(data []byte, interval time.Duration) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Length", fmt.Sprint(len(data)))
		w.WriteHeader(http.StatusOK)
		w.(http.Flusher).Flush()
		for i := range data {
			select {
			case <-r.Context().Done():
				return
			case <-time.After(interval):
			}
			if _, err := w.Write(data[i : i+1]); err != nil {
				return
			}
			w.(http.Flusher).Flush()
		}
	}
}
