package api

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	"ironroot/agent/api/admission"
	"ironroot/agent/command"
	"ironroot/agent/fault"
	"ironroot/agent/token"
	"ironroot/internal/pause"
)

// maxBodyBytes limits a request's body. It can contain a config drive.
const maxBodyBytes = 128 << 20

// Options of the API.
type Options struct {
	Commands *command.Registry
	Token    *token.Token // without a token every command route answers 401
	Version  string
	Started  time.Time // when the agent started
	Log      *slog.Logger
	Timers   Timers     // measures handlers; nil measures none
	Ironic   TokenRules // nil sends the token with every request
}

// Timers measures durations: see [metrics.Metrics].
type Timers interface {
	// Timer is called when a handler starts. The function it returns is called when the handler ends.
	Timer(name string) (stop func())
}

// TokenRules decides about the tokens of requests: see [ironic.Client].
type TokenRules interface {
	// ReadsWithoutToken reports whether Ironic can be one that sends no token when it reads records.
	ReadsWithoutToken() bool
}

// API handles requests. It is an [http.Handler].
type API struct {
	Options
	running       requests
	readWithToken atomic.Bool // a request to read records contained the token
	throttle      throttle
	requests      quota // of log lines about requests without the token
	errors        quota // of log lines about broken connections
	drops         quota // of log lines about connections over a limit
}

// New returns an API.
func New(o Options) *API {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	a := &API{Options: o}
	a.requests = quota{log: o.Log, lines: requestLines, summary: "requests without a valid token not logged"}
	a.errors = quota{log: o.Log, lines: requestLines, summary: "connection errors not logged"}
	a.drops = quota{log: o.Log, summary: "connections closed: over the limit"}
	return a
}

// handler answers a request. A returned error becomes the response.
type handler func(http.ResponseWriter, *http.Request) error

// route is a resource with its handlers; nil is a method that the resource does not support.
type route struct {
	get, post handler
	// getEmpty answers a request without the token while there are no records: as get would, but it never reads one.
	// It is nil for resources that contain no records.
	getEmpty handler
}

// find returns the resource of a path and reports whether it exists.
func (a *API) find(path string) (r route, ok bool) {
	path = strings.TrimPrefix(path, "/v1")
	switch path {
	case "/status":
		return route{get: a.timed("get_status", a.status)}, true
	case "/commands/":
		return route{
			get: a.timed("list_commands", a.list), getEmpty: a.timed("list_commands", a.listEmpty),
			post: a.authorized(a.timed("run_command", a.run)),
		}, true
	}
	if id, ok := strings.CutPrefix(path, "/commands/"); ok && !strings.Contains(id, "/") {
		show := func(w http.ResponseWriter, r *http.Request) error { return a.show(w, r, id) }
		empty := func(http.ResponseWriter, *http.Request) error { return recordNotFound(id) }
		return route{get: a.timed("get_command", show), getEmpty: a.timed("get_command", empty)}, true
	}
	return route{}, false
}

// ServeHTTP implements [http.Handler].
func (a *API) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	defer a.running.enter()()
	started := time.Now()
	tracked := &statusWriter{ResponseWriter: w, authorized: a.verify(r)}
	defer a.logRequest(r, tracked, started)
	defer a.recovered(tracked, r)
	if err := a.serve(tracked, r); err != nil {
		a.writeFault(tracked, err)
	}
	// Send the response now, because the command can stop the machine before net/http flushes it.
	if err := http.NewResponseController(w).Flush(); err != nil {
		if tracked.authorized {
			a.Log.Debug("response not sent", "err", err)
		}
	}
}

// verifyTimeout limits how long a request waits until Ironic has accepted its token.
const verifyTimeout = 30 * time.Second

// verify reports whether a request presents the token. Other requests are processed while it waits for Ironic.
func (a *API) verify(r *http.Request) bool {
	candidate := r.URL.Query().Get("agent_token")
	if !a.Token.Pending(candidate) {
		return a.Token.Matches(candidate)
	}
	admission.Yield(r.Context())
	limited, cancel := context.WithTimeout(r.Context(), verifyTimeout)
	defer cancel()
	return a.Token.Verify(limited, candidate)
}

func (a *API) serve(w *statusWriter, r *http.Request) error {
	found, ok := a.find(r.URL.Path)
	isRead := r.Method == http.MethodGet || r.Method == http.MethodHead
	w.tokenOptional = found.getEmpty != nil && isRead && a.tokenOptional(r)
	limit := unauthorizedBodyTimeout
	if w.authorized {
		admission.Authenticate(r.Context())
		limit = stallTimeout
	} else if !w.tokenOptional {
		if err := a.throttled(r); err != nil {
			return err
		}
	}
	if err := limitBody(w, r, limit); err != nil {
		return err
	}
	switch r.URL.Path {
	case "/v1", "/v1/commands", "/commands":
		redirect(w, r)
		return nil
	}
	switch r.URL.Path {
	case "/":
		found, ok = route{get: a.root}, true
	case "/v1/":
		found, ok = route{get: a.version1}, true
	}
	if !ok {
		return notFound()
	}
	switch {
	case isRead:
		return a.get(w, r, found)
	case r.Method == http.MethodPost && found.post != nil:
		return found.post(w, r)
	}
	allow := "HEAD, GET"
	if found.post != nil {
		allow += ", POST"
	}
	w.Header().Set("Allow", allow)
	return httpError(http.StatusMethodNotAllowed, "The method is not allowed for the requested URL.")
}

// throttled delays a request without the token if there are many of them. It returns an error if the client is gone.
func (a *API) throttled(r *http.Request) error {
	delay := a.throttle.delay(time.Now())
	if delay == 0 {
		return nil
	}
	admission.Yield(r.Context())
	return pause.For(r.Context(), delay)
}

// authorized returns a handler that answers 401 unless the request contains the token.
func (a *API) authorized(next handler) handler {
	return func(w http.ResponseWriter, r *http.Request) error {
		if err := a.checkToken(r); err != nil {
			return err
		}
		return next(w, r)
	}
}

// checkToken returns an error with status 401 unless the request contains the token.
func (a *API) checkToken(r *http.Request) error {
	if !a.Token.Matches(r.URL.Query().Get("agent_token")) {
		return httpError(http.StatusUnauthorized, "Token invalid.")
	}
	return nil
}

// get answers a request to read a resource. Records are read only with the token, or if it is optional. If Ironic can
// be one that sends no token, any host can learn without it that there are no records, as after a restart of the
// machine.
func (a *API) get(w *statusWriter, r *http.Request, found route) error {
	switch {
	case found.getEmpty == nil || w.tokenOptional:
		return found.get(w, r)
	case a.mayOmitToken(r) && len(a.Commands.List()) == 0:
		return found.getEmpty(w, r)
	}
	if err := a.checkToken(r); err != nil {
		return err
	}
	a.readWithToken.Store(true)
	return found.get(w, r)
}

// tokenOptional reports whether a request without the token can read records. Ironic before 29.0 sends the token with
// commands only, so an address that has sent it with a command can read without it.
func (a *API) tokenOptional(r *http.Request) bool {
	return a.mayOmitToken(r) && admission.Authenticated(r.Context())
}

// mayOmitToken reports whether a request to read records has no token, and Ironic can be one that sends none. Once a
// request to read has contained the token, all of them must.
func (a *API) mayOmitToken(r *http.Request) bool {
	return !r.URL.Query().Has("agent_token") && a.Ironic != nil && !a.readWithToken.Load() &&
		a.Token.Known() && a.Ironic.ReadsWithoutToken()
}

// timed returns a handler that measures the duration of next.
func (a *API) timed(name string, next handler) handler {
	if a.Timers == nil {
		return next
	}
	return func(w http.ResponseWriter, r *http.Request) error {
		defer a.Timers.Timer(name)()
		return next(w, r)
	}
}

// redirect redirects the client to the same path with a trailing slash. Status 308 keeps method and body.
func redirect(w http.ResponseWriter, r *http.Request) {
	target := root(r) + r.URL.Path + "/"
	if r.URL.RawQuery != "" {
		target += "?" + r.URL.RawQuery
	}
	w.Header().Set("Location", target)
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.WriteHeader(http.StatusPermanentRedirect)
}

func notFound() error {
	return httpError(http.StatusNotFound, "The requested URL was not found on the server.")
}

// statusError is an error of the HTTP layer.
type statusError struct {
	code        int
	description string
}

func httpError(code int, description string) error { return &statusError{code, description} }

func (e *statusError) Error() string {
	return http.StatusText(e.code) + ": " + e.description
}

// errorCode returns an error's HTTP status and its text for the client.
func errorCode(err error) (code int, text string) {
	var status *statusError
	if errors.As(err, &status) {
		return status.code, itoa(status.code) + " " + status.Error()
	}
	known := fault.From(err)
	return known.Code, known.Error()
}
