package ironic

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/url"
	"time"

	"ironroot/agent/pause"
)

const (
	// A heartbeat comes after a random part of the interval Ironic allows, so that one or two may get lost.
	intervalLow, intervalHigh = 0.3, 0.6
	// After an error the next one comes sooner.
	retryLow, retryHigh = 5 * time.Second, 10 * time.Second
	// minInterval is the shortest time between two heartbeats that nothing forced, whatever interval Ironic allows.
	minInterval = 5 * time.Second
	// forcedGap is the time between a heartbeat and a forced one, so that quick steps share one.
	forcedGap = 5 * time.Second
)

// HeartbeatOptions describe a node's heartbeat.
type HeartbeatOptions struct {
	NodeUUID string
	// Interval is the answer's HeartbeatInterval; heartbeats come after 0.3 to 0.6 of it, and after 5 s at the
	// soonest.
	Interval time.Duration
	// CallbackURL returns where Ironic reaches the agent. Ironic refuses an URL that changes.
	CallbackURL func() string
	// Sent hears what came of each heartbeat; nil is that Ironic accepted it. May be nil itself.
	Sent func(err error)
	// CertificatePEM returns the generated certificate of the agent's API, "" without one; nil is the same.
	CertificatePEM func() string
}

// Heartbeater sends one node's heartbeats.
type Heartbeater struct {
	client *Client
	HeartbeatOptions
	force chan struct{} // holds one: a heartbeat is asked for
}

// NewHeartbeater prepares the heartbeats; Run sends them.
func (c *Client) NewHeartbeater(o HeartbeatOptions) *Heartbeater {
	return &Heartbeater{client: c, HeartbeatOptions: o, force: make(chan struct{}, 1)}
}

// Force asks for a heartbeat soon: as soon as five seconds passed since the previous one. Several calls before it
// share one heartbeat, and one that fails is repeated every five seconds until Ironic accepts it. It never blocks.
func (h *Heartbeater) Force() {
	select {
	case h.force <- struct{}{}:
	default:
	}
}

// Run sends heartbeats, the first at once, until ctx ends, and returns ctx's error. The agent's API must be listening
// already, as Ironic may call back at once.
func (h *Heartbeater) Run(ctx context.Context) error {
	log := h.client.log.With("node", h.NodeUUID)
	forced := false // until a heartbeat succeeds
	for {
		select {
		case <-h.force: // this heartbeat is the one that was asked for
			forced = true
		default:
		}
		wait := max(minInterval, h.client.between(scale(h.Interval, intervalLow), scale(h.Interval, intervalHigh)))
		err := h.beat(ctx)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if h.Sent != nil {
			h.Sent(err)
		}
		if err != nil {
			if wait = forcedGap; !forced {
				wait = h.client.between(retryLow, retryHigh)
			}
			message := "heartbeat failed"
			if status := (*StatusError)(nil); errors.As(err, &status) && status.Status == http.StatusConflict {
				message = "heartbeat met a conflict"
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

// pause waits for the time of the next heartbeat, or until a forced one is due, and reports whether it is a forced
// one.
func (h *Heartbeater) pause(ctx context.Context, previous time.Time, wait time.Duration) (forced bool, err error) {
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-timer.C:
		return false, nil
	case <-h.force:
		return true, pause.For(ctx, min(forcedGap-time.Since(previous), wait-time.Since(previous)))
	case <-ctx.Done():
		return false, ctx.Err()
	}
}

func scale(d time.Duration, factor float64) time.Duration { return time.Duration(float64(d) * factor) }

// beat sends one heartbeat.
func (h *Heartbeater) beat(ctx context.Context) error {
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

// body returns the heartbeat's fields; those that the API version does not know are left out.
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
