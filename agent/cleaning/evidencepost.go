package cleaning

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"time"

	"ironroot/agent/config"
	"ironroot/internal/pause"
)

const (
	postAttempts = 3
	postPause    = 2 * time.Second // between attempts
	postTimeout  = 2 * time.Minute // of the evidence of all disks of a step
	maxPostReply = 64 << 10        // bytes that are read of a response
)

// poster posts evidence to erase_evidence_url. If the option is not set, it posts nothing.
type poster struct {
	url     string // "" without the option
	err     error  // why nothing can be posted
	client  *http.Client
	timeout time.Duration // of a request
	end     time.Time     // of all requests
	pause   time.Duration
}

// newPoster returns a poster with the TLS settings for Ironic. The time limit of all posts starts now.
func (m *Steps) newPoster() *poster {
	c := m.o.Config.Get()
	p := &poster{
		url: c.EraseEvidenceURL, timeout: c.HTTPRequestTimeout, end: time.Now().Add(postTimeout), pause: m.postPause,
	}
	if p.url == "" {
		return p
	}
	settings, err := c.ClientTLS(m.o.Log)
	if err != nil {
		p.err = err
		return p
	}
	transport := &http.Transport{Proxy: http.ProxyFromEnvironment, TLSClientConfig: settings}
	if m.o.Dialer != nil {
		transport.DialContext = m.o.Dialer.DialContext
	}
	config.VerifyWithoutZone(transport)
	p.client = &http.Client{
		Transport: transport,
		// Some redirects turn a POST into a GET, whose success would say nothing.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	return p
}

// close closes idle connections.
func (p *poster) close() {
	if p.client != nil {
		p.client.CloseIdleConnections()
	}
}

// post posts data and reports whether the server has accepted it. It retries if the server cannot be reached or fails
// with status 500 or above. Errors contain neither the URL nor the path of a redirect, which can contain credentials.
func (p *poster) post(ctx context.Context, data []byte) (bool, error) {
	if p.url == "" || p.err != nil {
		return false, p.err
	}
	ctx, cancel := context.WithDeadline(ctx, p.end)
	defer cancel()
	for attempt := 1; ; attempt++ {
		retry, err := p.send(ctx, data)
		if err == nil {
			return true, nil
		}
		if !retry || attempt == postAttempts || ctx.Err() != nil {
			return false, fmt.Errorf("attempt %d: %w", attempt, err)
		}
		if err := pause.For(ctx, p.pause); err != nil {
			return false, err
		}
	}
}

// send makes one attempt.
func (p *poster) send(ctx context.Context, data []byte) (retry bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, p.timeout)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, p.url, bytes.NewReader(data))
	if err != nil { // the cause can contain a part of the password
		return false, errors.New("erase_evidence_url is not a valid URL")
	}
	request.Header.Set("Content-Type", "application/json")
	response, err := p.client.Do(request)
	if err != nil {
		return true, withoutURL(err)
	}
	defer func() { _ = response.Body.Close() }()
	_, _ = io.Copy(io.Discard, io.LimitReader(response.Body, maxPostReply)) // so that the connection can be used again
	if response.StatusCode >= http.StatusOK && response.StatusCode < http.StatusMultipleChoices {
		return false, nil
	}
	err = fmt.Errorf("got status %s", response.Status)
	if to, locationErr := response.Location(); locationErr == nil {
		err = fmt.Errorf("%w, a redirect to %s://%s: erase_evidence_url must not redirect", err, to.Scheme, to.Host)
	}
	return response.StatusCode >= http.StatusInternalServerError, err
}

// withoutURL returns the cause of an error of net/http.
func withoutURL(err error) error {
	if found := (*url.Error)(nil); errors.As(err, &found) {
		return found.Err
	}
	return err
}
