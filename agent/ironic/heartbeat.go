package ironic

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/url"
	"strings"
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

	// After Ironic has rejected a heartbeat with a text, heartbeats have no text for a pause: unknownPause if Ironic
	// does not know the field, otherwise rejectedPause. Each further rejection doubles the pause, up to
	// maxRejectedPause.
	rejectedPause    = time.Minute
	unknownPause     = time.Hour
	maxRejectedPause = 24 * time.Hour
)

// HeartbeatOptions describe a node's heartbeat.
type HeartbeatOptions struct {
	NodeUUID string
	// Interval is the HeartbeatInterval of the lookup. Heartbeats follow after 0.3 to 0.6 of it, at least 5 s.
	Interval time.Duration
	Agent    Agent
	// Progress describes the running command; nil sends no progress.
	Progress Progress
}

// Agent is the agent whose heartbeats are sent.
type Agent interface {
	// CallbackURL returns the URL at which Ironic reaches the agent. Ironic rejects a URL that changes.
	CallbackURL() string
	// CertificatePEM returns the generated certificate of the agent's API, "" without one.
	CertificatePEM() string
	// HeartbeatDone is called with the result of each heartbeat, except of one for progress that failed.
	HeartbeatDone(ctx context.Context, err error)
}

// Progress describes the running command. *status.Board implements it.
type Progress interface {
	// Summary returns one line about the running command or the result of the last one, "" for none. From API version
	// 1.72 on, Ironic stores it in the node's driver_internal_info.
	Summary() string
	// Changed returns a channel that is closed when Summary may have changed. A heartbeat is then sent at the earliest
	// progress_interval after the previous one, later while Ironic is busy.
	Changed() <-chan struct{}
}

// Heartbeater sends one node's heartbeats.
type Heartbeater struct {
	client *Client
	HeartbeatOptions
	force chan struct{} // has one element if a heartbeat was forced

	progress progress // of Run
}

// progress holds the state of reports of progress.
type progress struct {
	pace     pace
	accepted string        // the latest text that Ironic accepted
	rejected error         // of the latest heartbeat if it had a text and was rejected, otherwise nil
	resume   time.Time     // end of the latest pause
	pause    time.Duration // length of the latest pause, 0 if a text was accepted since
}

// paused reports whether heartbeats have no text at the moment.
func (p *progress) paused() bool { return p.rejected != nil || time.Now().Before(p.resume) }

// NewHeartbeater returns a Heartbeater. Run sends the heartbeats.
func (c *Client) NewHeartbeater(o HeartbeatOptions) *Heartbeater {
	h := &Heartbeater{client: c, HeartbeatOptions: o, force: make(chan struct{}, 1)}
	if h.Progress == nil {
		h.Progress = nothing{}
	}
	return h
}

// Force requests a heartbeat as soon as five seconds have passed since the previous one. Calls before it share one
// heartbeat. A failed forced heartbeat is retried every five seconds until Ironic accepts it. Force never blocks.
func (h *Heartbeater) Force() {
	select {
	case h.force <- struct{}{}:
	default:
	}
}

// reason is why a heartbeat is sent.
type reason int

const (
	regular     reason = iota // its time has come
	forced                    // Force was called
	forProgress               // only Progress has changed
)

// Run sends heartbeats until ctx ends, the first one at once, and returns ctx's error. The agent's API must be
// listening before, because Ironic can call back immediately.
func (h *Heartbeater) Run(ctx context.Context) error {
	log := h.client.log.With("node", h.NodeUUID)
	isForced := false // until a heartbeat succeeds
	why := regular
	var due time.Time // of the next regular heartbeat
	for {
		select {
		case <-h.force: // this heartbeat is the forced one
			isForced, why = true, forced
		default:
		}
		wait := max(minInterval, h.client.between(scale(h.Interval, intervalLow), scale(h.Interval, intervalHigh)))
		err := h.send(ctx)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		ended := time.Now()
		switch {
		// The next regular heartbeat shows whether Ironic can be reached. A refused token is handled at once: while a
		// command is running, most heartbeats are sent for its progress.
		case err != nil && why == forProgress && !TokenRefused(err):
			log.Warn("progress not sent", "err", err)
		case err != nil:
			h.Agent.HeartbeatDone(ctx, err)
			if wait = minForcedInterval; !isForced {
				wait = h.client.between(retryLow, retryHigh)
			}
			message := "heartbeat failed"
			if status := (*StatusError)(nil); errors.As(err, &status) && status.Status == http.StatusConflict {
				message = "heartbeat failed, conflict"
			}
			log.Error(message, "err", err, "next", wait)
			due = ended.Add(wait)
		default:
			h.Agent.HeartbeatDone(ctx, nil)
			isForced = false
			log.Info("heartbeat sent", "next", wait)
			due = ended.Add(wait)
		}
		if why, err = h.pause(ctx, ended, due); err != nil {
			return err
		}
		isForced = isForced || why == forced
	}
}

// pause waits until the next heartbeat is due, at the latest at a time, and returns why.
func (h *Heartbeater) pause(ctx context.Context, previous, due time.Time) (reason, error) {
	timer := time.NewTimer(time.Until(due))
	defer timer.Stop()
	var ready <-chan time.Time // for progress
	if configured := h.progressInterval(); configured > 0 {
		wait := time.Until(previous.Add(h.progress.pace.interval(configured, h.slowest())))
		earliest := time.NewTimer(max(wait, time.Until(h.progress.resume)))
		defer earliest.Stop()
		ready = earliest.C
	}
	var changed <-chan struct{}
	for {
		select {
		case <-timer.C:
			return regular, nil
		case <-h.force:
			return forced, pause.For(ctx, min(minForcedInterval-time.Since(previous), time.Until(due)))
		case <-ctx.Done():
			return regular, ctx.Err()
		case <-ready:
			ready = nil
		case <-changed:
		}
		changed = h.Progress.Changed() // before the text is compared
		if h.hasProgress() {
			return forProgress, nil
		}
	}
}

// progressInterval returns the shortest time between a heartbeat and one that is sent because the progress has changed;
// 0 sends none.
func (h *Heartbeater) progressInterval() time.Duration { return h.client.config.Get().ProgressInterval }

// slowest returns the longest interval of heartbeats for progress while Ironic is busy.
func (h *Heartbeater) slowest() time.Duration { return scale(h.Interval, intervalHigh) }

// hasProgress reports whether there is a text that Ironic does not have and would store.
func (h *Heartbeater) hasProgress() bool {
	version := h.client.knownVersion()
	if version == nil || !version.AtLeast(progressVersion) || h.progress.paused() {
		return false
	}
	text := h.Progress.Summary()
	return text != "" && text != h.progress.accepted
}

func scale(d time.Duration, factor float64) time.Duration { return time.Duration(float64(d) * factor) }

// send sends one heartbeat, with the progress if Ironic stores it.
func (h *Heartbeater) send(ctx context.Context) error {
	if h.client.passthru.Load() {
		return h.passthruHeartbeat(ctx)
	}
	newest := h.client.APIVersion(ctx)
	text := ""
	if newest.AtLeast(progressVersion) && !h.progress.paused() {
		text = h.Progress.Summary()
	}
	began := time.Now()
	err := h.post(ctx, newest, text)
	h.progress.pace.ended(time.Since(began), err, h.progressInterval(), h.slowest())
	h.sentProgress(text, err)
	return err
}

// sentProgress notes the result of a heartbeat with a text, "" for none. If Ironic or a proxy rejects a heartbeat with
// a text and accepts the next one without it, the following ones have none for a while: heartbeats matter more than
// progress.
func (h *Heartbeater) sentProgress(text string, err error) {
	p := &h.progress
	var status *StatusError
	switch rejected := errors.As(err, &status) && !isBusy(err) && !TokenRefused(err); {
	case err == nil && text != "":
		p.accepted, p.pause = text, 0
	case err == nil && p.rejected != nil:
		first := rejectedPause
		if unknownField(p.rejected) {
			first = unknownPause
		}
		p.pause = min(max(2*p.pause, first), maxRejectedPause)
		p.resume = time.Now().Add(p.pause)
		h.client.log.Warn("Ironic rejects heartbeats with progress, sending them without it for a while",
			"node", h.NodeUUID, "pause", p.pause, "err", p.rejected)
		p.rejected = nil
	case rejected && text != "":
		p.rejected = err
	case rejected:
		p.rejected = nil
	}
}

// unknownField reports whether err says that Ironic does not know the field for the progress.
func unknownField(err error) bool {
	var status *StatusError
	return errors.As(err, &status) && status.Status == http.StatusBadRequest &&
		strings.Contains(status.Text, "agent_status")
}

// post sends a heartbeat with a text, "" for none.
func (h *Heartbeater) post(ctx context.Context, newest Version, text string) error {
	version := newest.older(heartbeatVersion)
	body := h.body(version)
	if text != "" {
		version = newest.older(progressVersion)
		body["agent_status_message"] = text
	}
	data, err := json.Marshal(body)
	if err != nil {
		return err
	}
	err = h.deliver(ctx, request{
		method: http.MethodPost, path: "/v1/heartbeat/" + url.PathEscape(h.NodeUUID), version: &version, body: data,
	})
	h.reportToken(body, err)
	return err
}

// reportToken reports what Ironic's response to a heartbeat says about the token in it. From the API version on that
// has tokens, Ironic accepts a heartbeat only with the right one.
func (h *Heartbeater) reportToken(body map[string]any, err error) {
	if secret, ok := body["agent_token"].(string); ok && err == nil {
		h.client.token.Accepted(secret)
	} else if TokenRefused(err) {
		h.client.token.Refused()
	}
}

// deliver sends a request, which Ironic must accept.
func (h *Heartbeater) deliver(ctx context.Context, r request) error {
	a, err := h.client.call(ctx, r)
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
	body := map[string]any{"callback_url": h.Agent.CallbackURL()}
	if version.AtLeast(agentVersionAPI) {
		body["agent_version"] = h.client.version
	}
	if version.AtLeast(agentTokenAPI) {
		body["agent_token"] = nil
		if secret := h.client.token.Reveal(); secret != "" {
			body["agent_token"] = secret
		}
	}
	if version.AtLeast(verifyCAAPI) {
		if pem := h.Agent.CertificatePEM(); pem != "" {
			body["agent_verify_ca"] = pem
		}
	}
	return body
}
