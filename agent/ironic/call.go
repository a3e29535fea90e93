package ironic

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"

	"ironroot/internal/bounded"
)

// maxResponseBytes limits the body of a response.
const maxResponseBytes = 8 << 20

const (
	versionHeader = "X-OpenStack-Ironic-API-Version"
	newestHeader  = "X-OpenStack-Ironic-API-Maximum-Version" // in every response below /v1
)

// request is one call of the API.
type request struct {
	method  string
	path    string   // with the query, appended to a base URL
	version *Version // nil sends no version header
	body    []byte   // nil for none
}

// answer is an HTTP response whose body was read completely.
type answer struct {
	status int
	body   []byte
	newest string // maximum API version of its header, "" without one
}

// call sends a request to the first of Ironic's URLs that responds, with any status, and makes it the first one of
// later calls. The error is about the connection to the last URL.
func (c *Client) call(ctx context.Context, r request) (answer, error) {
	c.mu.Lock()
	known, met := c.urls, c.reached
	c.mu.Unlock()
	urls := known
	if !met || c.clockWrong() {
		var err error
		if urls, err = c.ordered(ctx, known, func(url string) string { return url }); err != nil {
			return answer{}, err
		}
	}
	a, used, err := c.try(ctx, urls, r)
	if err == nil {
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.reached = true; slices.Equal(c.urls, known) { // no concurrent call has rotated the list
			c.urls = slices.Concat(urls[used:], urls[:used])
		}
	}
	return a, err
}

// try sends a request to the base URLs in order until one responds, and returns the index of that one.
func (c *Client) try(ctx context.Context, urls []string, r request) (a answer, used int, err error) {
	if len(urls) == 0 {
		return answer{}, 0, errors.New("no URL of Ironic (option api_url)")
	}
	for i, url := range urls {
		a, err = c.send(ctx, url, r)
		if ctx.Err() == nil {
			c.board.Tried(url, err)
		}
		if err == nil {
			return a, i, nil
		}
		if ctx.Err() != nil {
			return answer{}, 0, err
		}
		if i+1 < len(urls) {
			c.log.Warn("Ironic unreachable, trying next URL", "url", url, "err", err)
		}
	}
	return answer{}, 0, err
}

// send sends the request to one base URL and reads the response.
func (c *Client) send(ctx context.Context, url string, r request) (answer, error) {
	cfg := c.config.Get()
	ctx, cancel := context.WithTimeout(ctx, cfg.HTTPRequestTimeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, r.method, url+r.path, bytes.NewReader(r.body))
	if err != nil {
		return answer{}, err
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", "application/json")
	if cfg.GlobalRequestID != "" {
		req.Header.Set("X-OpenStack-Request-ID", cfg.GlobalRequestID)
	}
	if r.version != nil {
		req.Header.Set(versionHeader, r.version.String())
	}
	resp, err := c.http.Do(c.notePeer(req))
	if err != nil {
		return answer{}, err
	}
	defer func() { _ = resp.Body.Close() }()
	c.noteDate(resp)
	body, err := bounded.ReadAll(resp.Body, maxResponseBytes)
	if err != nil {
		return answer{}, fmt.Errorf("read response of %s: %w", url, err)
	}
	return answer{status: resp.StatusCode, body: body, newest: resp.Header.Get(newestHeader)}, nil
}
