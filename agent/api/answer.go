package api

import (
	"bytes"
	"encoding/json"
	"net"
	"net/http"
	"net/url"
	"runtime/debug"
	"strconv"
	"strings"
	"time"
)

func itoa(n int) string { return strconv.Itoa(n) }

// writeJSON answers with a document.
func writeJSON(w http.ResponseWriter, code int, document any) error {
	var body bytes.Buffer
	encoder := json.NewEncoder(&body)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(document); err != nil {
		return err
	}
	data := bytes.TrimSuffix(body.Bytes(), []byte("\n"))
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Content-Length", itoa(len(data)))
	w.WriteHeader(code)
	_, _ = w.Write(data) // the client is gone: there is nobody to tell
	return nil
}

type faultBody struct {
	Code   string `json:"faultcode"`
	String string `json:"faultstring"`
}

func (a *API) writeFault(w http.ResponseWriter, err error) {
	code, text := errorCode(err)
	body := faultBody{Code: "Client", String: text}
	if code >= http.StatusInternalServerError {
		body.Code = "Server"
	}
	// The conductor takes an answer with this word in it for that of an agent too old for tokens.
	body.String = strings.ReplaceAll(body.String, "agent_token", "agent token")
	if err := writeJSON(w, code, body); err != nil {
		a.Log.Error("error without JSON form", "err", err)
	}
}

// recovered turns a panic in a request into an answer: it fails that request and nothing else.
func (a *API) recovered(w *statusWriter, r *http.Request) {
	value := recover()
	if value == nil {
		return
	}
	a.Log.Error("request panicked", "method", r.Method, "path", r.URL.Path, "panic", value, "stack", string(debug.Stack()))
	if w.code == 0 {
		a.writeFault(w, httpError(http.StatusInternalServerError, "The server encountered an internal error."))
	}
}

// statusWriter remembers the status for the log.
type statusWriter struct {
	http.ResponseWriter
	code int
}

// Unwrap lets an [http.ResponseController] find the connection.
func (w *statusWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// WriteHeader implements [http.ResponseWriter]. From now on the client has answerTime.
func (w *statusWriter) WriteHeader(code int) {
	w.code = code
	// Where it fails the connection is broken, which shows in what is written next.
	_ = setDeadline(http.NewResponseController(w.ResponseWriter).SetWriteDeadline, time.Now().Add(answerTime))
	w.ResponseWriter.WriteHeader(code)
}

func (a *API) logRequest(r *http.Request, w *statusWriter, started time.Time) {
	path := r.URL.Path
	if r.URL.RawQuery != "" {
		path += "?" + hideToken(r.URL.RawQuery)
	}
	a.Log.Info("request", "client", client(r), "method", r.Method, "path", path, "status", w.code,
		"ms", time.Since(started).Milliseconds())
}

// hideToken takes the value of agent_token out of a query, right or wrong.
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

// client names who asked: the first proxy that says so, else the other end of the connection.
func client(r *http.Request) string {
	if forwarded := r.Header.Get("X-Forwarded-For"); forwarded != "" {
		first, _, _ := strings.Cut(forwarded, ",")
		return strings.TrimSpace(first)
	}
	if real := r.Header.Get("X-Real-IP"); real != "" {
		return real
	}
	host, _, err := net.SplitHostPort(r.RemoteAddr)
	if err != nil {
		return r.RemoteAddr
	}
	return host
}
