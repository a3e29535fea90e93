package fetch

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"sync/atomic"
	"time"

	"ironroot/internal/goroutine"
)

// Options describes how to talk to the servers of a file.
type Options struct {
	// Client has proxies (with CheckConnect) and TLS settings in its Transport; nil is a client without a proxy. Its
	// CheckRedirect and Timeout are not used. HTTP/1.1 takes less processor time than HTTP/2: bodies are read directly
	// into the buffers of the disk.
	Client *http.Client
	// Header is sent to the host of the URL, but not to other hosts after a redirect.
	Header http.Header
	// ConnectTimeout limits the time from the request to the header of the response, and then the time between two
	// reads. 0 means 60 s.
	ConnectTimeout time.Duration
	// Retries is the number of retries of a request after a connection error or a status of 500 and more, and of a
	// transfer that was interrupted or had a wrong checksum. A transfer resumes without a limit, but at most so many
	// consecutive connections may deliver less than 4 MiB. 0 means one attempt.
	Retries int
	// RetryInterval is the pause before each retry.
	RetryInterval time.Duration
	// MaxDuration limits all attempts together; 0 means no limit. Checksum files, manifests and tokens have their own
	// limits.
	MaxDuration time.Duration
	// MinRate is the lowest accepted rate of a server in bytes per second; 0 accepts any rate. It is measured over two
	// minutes, or over twice ConnectTimeout if that is longer.
	MinRate int64
	Secrets Secrets // may be nil

	registry   *registrySession // of an Artifact
	rateWindow time.Duration    // 0 = as MinRate describes
	smallFile  time.Duration    // 0 = smallFileTimeout, and tokenTimeout for tokens
}

// Secrets registers secrets, which are then redacted in logs.
type Secrets interface {
	// Redact is called with each token of a registry before it is used.
	Redact(secret string)
}

const defaultConnectTimeout = 60 * time.Second

var (
	errStalled = errors.New("no data arrived in time")
	// ErrMaxDuration is the cause of a context that ended at MaxDuration.
	ErrMaxDuration = errors.New("maximum duration reached")
)

// Fetcher sends requests with the same Options. It is safe for concurrent use.
type Fetcher struct {
	Options
	client *http.Client
	log    *slog.Logger
	rate   *rateMeter
}

// New returns a Fetcher. log may be nil.
func New(f Options, log *slog.Logger) *Fetcher {
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
	return &Fetcher{Options: f, client: &client, log: log, rate: rate}
}

// defaultTransport speaks HTTP/1.1 only: bodies are read from the connection directly into the buffers of the disk.
func defaultTransport() *http.Transport {
	var protocols http.Protocols
	protocols.SetHTTP1(true)
	return &http.Transport{
		Protocols: &protocols, DisableCompression: true, MaxIdleConns: 4, IdleConnTimeout: 30 * time.Second,
	}
}

// Range is a part of a file, in bytes. If there is a validator, the server sends the part only if the file still has
// it.
type Range struct {
	Off, Len  int64
	validator string
}

// Open sends a GET request, with retries. If part is not nil it requests a range, which the server may ignore: see
// Response.Partial.
func (f *Fetcher) Open(ctx context.Context, u URL, part *Range) (*Response, error) {
	for attempt := 0; ; attempt++ {
		b, err := f.authorized(ctx, u, part)
		if err == nil {
			return b, nil
		}
		var down *DownloadError
		if !errors.As(err, &down) || down.Fatal || attempt >= f.Retries {
			return nil, err
		}
		f.log.Warn("request failed, retrying",
			"url", u.redacted, "attempt", attempt+1, "of", f.Retries+1, "err", err)
		if err := f.WaitRetry(ctx); err != nil {
			return nil, err
		}
	}
}

// authorized sends a request, and repeats it with a new token if a registry demands one.
func (f *Fetcher) authorized(ctx context.Context, u URL, part *Range) (*Response, error) {
	if f.registry == nil {
		return f.get(ctx, u, part, "")
	}
	sent := f.registry.authorization()
	b, err := f.get(ctx, u, part, sent)
	var down *DownloadError
	if !errors.As(err, &down) || down.Status != http.StatusUnauthorized {
		return b, err
	}
	again, failure := f.registry.answer(ctx, down.challenges, sent)
	var token *DownloadError
	var timeout interface{ Timeout() bool } // a TimeoutError or a SlowError
	switch {
	case failure == nil && again:
		return f.get(ctx, u, part, f.registry.authorization())
	case failure == nil:
		return nil, err
	case ctx.Err() != nil || errors.As(failure, &token) || errors.As(failure, &timeout):
		return nil, fmt.Errorf("token for %s: %w", down.URL, failure)
	}
	return nil, &DownloadError{URL: down.URL, Status: down.Status, Err: failure, Fatal: true}
}

// WaitRetry waits for RetryInterval, or returns ctx's error.
func (f *Fetcher) WaitRetry(ctx context.Context) error {
	timer := time.NewTimer(f.RetryInterval)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// get sends one request with the caller's headers and, unless it is empty, an Authorization. The caller closes the
// response.
func (f *Fetcher) get(ctx context.Context, u URL, part *Range, authorization string) (*Response, error) {
	if u.parsed == nil {
		return nil, &DownloadError{Err: errors.New("no URL"), Fatal: true}
	}
	redirected := new(atomic.Bool)
	ctx, cancel := context.WithCancelCause(context.WithValue(ctx, redirectedKey{}, redirected))
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, u.parsed.String(), nil)
	if err != nil {
		cancel(nil)
		return nil, &DownloadError{URL: u.redacted, Err: err, Fatal: true}
	}
	for name, values := range f.Header {
		req.Header[http.CanonicalHeaderKey(name)] = values
	}
	if authorization != "" {
		req.Header.Set("Authorization", authorization)
	}
	req.Header.Set("Accept-Encoding", "identity") // otherwise net/http decompresses the file that has the checksum
	if part != nil {
		req.Header.Set("Range", fmt.Sprintf("bytes=%d-%d", part.Off, part.Off+part.Len-1))
		if part.validator != "" {
			req.Header.Set("If-Range", part.validator)
		}
	}
	b := &Response{
		URL: u.redacted, ctx: ctx, cancel: cancel, stall: f.ConnectTimeout, rate: f.rate, redirected: redirected,
	}
	b.timer = goroutine.AfterTime(b.stall, func() { cancel(errStalled) })
	resp, err := f.client.Do(req) //nolint:bodyclose // body.Close does
	b.timer.Stop()
	if err != nil {
		defer cancel(nil)
		return nil, b.fail(err)
	}
	b.body, b.validator, b.encoding = resp.Body, validatorOf(resp.Header), resp.Header.Get("Content-Encoding")
	if err := b.accept(resp, part); err != nil {
		var down *DownloadError
		// No other host decides who gets the credentials.
		if errors.As(err, &down) && sameOrigin(u.parsed, resp.Request.URL) {
			down.challenges = resp.Header.Values("WWW-Authenticate")
		}
		b.Close() //nolint:errcheck // the response is not used
		return nil, err
	}
	return b, nil
}

// Open fetches one URL and returns its content, which the caller must close; a Content-Encoding of gzip is decoded. f
// limits the request, each read and the rate of all reads; MaxDuration is not used. A connection that ends before the
// content is complete is an error. Errors are *DownloadError and *SlowError; they do not quote what the server sent.
func Open(ctx context.Context, f Options, rawURL string) (io.ReadCloser, error) {
	u, err := ParseURL(rawURL)
	if err != nil {
		return nil, err
	}
	b, err := New(f, nil).Open(ctx, u, nil)
	if err != nil {
		return nil, err
	}
	return b.decoded(), nil
}
