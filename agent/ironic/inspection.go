package ironic

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"time"
)

// inspectionRetryDelays returns the delays before the retries of the inspection callback.
func inspectionRetryDelays() []time.Duration {
	return []time.Duration{5 * time.Second, 5 * time.Second, 6 * time.Second, 12 * time.Second}
}

// PostInspection posts the inspection's data, as JSON, to inspection_callback_url, otherwise to Ironic's own callback,
// and returns the UUID of the node that Ironic found, "" without one. It sends no version header: with one, Ironic
// responds in another form and issues the token there. It makes five attempts if Ironic is unreachable, fails with
// status 500 or above, or has locked the node.
func (c *Client) PostInspection(ctx context.Context, body []byte) (nodeUUID string, err error) {
	waits := inspectionRetryDelays()
	for try := 0; ; try++ {
		change := c.network.Changed()
		nodeUUID, err = c.postInspection(ctx, body)
		if err == nil || ctx.Err() != nil || try == len(waits) || !retryable(err) {
			return nodeUUID, err
		}
		c.log.Warn("inspection data not accepted, retrying", "attempt", try+1, "err", err)
		if err := c.sleep(ctx, waits[try], err, change); err != nil {
			return "", err
		}
	}
}

// retryable reports whether a failure can be temporary. Rejections and invalid responses are not.
func retryable(err error) bool {
	if status := (*StatusError)(nil); errors.As(err, &status) {
		return status.Status >= http.StatusInternalServerError || status.Status == http.StatusConflict
	}
	return !errors.Is(err, errResponse)
}

// errResponse marks a successful response that cannot be decoded.
var errResponse = errors.New("decode inspection response")

func (c *Client) postInspection(ctx context.Context, body []byte) (string, error) {
	r := request{method: http.MethodPost, body: body}
	var a answer
	var err error
	if urls := c.config.Get().InspectionCallbackURLs(); len(urls) > 0 {
		if urls, err = c.ordered(ctx, urls, root); err == nil {
			a, _, err = c.try(ctx, urls, r)
		}
	} else {
		r.path = "/v1/continue_inspection"
		a, err = c.call(ctx, r)
	}
	if err != nil {
		return "", err
	}
	if a.status >= http.StatusBadRequest {
		return "", c.statusError(a)
	}
	var found struct {
		UUID string `json:"uuid"`
	}
	if err := json.Unmarshal(a.body, &found); err != nil {
		return "", fmt.Errorf("%w: %w", errResponse, err)
	}
	return found.UUID, nil
}
