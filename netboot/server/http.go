package server

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"time"

	"ironroot/internal/webserver"
)

// HTTP is a running HTTP file server.
type HTTP struct {
	files  *files
	server *webserver.Server
	addr   netip.AddrPort
}

// httpStall is the time after which the transfer to a client that accepts no data ends.
const httpStall = time.Minute

// ListenHTTP starts an HTTP file server with byte ranges and strong entity tags (RFC 9110). It runs until ctx ends or
// Close is called.
func ListenHTTP(ctx context.Context, config FilesConfig) (*HTTP, error) {
	files, err := openFiles(config)
	if err != nil {
		return nil, fmt.Errorf("http server: %w", err)
	}
	listen := net.ListenConfig{Control: onInterface(config.Interface)}
	listener, err := listen.Listen(ctx, "tcp", config.Listen.String())
	if err != nil {
		return nil, fmt.Errorf("http server: %w", errors.Join(err, files.close()))
	}
	listener = limitConnections(webserver.Listener(listener), maxConnections, maxConnectionsPerAddress, files.log)
	h := &HTTP{files: files, addr: listener.Addr().(*net.TCPAddr).AddrPort()}
	server := &http.Server{Handler: h, ReadHeaderTimeout: 10 * time.Second, IdleTimeout: time.Minute}
	h.server = webserver.Serve(ctx, listener, server, func(err error) {
		files.log.Error("http server ended", "err", err)
	})
	return h, nil
}

// Addr returns the address on which the server listens.
func (h *HTTP) Addr() netip.AddrPort { return h.addr }

// URL returns the URL of a file below the root.
func (h *HTTP) URL(path string) string {
	return (&url.URL{Scheme: "http", Host: h.addr.String(), Path: "/" + path}).String()
}

// Close stops the server, aborts active transfers and waits until the port is free and all files are closed.
func (h *HTTP) Close() error {
	return errors.Join(h.server.Close(), h.files.close())
}

// ServeHTTP serves a file.
func (h *HTTP) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	counted := &counter{ResponseWriter: w, status: http.StatusOK}
	started := time.Now()
	err := h.serve(counted, r)
	h.files.done(Request{
		Protocol: "http", Client: r.RemoteAddr, Method: r.Method, Path: r.URL.Path, Range: r.Header.Get("Range"),
		Status: counted.status, Bytes: counted.bytes, Duration: time.Since(started), Err: err,
	})
}

func (h *HTTP) serve(w http.ResponseWriter, r *http.Request) error {
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		w.Header().Set("Allow", "GET, HEAD")
		http.Error(w, "only GET and HEAD", http.StatusMethodNotAllowed)
		return nil
	}
	file, err := h.files.open(r.URL.Path)
	if err != nil {
		status := http.StatusNotFound
		if !errors.Is(err, fs.ErrNotExist) {
			status = http.StatusForbidden
		}
		http.Error(w, http.StatusText(status), status)
		return err
	}
	defer file.Close() //nolint:errcheck // only read
	w.Header().Set("ETag", `"`+file.Tag+`"`)
	w.Header().Set("Content-Type", "application/octet-stream")
	http.ServeContent(w, r, "", file.Modified, file)
	return nil
}

// counter records the status and the number of bytes of a response.
type counter struct {
	http.ResponseWriter
	status int
	bytes  int64
}

func (c *counter) WriteHeader(status int) {
	c.status = status
	c.ResponseWriter.WriteHeader(status)
}

func (c *counter) Write(p []byte) (int, error) {
	// Only a test without a connection does not support deadlines.
	_ = http.NewResponseController(c.ResponseWriter).SetWriteDeadline(time.Now().Add(httpStall))
	n, err := c.ResponseWriter.Write(p)
	c.bytes += int64(n)
	return n, err
}

// Unwrap makes the connection available to http.ResponseController.
func (c *counter) Unwrap() http.ResponseWriter { return c.ResponseWriter }
