package ironic

import (
	"net/http"
	"time"

	"ironroot/agent/clock"
)

// verifiedDate is the time of a response by Ironic's clock.
type verifiedDate struct {
	date     time.Time
	received time.Time // by this machine's clock, with its monotonic reading
}

// noteDate stores the Date of a response if TLS has verified the sender and the time is plausible. Responses with an
// Age are ignored, because they come from a cache.
func (c *Client) noteDate(resp *http.Response) {
	received := time.Now()
	if resp.TLS == nil || len(resp.TLS.VerifiedChains) == 0 || resp.Header.Get("Age") != "" {
		return
	}
	date, err := http.ParseTime(resp.Header.Get("Date"))
	if err != nil || clock.Check(date) != nil {
		return
	}
	date = date.Add(time.Second / 2) // the header is truncated to seconds
	c.date.Store(&verifiedDate{date, received})
}

// VerifiedTime returns the current time, computed from the Date of the last verified response of Ironic, and false if
// there was none. A response is verified if it came by https without the option insecure. The time is accurate to
// about a second and does not depend on the system clock.
func (c *Client) VerifiedTime() (time.Time, bool) {
	last := c.date.Load()
	if last == nil {
		return time.Time{}, false
	}
	return last.date.Add(time.Since(last.received)), true
}
