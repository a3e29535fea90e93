package ironic

import (
	"errors"
	"net/http"
	"time"
)

// slowAnswer is the duration of a heartbeat from which on Ironic counts as busy.
const slowAnswer = 5 * time.Second

// pace determines how often heartbeats report progress. Each of them costs the conductor a lock of the node, so they
// become rarer while Ironic is busy. Their interval is a multiple of the configured one.
type pace struct{ doublings int }

// interval returns the shortest time before a heartbeat for progress: at most limit, unless a longer one is configured.
func (p *pace) interval(configured, limit time.Duration) time.Duration {
	for range p.doublings {
		configured = max(configured, min(2*configured, limit))
	}
	return configured
}

// ended adapts the pace to a heartbeat that took a time and ended with an error or nil.
func (p *pace) ended(took time.Duration, err error, configured, limit time.Duration) {
	switch {
	case isBusy(err) || took > slowAnswer:
		if p.interval(configured, limit) < limit {
			p.doublings++
		}
	case err == nil:
		p.doublings = max(p.doublings-1, 0)
	}
}

// isBusy reports whether an error of a heartbeat can be due to the load of Ironic or of the network: a conflict, a
// failure of the server, or no answer.
func isBusy(err error) bool {
	var status *StatusError
	if !errors.As(err, &status) {
		return err != nil
	}
	return status.Status == http.StatusConflict || status.Status >= http.StatusInternalServerError
}
