package api

import (
	"bytes"
	"encoding/json"
	"net/http"
	"runtime/debug"
	"strconv"
	"strings"
	"time"
)

func itoa(n int) string { return strconv.Itoa(n) }

// writeJSON writes a JSON document with a status code.
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
	_, _ = w.Write(data) // fails only if the client is gone
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
	// A conductor that finds this word in an error concludes that the agent does not support tokens.
	body.String = strings.ReplaceAll(body.String, "agent_token", "agent token")
	if err := writeJSON(w, code, body); err != nil {
		a.Log.Error("error not encoded as JSON", "err", err)
	}
}

// recovered logs a panic of a handler and answers the request with status 500. It must be deferred.
func (a *API) recovered(w *statusWriter, r *http.Request) {
	value := recover()
	if value == nil {
		return
	}
	a.Log.Error("request panicked", "method", clipped(r.Method), "path", clipped(r.URL.Path), "panic", value,
		"stack", string(debug.Stack()))
	if w.code == 0 {
		a.writeFault(w, httpError(http.StatusInternalServerError, "The server encountered an internal error."))
	}
}

// statusWriter records the status for the log, and limits the time to write the response.
type statusWriter struct {
	http.ResponseWriter
	code          int
	authorized    bool // the request presented the token
	tokenOptional bool // the request has no token, but can read records
}

// Unwrap lets an [http.ResponseController] find the connection.
func (w *statusWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// WriteHeader implements [http.ResponseWriter]. It sets the deadline for the client to read the response.
func (w *statusWriter) WriteHeader(code int) {
	w.code = code
	limit := unauthorizedResponseTimeout
	if w.authorized || w.tokenOptional {
		limit = responseTimeout
	}
	// If this fails the connection is broken, and the next write returns the error.
	_ = setDeadline(http.NewResponseController(w.ResponseWriter).SetWriteDeadline, time.Now().Add(limit))
	w.ResponseWriter.WriteHeader(code)
}
