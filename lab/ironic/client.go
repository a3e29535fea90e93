//go:build linux

package ironic

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"
)

// lockedTries is the maximum number of attempts, one second apart, while the conductor has locked the node.
const lockedTries = 60

// call sends a request to Ironic's API. body and result may be nil.
func (i *Ironic) call(ctx context.Context, method, path string, body, result any) error {
	var data []byte
	if body != nil {
		var err error
		if data, err = json.Marshal(body); err != nil {
			return err
		}
	}
	for try := 1; ; try++ {
		status, text, err := i.send(ctx, method, path, data)
		switch {
		case err != nil:
			return fmt.Errorf("%s %s: %w", method, path, err)
		case status == http.StatusConflict && strings.Contains(string(text), "locked") && try < lockedTries:
			select {
			case <-time.After(time.Second):
			case <-ctx.Done():
				return ctx.Err()
			}
			continue
		case status >= http.StatusBadRequest:
			return fmt.Errorf("%s %s: got status %d: %s", method, path, status, text)
		case result == nil || len(text) == 0:
			return nil
		}
		if err := json.Unmarshal(text, result); err != nil {
			return fmt.Errorf("%s %s: %w", method, path, err)
		}
		return nil
	}
}

func (i *Ironic) send(ctx context.Context, method, path string, data []byte) (status int, text []byte, err error) {
	req, err := http.NewRequestWithContext(ctx, method, apiURL+path, bytes.NewReader(data))
	if err != nil {
		return 0, nil, err
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", "application/json")
	req.Header.Set("X-OpenStack-Ironic-API-Version", "latest")
	resp, err := i.http.Do(req)
	if err != nil {
		return 0, nil, err
	}
	defer func() { _ = resp.Body.Close() }()
	text, err = io.ReadAll(io.LimitReader(resp.Body, 32<<20))
	return resp.StatusCode, text, err
}
