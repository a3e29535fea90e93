// Package imageserver serves images over HTTP or HTTPS to machines under test, with ranges and entity tags. It counts
// requests, and injects faults on request: truncated, endless, stalled or corrupted bodies, and HTTP errors.
package imageserver

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"time"

	"ironroot/internal/webserver"
	"ironroot/lab/selfsigned"
)

// Options configures a Server. The zero value serves HTTP on a free port of 127.0.0.1.
type Options struct {
	Addr string // "host:port" to listen on; "" means a free port of 127.0.0.1
	TLS  bool   // serve HTTPS with a generated certificate, see CertificatePEM
	// Names are additional host names or addresses for the certificate, for example the address of the host as seen
	// from a guest.
	Names    []string
	Observer Observer // may be nil
}

// Observer follows the downloads of a server.
type Observer interface {
	// Served is called after each GET request for which content was sent, with the name and the number of bytes of the
	// body.
	Served(name string, sent int64)
}

// Fault describes a fault of GET requests. The zero value means none.
type Fault struct {
	Status   int   // send this HTTP status instead of the content
	Times    int   // number of GET requests that fail; 0 means all
	Truncate int64 // close the connection after this number of bytes of the body; 0 means never
	Stall    int64 // stop sending after this number of bytes of the body, until the client disconnects; 0 means never
	Endless  bool  // send zeros forever after the content, without a length
	Flip     int64 // invert the byte at this offset of the content, counted from 1; 0 means none
	NoRange  bool  // ignore range requests
	Delay    time.Duration
}

// Stats counts the requests for one name.
type Stats struct {
	Requests int   // GET requests
	Heads    int   // HEAD requests
	Ranges   int   // GET requests with a Range header
	Bytes    int64 // bytes of bodies sent
}

// Server is a running image server.
type Server struct {
	listener net.Listener
	server   *webserver.Server
	observer Observer
	scheme   string
	pem      []byte

	mu    sync.Mutex
	items map[string]*item
}

type item struct {
	path    string // "" for one in memory
	content []byte
	added   time.Time
	tag     string
	fault   Fault
	stats   Stats
}

// open returns the content and its modification time.
func (i *item) open() (io.ReadSeekCloser, time.Time, error) {
	if i.path == "" {
		return struct {
			io.ReadSeeker
			io.Closer
		}{bytes.NewReader(i.content), io.NopCloser(nil)}, i.added, nil
	}
	f, err := os.Open(i.path)
	if err != nil {
		return nil, time.Time{}, err
	}
	info, err := f.Stat()
	if err != nil {
		return nil, time.Time{}, errors.Join(err, f.Close())
	}
	return f, info.ModTime(), nil
}

// New starts a server. The caller must close it.
func New(o Options) (*Server, error) {
	if o.Addr == "" {
		o.Addr = "127.0.0.1:0"
	}
	listener, err := (&net.ListenConfig{}).Listen(context.Background(), "tcp", o.Addr)
	if err != nil {
		return nil, fmt.Errorf("image server: %w", err)
	}
	listener = webserver.Listener(listener)
	s := &Server{listener: listener, scheme: "http", observer: o.Observer, items: map[string]*item{}}
	if o.TLS {
		host, _, _ := net.SplitHostPort(listener.Addr().String()) // a listener's address always has both parts
		certificate, pem, err := selfsigned.Issue(append(o.Names, host)...)
		if err != nil {
			return nil, errors.Join(err, listener.Close())
		}
		listener = tls.NewListener(listener,
			&tls.Config{Certificates: []tls.Certificate{certificate}, MinVersion: tls.VersionTLS12})
		s.scheme, s.pem = "https", pem
	}
	server := &http.Server{Handler: s, ReadHeaderTimeout: time.Minute}
	s.server = webserver.Serve(context.Background(), listener, server, nil)
	return s, nil
}

// Close stops the server, aborts all downloads and waits until the port is free and the observer was called.
func (s *Server) Close() error { return s.server.Close() }

// Port returns the server's TCP port.
func (s *Server) Port() int { return s.listener.Addr().(*net.TCPAddr).Port }

// URL returns the URL of name for clients on this machine.
func (s *Server) URL(name string) string {
	return s.scheme + "://" + s.listener.Addr().String() + "/" + name
}

// URLFrom returns the URL of name for clients that reach this machine as host.
func (s *Server) URLFrom(host, name string) string {
	return fmt.Sprintf("%s://%s/%s", s.scheme, net.JoinHostPort(host, fmt.Sprint(s.Port())), name)
}

// CertificatePEM returns the certificate that HTTPS clients must trust.
func (s *Server) CertificatePEM() []byte { return s.pem }

// File serves the file at path under name.
func (s *Server) File(name, path string) { s.add(name, &item{path: path}) }

// Bytes serves content under name.
func (s *Server) Bytes(name string, content []byte) { s.add(name, &item{content: content}) }

func (s *Server) add(name string, i *item) {
	i.added = time.Now()
	i.tag = fmt.Sprintf("%q", fmt.Sprintf("%s-%x", name, i.added.UnixNano()))
	s.mu.Lock()
	defer s.mu.Unlock()
	s.items[name] = i
}

// count adds to the bytes that were sent of an item.
func (s *Server) count(i *item, n int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	i.stats.Bytes += n
}

// Fault sets the fault of name; the zero Fault removes it.
func (s *Server) Fault(name string, f Fault) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if i := s.items[name]; i != nil {
		i.fault = f
	}
}

// Stats returns the counts for name so far.
func (s *Server) Stats(name string) Stats {
	s.mu.Lock()
	defer s.mu.Unlock()
	if i := s.items[name]; i != nil {
		return i.stats
	}
	return Stats{}
}

// take counts a request and returns the item and the request's fault.
func (s *Server) take(name string, r *http.Request) (*item, Fault) {
	s.mu.Lock()
	defer s.mu.Unlock()
	i := s.items[name]
	if i == nil {
		return nil, Fault{}
	}
	if r.Method == http.MethodHead {
		i.stats.Heads++
		return i, Fault{}
	}
	i.stats.Requests++
	if r.Header.Get("Range") != "" {
		i.stats.Ranges++
	}
	fault := i.fault
	if fault.Times > 0 {
		if i.fault.Times--; i.fault.Times == 0 {
			i.fault = Fault{}
		}
	}
	return i, fault
}

// ServeHTTP serves GET and HEAD requests.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		http.Error(w, "only GET and HEAD are served", http.StatusMethodNotAllowed)
		return
	}
	name := strings.TrimPrefix(r.URL.Path, "/")
	i, fault := s.take(name, r)
	if i == nil {
		http.NotFound(w, r)
		return
	}
	if fault.Status != 0 {
		http.Error(w, http.StatusText(fault.Status), fault.Status)
		return
	}
	content, modified, err := i.open()
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	defer content.Close() //nolint:errcheck // only read
	out := &writer{ResponseWriter: w, fault: fault, request: r, server: s, item: i}
	if s.observer != nil && r.Method == http.MethodGet {
		defer func() { s.observer.Served(name, out.sent) }()
	}
	send(out, i.tag, content, modified)
}

func send(w *writer, tag string, content io.ReadSeeker, modified time.Time) {
	r, fault := w.request, w.fault
	if fault.Delay > 0 {
		select {
		case <-time.After(fault.Delay):
		case <-r.Context().Done():
			return
		}
	}
	if fault.Flip > 0 {
		content = &flipper{ReadSeeker: content, at: fault.Flip - 1}
	}
	if fault.NoRange {
		r.Header.Del("Range")
	}
	w.Header().Set("Content-Type", "application/octet-stream")
	if fault.Endless {
		_, err := io.Copy(w, io.MultiReader(content, zeros{}))
		_ = err // only the client's disconnect ends the copy
		return
	}
	w.Header().Set("ETag", tag)
	http.ServeContent(w, r, "", modified, content)
}

// writer counts the bytes of the body and stops where the fault requires.
type writer struct {
	http.ResponseWriter
	fault   Fault
	request *http.Request
	sent    int64
	server  *Server
	item    *item
}

func (w *writer) Write(p []byte) (int, error) {
	limit := w.fault.Truncate
	if w.fault.Stall > 0 {
		limit = w.fault.Stall
	}
	cut := limit > 0 && w.sent+int64(len(p)) > limit
	if cut {
		p = p[:limit-w.sent]
	}
	n, err := w.ResponseWriter.Write(p)
	w.sent += int64(n)
	w.server.count(w.item, int64(n))
	if err != nil || !cut {
		return n, err
	}
	if f, ok := w.ResponseWriter.(http.Flusher); ok {
		f.Flush()
	}
	if w.fault.Stall > 0 {
		<-w.request.Context().Done()
	}
	panic(http.ErrAbortHandler) // closes the connection before the body is complete
}

// flipper inverts one byte of the data that is read.
type flipper struct {
	io.ReadSeeker
	at, pos int64
}

func (f *flipper) Read(p []byte) (int, error) {
	n, err := f.ReadSeeker.Read(p)
	if at := f.at - f.pos; at >= 0 && at < int64(n) {
		p[at] ^= 0xff
	}
	f.pos += int64(n)
	return n, err
}

func (f *flipper) Seek(offset int64, whence int) (int64, error) {
	pos, err := f.ReadSeeker.Seek(offset, whence)
	if err == nil {
		f.pos = pos
	}
	return pos, err
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) {
	clear(p)
	return len(p), nil
}
