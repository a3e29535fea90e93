package image

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"ironroot/internal/goroutine"
)

const defaultConnectTimeout = 60 * time.Second

var (
	errStalled     = errors.New("no data arrived in time")
	errMaxDuration = errors.New("maximum duration reached")
)

// fetcher sends requests by the rules of one Fetch.
type fetcher struct {
	Fetch
	client   *http.Client
	log      *slog.Logger
	progress *Progress
	rate     *rateMeter
}

// newFetcher fills in what f leaves open.
func newFetcher(f Fetch, log *slog.Logger, progress *Progress) *fetcher {
	if f.ConnectTimeout <= 0 {
		f.ConnectTimeout = defaultConnectTimeout
	}
	if f.rateWindow <= 0 {
		f.rateWindow = max(minRateWindow, 2*f.ConnectTimeout)
	}
	f.Retries = max(0, f.Retries)
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	if progress == nil {
		progress = new(Progress)
	}
	var client http.Client
	if f.Client != nil {
		client = *f.Client
	}
	if client.Transport == nil {
		client.Transport = defaultTransport()
	}
	client.Timeout = 0 // stalls, MinRate and MaxDuration end a transfer
	client.CheckRedirect = f.checkRedirect
	rate := &rateMeter{minimum: f.MinRate, window: f.rateWindow}
	return &fetcher{Fetch: f, client: &client, log: log, progress: progress, rate: rate}
}

// defaultTransport speaks HTTP/1.1 only: there the body is read from the connection straight into the buffers that are
// written to the disk.
func defaultTransport() *http.Transport {
	var protocols http.Protocols
	protocols.SetHTTP1(true)
	return &http.Transport{Protocols: &protocols, DisableCompression: true, MaxIdleConns: 4, IdleConnTimeout: 30 * time.Second}
}

// checkRedirect lets http and https through, and takes the caller's headers away from every host but the first.
func (f Fetch) checkRedirect(req *http.Request, via []*http.Request) error {
	if len(via) >= 10 {
		return &redirectError{errors.New("more than 10 redirects")}
	}
	if redirected, ok := req.Context().Value(redirectedKey{}).(*atomic.Bool); ok {
		redirected.Store(true)
	}
	if checkScheme(req.URL) != nil {
		return &redirectError{errNoTarget}
	}
	req.Header.Del("Referer") // net/http puts the last URL there, with a query that may be a signature
	for _, hop := range append(via[1:len(via):len(via)], req) {
		if sameOrigin(via[0].URL, hop.URL) {
			continue
		}
		for name := range f.Header {
			req.Header.Del(name)
		}
		req.Header.Del("Authorization")
		req.Header.Set("Accept-Encoding", "identity")
	}
	return nil
}

// redirectedKey is the context key of the flag that checkRedirect sets when a request was redirected.
type redirectedKey struct{}

// redirectError says that a server sent the client where it must not go. Asking again would not help.
type redirectError struct{ err error }

func (e *redirectError) Error() string { return "redirect: " + e.err.Error() }
func (e *redirectError) Unwrap() error { return e.err }

// sameOrigin reports whether what is meant for a may be sent to b: the same host and port, and no step down from TLS.
func sameOrigin(a, b *url.URL) bool {
	if !strings.EqualFold(a.Hostname(), b.Hostname()) {
		return false
	}
	if a.Scheme == b.Scheme {
		return port(a) == port(b)
	}
	return a.Scheme == "http" && b.Scheme == "https" && port(a) == "80" && port(b) == "443"
}

func port(u *url.URL) string {
	if p := u.Port(); p != "" {
		return p
	}
	if u.Scheme == "https" {
		return "443"
	}
	return "80"
}

func checkScheme(u *url.URL) error {
	if u.Scheme != "http" && u.Scheme != "https" {
		return fmt.Errorf("got scheme %q, want http or https", u.Scheme)
	}
	if u.Host == "" {
		return errors.New("the URL names no host")
	}
	return nil
}

// parseURL parses and checks the URL of an image or a checksum file.
func parseURL(raw string) (*url.URL, error) {
	u, err := url.Parse(raw)
	if err == nil {
		err = checkScheme(u)
	}
	if err != nil {
		var parse *url.Error // quotes the URL, which may hold a password
		if errors.As(err, &parse) {
			err = parse.Err
		}
		return nil, &DownloadError{URL: redactURL(raw), Err: err, Fatal: true}
	}
	return u, nil
}

// redactURL returns a URL as it may be shown: without credentials, query and fragment, any of which can be a secret.
func redactURL(raw string) string {
	u, err := url.Parse(raw)
	if err != nil {
		return "(unreadable URL)"
	}
	u.User, u.Fragment, u.RawFragment = nil, "", ""
	if u.RawQuery != "" {
		u.RawQuery = "..."
	}
	return u.String()
}

// span asks for a part of a file. With a validator the server is to send the part only of a file that still has it.
type span struct {
	off, len  int64
	validator string
}

// open sends a GET until the server answers well, pausing between the attempts. With part it asks for a range, which the
// server may ignore: see body.partial.
func (f *fetcher) open(ctx context.Context, rawURL string, part *span) (*body, error) {
	for attempt := 0; ; attempt++ {
		b, err := f.admitted(ctx, rawURL, part)
		if err == nil {
			return b, nil
		}
		var down *DownloadError
		if !errors.As(err, &down) || down.Fatal || attempt >= f.Retries {
			return nil, err
		}
		f.log.Warn("the image server did not answer well, trying again",
			"url", redactURL(rawURL), "attempt", attempt+1, "of", f.Retries+1, "err", err)
		if err := pause(ctx, f.RetryInterval); err != nil {
			return nil, err
		}
	}
}

// admitted sends a request, and once more where a registry refuses the first for want of a token, or of a new one.
func (f *fetcher) admitted(ctx context.Context, rawURL string, part *span) (*body, error) {
	if f.registry == nil {
		return f.get(ctx, rawURL, part, "")
	}
	sent := f.registry.authorization()
	b, err := f.get(ctx, rawURL, part, sent)
	var down *DownloadError
	if !errors.As(err, &down) || down.Status != http.StatusUnauthorized {
		return b, err
	}
	again, failure := f.registry.answer(ctx, down.challenges, sent)
	var token *DownloadError
	var timeout interface{ Timeout() bool } // a TimeoutError or a SlowError
	switch {
	case failure == nil && again:
		return f.get(ctx, rawURL, part, f.registry.authorization())
	case failure == nil:
		return nil, err
	case ctx.Err() != nil || errors.As(failure, &token) || errors.As(failure, &timeout):
		return nil, fmt.Errorf("token for %s: %w", down.URL, failure)
	}
	return nil, &DownloadError{URL: down.URL, Status: down.Status, Err: failure, Fatal: true}
}

// pause waits, or returns ctx's error.
func pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// get sends one request, with an Authorization beside the caller's headers where there is one. The body must be closed.
func (f *fetcher) get(ctx context.Context, rawURL string, part *span, authorization string) (*body, error) {
	u, err := parseURL(rawURL)
	if err != nil {
		return nil, err
	}
	redirected := new(atomic.Bool)
	ctx, cancel := context.WithCancelCause(context.WithValue(ctx, redirectedKey{}, redirected))
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, u.String(), nil)
	if err != nil {
		cancel(nil)
		return nil, &DownloadError{URL: redactURL(rawURL), Err: err, Fatal: true}
	}
	for name, values := range f.Header {
		req.Header[http.CanonicalHeaderKey(name)] = values
	}
	if authorization != "" {
		req.Header.Set("Authorization", authorization)
	}
	req.Header.Set("Accept-Encoding", "identity") // else net/http would unpack what the checksum is of
	if part != nil {
		req.Header.Set("Range", fmt.Sprintf("bytes=%d-%d", part.off, part.off+part.len-1))
		if part.validator != "" {
			req.Header.Set("If-Range", part.validator)
		}
	}
	b := &body{ctx: ctx, cancel: cancel, url: redactURL(rawURL), stall: f.ConnectTimeout, rate: f.rate, redirected: redirected}
	b.timer = goroutine.AfterTime(b.stall, func() { cancel(errStalled) })
	resp, err := f.client.Do(req) //nolint:bodyclose // body.Close does
	b.timer.Stop()
	if err != nil {
		defer cancel(nil)
		return nil, b.fail(err)
	}
	b.stream, b.validator = resp.Body, validatorOf(resp.Header)
	if err := b.accept(resp, part); err != nil {
		var down *DownloadError
		if errors.As(err, &down) && sameOrigin(u, resp.Request.URL) { // no other host may say who gets the credentials
			down.challenges = resp.Header.Values("WWW-Authenticate")
		}
		b.Close() //nolint:errcheck // the answer is of no use
		return nil, err
	}
	return b, nil
}

// accept checks status and range of an answer.
func (b *body) accept(resp *http.Response, part *span) error {
	switch {
	case resp.StatusCode == http.StatusOK:
		b.total = resp.ContentLength
		return nil
	case resp.StatusCode == http.StatusPartialContent && part != nil:
		first, total, err := parseContentRange(resp.Header.Get("Content-Range"))
		if err == nil && first != part.off {
			err = fmt.Errorf("got bytes from %d on, want them from %d", first, part.off)
		}
		if err != nil {
			return &DownloadError{URL: b.url, Status: resp.StatusCode, Err: fmt.Errorf("range request: %w", err), Fatal: true}
		}
		b.partial, b.total = true, total
		return nil
	}
	return &DownloadError{URL: b.url, Status: resp.StatusCode, Fatal: resp.StatusCode < http.StatusInternalServerError}
}

// parseContentRange parses "bytes FIRST-LAST/TOTAL"; total is -1 if the server does not know it. The error does not
// quote the header.
func parseContentRange(text string) (first, total int64, err error) {
	bad := fmt.Errorf("got a Content-Range of %d characters, want bytes FIRST-LAST/TOTAL", len(text))
	rest, ok := strings.CutPrefix(text, "bytes ")
	if !ok {
		return 0, 0, bad
	}
	positions, length, ok := strings.Cut(rest, "/")
	from, _, ok2 := strings.Cut(positions, "-")
	if !ok || !ok2 {
		return 0, 0, bad
	}
	if first, err = strconv.ParseInt(strings.TrimSpace(from), 10, 64); err != nil || first < 0 {
		return 0, 0, bad
	}
	if length == "*" {
		return first, -1, nil
	}
	if total, err = strconv.ParseInt(strings.TrimSpace(length), 10, 64); err != nil || total < 0 {
		return 0, 0, bad
	}
	return first, total, nil
}
