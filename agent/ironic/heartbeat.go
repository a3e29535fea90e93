package ironic

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/url"
	"time"

	"ironroot/internal/pause"
)

const (
	// A heartbeat follows after a random fraction of the interval that Ironic allows, so that one or two can get lost.
	intervalLow, intervalHigh = 0.3, 0.6
	// Range of the delay after a failed heartbeat.
	retryLow, retryHigh = 5 * time.Second, 10 * time.Second
	// minInterval is the minimum time between two heartbeats that are not forced.
	minInterval = 5 * time.Second
	// minForcedInterval is the minimum time before a forced heartbeat, so that short steps share one.
	minForcedInterval = 5 * time.Second
)

// HeartbeatOptions describe a node's heartbeat.
type HeartbeatOptions struct {
	NodeUUID string
	// Interval is the HeartbeatInterval of the lookup. Heartbeats follow after 0.3 to 0.6 of it, at least 5 s.
	Interval time.Duration
	// CallbackURL returns the URL at which Ironic reaches the agent. Ironic rejects a URL that changes.
	CallbackURL func() string
	// Sent, if not nil, is called with the result of each heartbeat.
	Sent func(err error)
	// CertificatePEM returns the generated certificate of the agent's API, "" without one; nil is the same.
	CertificatePEM func() string
}

// Heartbeater sends one node's heartbeats.
type Heartbeater struct {
	client *Client
	HeartbeatOptions
	force chan struct{} // has one element if a heartbeat was forced
}

// NewHeartbeater returns a Heartbeater. Run sends the heartbeats.
func (c *Client) NewHeartbeater(o HeartbeatOptions) *Heartbeater {
	return &Heartbeater{client: c, HeartbeatOptions: o, force: make(chan struct{}, 1)}
}

// Force requests a heartbeat as soon as five seconds have passed since the previous one. Calls before it share one
// heartbeat. A failed forced heartbeat is retried every five seconds until Ironic accepts it. Force never blocks.
func (h *Heartbeater) Force() {
	select {
	case h.force <- struct{}{}:
	default:
	}
}

// Run sends heartbeats until ctx ends, the first one at once, and returns ctx's error. The agent's API must be
// listening before, because Ironic can call back immediately.
func (h *Heartbeater) Run(ctx context.Context) error {
	log := h.client.log.With("node", h.NodeUUID)
	forced := false // until a heartbeat succeeds
	for {
		select {
		case <-h.force: // this heartbeat is the forced one
			forced = true
		default:
		}
		wait := max(minInterval, h.client.between(scale(h.Interval, intervalLow), scale(h.Interval, intervalHigh)))
		err := h.send(ctx)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if h.Sent != nil {
			h.Sent(err)
		}
		if err != nil {
			if wait = minForcedInterval; !forced {
				wait = h.client.between(retryLow, retryHigh)
			}
			message := "heartbeat failed"
			if status := (*StatusError)(nil); errors.As(err, &status) && status.Status == http.StatusConflict {
				message = "heartbeat failed, conflict"
			}
			log.Error(message, "err", err, "next", wait)
		} else {
			forced = false
			log.Info("heartbeat sent", "next", wait)
		}
		woken, err := h.pause(ctx, time.Now(), wait)
		if err != nil {
			return err
		}
		forced = forced || woken
	}
}

// pause waits until the next heartbeat is due, and reports whether it is a forced one.
func (h *Heartbeater) pause(ctx context.Context, previous time.Time, wait time.Duration) (forced bool, err error) {
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-timer.C:
		return false, nil
	case <-h.force:
		return true, pause.For(ctx, min(minForcedInterval-time.Since(previous), wait-time.Since(previous)))
	case <-ctx.Done():
		return false, ctx.Err()
	}
}

func scale(d time.Duration, factor float64) time.Duration { return time.Duration(float64(d) * factor) }

// send sends one heartbeat.
func (h *Heartbeater) send(ctx context.Context) error {
	version := h.client.APIVersion(ctx).older(heartbeatVersion)
	body, err := json.Marshal(h.body(version))
	if err != nil {
		return err
	}
	a, err := h.client.call(ctx, request{
		method: http.MethodPost, path: "/v1/heartbeat/" + url.PathEscape(h.NodeUUID), version: &version, body: body,
	})
	if err != nil {
		return err
	}
	if a.status != http.StatusAccepted {
		return h.client.statusError(a)
	}
	return nil
}

// body returns the heartbeat's fields that the API version supports.
func (h *Heartbeater) body(version Version) map[string]any {
	body := map[string]any{"callback_url": h.CallbackURL()}
	if version.AtLeast(agentVersionAPI) {
		body["agent_version"] = h.client.version
	}
	if version.AtLeast(agentTokenAPI) {
		body["agent_token"] = nil
		if secret := h.client.token.Reveal(); secret != "" {
			body["agent_token"] = secret
		}
	}
	if version.AtLeast(verifyCAAPI) && h.CertificatePEM != nil {
		if pem := h.CertificatePEM(); pem != "" {
			body["agent_verify_ca"] = pem
		}
	}
	return body
}
