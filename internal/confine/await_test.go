package confine

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

// A process is killed when the context ends, and not earlier. One that does not end then is left behind.
func TestAwait(t *testing.T) {
	const limit = 10 * time.Second
	failed := errors.New("exit status 1")
	for name, tt := range map[string]struct {
		runs   time.Duration // until it ends, 0 for a process that only its kill ends, negative for one that never ends
		want   error
		killed bool
		after  time.Duration
	}{
		"ends":         {time.Minute, failed, false, time.Minute},
		"ends by kill": {0, failed, true, time.Hour},
		"ends late":    {time.Hour + limit - 1, failed, true, time.Hour + limit - 1},
		"never ends":   {-1, ErrStillRunning, true, time.Hour + limit},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
				defer cancel()
				end, killed, start := make(chan struct{}), false, time.Now()
				if tt.runs > 0 {
					time.AfterFunc(tt.runs, func() { close(end) })
				}
				err := Await(ctx, limit, func() error {
					<-end
					return failed
				}, func() error {
					if killed = true; tt.runs == 0 {
						close(end)
					}
					return nil
				})
				after := time.Since(start)
				if !errors.Is(err, tt.want) || killed != tt.killed || after != tt.after {
					t.Errorf("got %v after %v, killed %v, want %v after %v, %v", err, after, killed, tt.want,
						tt.after, tt.killed)
				}
				if tt.runs < 0 {
					close(end) // a test waits for its goroutines
				}
			})
		})
	}
}
