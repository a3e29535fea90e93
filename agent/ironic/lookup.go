package ironic

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	"ironroot/agent/node"
	"ironroot/internal/pause"
)

// Answer is the response to a lookup.
type Answer struct {
	Node              *node.Node
	Config            LookupConfig
	HeartbeatInterval time.Duration
	// Passthru means that Ironic is older than API version 1.22 and knows no token.
	Passthru bool
}

// LookupError means that no lookup succeeded within the option lookup_timeout.
type LookupError struct {
	Attempts int
	After    time.Duration
	Err      error // of the last attempt
}

func (e *LookupError) Error() string {
	return fmt.Sprintf("lookup of this node failed %d times in %v: %v", e.Attempts, e.After.Round(time.Second), e.Err)
}

func (e *LookupError) Unwrap() error { return e.Err }

// maxLookupWait is the longest delay between two attempts of a lookup.
const maxLookupWait = time.Minute

// Lookup looks this machine's node up in Ironic, by the MAC addresses of its interfaces and by nodeUUID if it is known.
// It retries until the option lookup_timeout has passed and then returns a *LookupError. If ctx ends it returns ctx's
// error. If Ironic refuses a lookup, and the node is not locked, the error ends with note unless that is "".
func (c *Client) Lookup(ctx context.Context, macs []string, nodeUUID, note string) (*Answer, error) {
	start := time.Now()
	conflicts := 0
	for try := 1; ; try++ {
		change := c.network.Changed()
		found, err := c.lookupOnce(ctx, macs, nodeUUID, note)
		if err == nil {
			c.found(found)
			return found, nil
		}
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		c.log.Warn("lookup failed", "attempt", try, "err", err)
		c.board.Problem("lookup", err)
		var wait time.Duration
		if status := (*StatusError)(nil); errors.As(err, &status) && status.Status == http.StatusConflict {
			wait = conflictDelay(conflicts)
			conflicts++
		}
		if err := pause.For(ctx, wait); err != nil {
			return nil, err
		}
		cfg := c.config.Get()
		if since := time.Since(start); since >= cfg.LookupTimeout {
			return nil, &LookupError{Attempts: try, After: since, Err: err}
		}
		if err := c.sleep(ctx, c.lookupWait(try, cfg.LookupInterval), err, change); err != nil {
			return nil, err
		}
	}
}

// TryLookup is Lookup with one attempt. It leaves the report of a failure to the caller.
func (c *Client) TryLookup(ctx context.Context, macs []string, nodeUUID, note string) (*Answer, error) {
	found, err := c.lookupOnce(ctx, macs, nodeUUID, note)
	if err == nil {
		c.found(found)
	}
	return found, err
}

// found reports a successful lookup. Heartbeats follow the protocol that it used.
func (c *Client) found(a *Answer) {
	c.passthru.Store(a.Passthru)
	c.board.Problem("lookup", nil)
	c.log.Info("lookup succeeded", "node", a.Node.UUID(), "heartbeat_timeout", a.HeartbeatInterval)
}

// conflictDelay returns the additional delay after Ironic responded that the node is locked.
func conflictDelay(earlier int) time.Duration {
	switch earlier {
	case 0:
		return 5 * time.Second
	case 1:
		return 10 * time.Second
	}
	return 30 * time.Second
}

// lookupWait returns a random delay that grows exponentially, so that the nodes of a rack do not retry at the same
// time.
func (c *Client) lookupWait(try int, interval time.Duration) time.Duration {
	high := maxLookupWait
	if try < 7 { // 2^6 s is already more than the limit
		high = min(high, time.Second<<(try-1))
	}
	return c.between(interval, max(interval, high))
}

func (c *Client) lookupOnce(ctx context.Context, macs []string, nodeUUID, note string) (*Answer, error) {
	a, err := c.tryLookup(ctx, macs, nodeUUID)
	if status := (*StatusError)(nil); note != "" && errors.As(err, &status) && status.Status != http.StatusConflict {
		err = fmt.Errorf("%w; %s", err, note)
	}
	return a, err
}

func (c *Client) tryLookup(ctx context.Context, macs []string, nodeUUID string) (*Answer, error) {
	query := url.Values{"addresses": {strings.Join(macs, ",")}}
	if nodeUUID != "" {
		query.Set("node_uuid", nodeUUID)
	}
	r := request{method: http.MethodGet, path: "/v1/lookup?" + query.Encode()}
	version, err := c.apiVersion(ctx)
	if err != nil {
		return nil, err // Ironic is unreachable; do not assume a version
	}
	if !version.AtLeast(ramdiskAPI) {
		return c.passthruLookup(ctx, macs, nodeUUID)
	}
	a, err := c.lookupAt(ctx, r, version)
	// With an assumed version Ironic issues no token, which heartbeats need once the actual version is known.
	if err == nil && c.adoptVersion(a) {
		a, err = c.lookupAt(ctx, r, c.APIVersion(ctx))
	}
	if c.lacksLookup(a, err) {
		c.log.Info("Ironic has no lookup of its own, trying that of the driver", "err", err)
		return c.passthruLookup(ctx, macs, nodeUUID)
	}
	if err != nil {
		return nil, err
	}
	return parseAnswer(a.body)
}

func (c *Client) lookupAt(ctx context.Context, r request, version Version) (answer, error) {
	version = version.older(lookupVersion)
	r.version = &version
	a, err := c.call(ctx, r)
	if err == nil && a.status != http.StatusOK {
		err = c.statusError(a)
	}
	return a, err
}

// parseAnswer decodes a lookup response. Before API 1.22 it has no object config, and heartbeat_timeout is at the top
// level.
func parseAnswer(body []byte) (*Answer, error) {
	var fields struct {
		Node    json.RawMessage `json:"node"`
		Config  LookupConfig    `json:"config"`
		Timeout json.RawMessage `json:"heartbeat_timeout"`
	}
	// The decoder's error contains JSON types and at most one character of the response, so it cannot contain the
	// token.
	if err := json.Unmarshal(body, &fields); err != nil {
		return nil, fmt.Errorf("decode lookup response: %w", err)
	}
	if len(fields.Node) == 0 {
		return nil, errors.New("decode lookup response: node missing")
	}
	found, err := node.FromJSON(fields.Node)
	if err != nil {
		return nil, fmt.Errorf("decode lookup response: %w", err)
	}
	timeout := fields.Config["heartbeat_timeout"]
	if timeout == nil {
		timeout = fields.Timeout
	}
	interval, err := seconds(timeout)
	if err != nil {
		return nil, fmt.Errorf("decode lookup response: heartbeat_timeout: %w", err)
	}
	return &Answer{Node: found, Config: fields.Config, HeartbeatInterval: interval}, nil
}

// seconds decodes a JSON number of seconds. Zero is valid: heartbeats have a minimum interval. The error does not quote
// the response, which contains the token.
func seconds(raw json.RawMessage) (time.Duration, error) {
	const most = 365 * 24 * 3600
	var n float64
	if err := json.Unmarshal(raw, &n); err != nil || n < 0 || n > most {
		return 0, fmt.Errorf("got %d bytes of JSON, want a number of seconds up to %d", len(raw), most)
	}
	return time.Duration(n * float64(time.Second)), nil
}
