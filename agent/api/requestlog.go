package api

import (
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"sync"
	"time"

	"ironroot/agent/journal"
	"ironroot/internal/goroutine"
)

const (
	// requestLines limits the log lines that all clients without the token can cause in each quotaWindow.
	requestLines = 20
	quotaWindow  = time.Minute
	// maxPeers limits the number of peers that a quota counts.
	maxPeers = 4096
	// maxLogged limits each text of a request within a log line, in bytes.
	maxLogged = 200
)

// logRequest logs a request. Lines about requests without the token are limited, so that they do not displace the rest
// of the log.
func (a *API) logRequest(r *http.Request, w *statusWriter, started time.Time) {
	if !w.authorized && !a.requests.take(peer(r)) {
		return
	}
	path := r.URL.Path
	if r.URL.RawQuery != "" {
		path += "?" + hideToken(r.URL.RawQuery)
	}
	a.Log.Info("request", "client", clipped(client(r)), "peer", peer(r), "method", clipped(r.Method),
		"path", clipped(path), "status", w.code, "duration", time.Since(started).Round(time.Millisecond))
}

func clipped(text string) journal.Clipped { return journal.Clipped{Text: text, Limit: maxLogged} }

// hideToken masks the values of agent_token and similar keys in a query, whether they are valid or not.
func hideToken(query string) string {
	parts := strings.Split(query, "&")
	for i, part := range parts {
		key, _, _ := strings.Cut(part, "=")
		plain, err := url.QueryUnescape(key)
		if err != nil || strings.Contains(plain, "token") {
			parts[i] = key + "=***"
		}
	}
	return strings.Join(parts, "&")
}

// client returns the client's address: the address in the proxy headers if present, otherwise the connection's remote
// address.
func client(r *http.Request) string {
	if forwarded := r.Header.Get("X-Forwarded-For"); forwarded != "" {
		first, _, _ := strings.Cut(forwarded, ",")
		return strings.TrimSpace(first)
	}
	if real := r.Header.Get("X-Real-IP"); real != "" {
		return real
	}
	return peer(r)
}

// peer returns the connection's remote address.
func peer(r *http.Request) string {
	host, _, err := net.SplitHostPort(r.RemoteAddr)
	if err != nil {
		return r.RemoteAddr
	}
	return host
}

// errorLog receives the log lines of net/http about broken connections.
type errorLog struct{ api *API }

// Write implements [io.Writer].
func (e errorLog) Write(line []byte) (int, error) {
	if e.api.errors.take("") {
		e.api.Log.Debug("connection error", "err", clipped(strings.TrimSpace(string(line))))
	}
	return len(line), nil
}

// ConnectionDropped implements [admission.Log]. It records a connection that was closed because of a limit.
func (a *API) ConnectionDropped(peer netip.Addr) { a.drops.take(peer.String()) }

// quota limits the log lines of one kind. It counts lines over the limit and logs their number at the end of the
// window.
type quota struct {
	log     *slog.Logger
	lines   int    // in each window
	summary string // message of the line with the number of dropped lines

	mu    sync.Mutex
	open  bool // a window is running
	taken int
	count int
	peers map[string]struct{} // of counted lines
}

// take reports whether a line can be logged. Otherwise it counts the line.
func (q *quota) take(peer string) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if !q.open {
		q.open = true
		q.peers = map[string]struct{}{}
		goroutine.AfterTime(quotaWindow, q.close)
	}
	if q.taken < q.lines {
		q.taken++
		return true
	}
	q.count++
	if peer != "" && len(q.peers) < maxPeers {
		q.peers[peer] = struct{}{}
	}
	return false
}

// close ends a window.
func (q *quota) close() {
	q.mu.Lock()
	count, peers := q.count, len(q.peers)
	q.open, q.taken, q.count, q.peers = false, 0, 0, nil
	q.mu.Unlock()
	if count > 0 {
		q.log.Warn(q.summary, "count", count, "peers", peers, "window", quotaWindow)
	}
}

const (
	// maxUndelayed is the number of requests without the token per second that are answered without delay.
	maxUndelayed = 50
	// throttleDelay delays the responses to all further requests of that second.
	throttleDelay = time.Second
)

// throttle delays requests without the token if there are many of them.
type throttle struct {
	mu     sync.Mutex
	second time.Time // start of the current second
	count  int
}

// delay counts a request and returns how long it must wait.
func (p *throttle) delay(now time.Time) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	if since := now.Sub(p.second); since < 0 || since >= time.Second {
		p.second, p.count = now, 0
	}
	if p.count++; p.count <= maxUndelayed {
		return 0
	}
	return throttleDelay
}
