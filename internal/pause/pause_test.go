package pause

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

func TestFor(t *testing.T) {
	for _, tt := range []struct {
		name           string
		pause, ends    time.Duration // ends is the end of the context; 0 is before the pause
		want           time.Duration
		wantInterrupts bool
	}{
		{"to its end", time.Minute, time.Hour, time.Minute, false},
		{"interrupted", time.Hour, time.Minute, time.Minute, true},
		{"nothing to wait for", 0, time.Minute, 0, false},
		{"less than nothing", -time.Second, time.Minute, 0, false},
		{"ended before", 0, 0, 0, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithTimeout(t.Context(), tt.ends)
				defer cancel()
				started := time.Now()
				err := For(ctx, tt.pause)
				took := time.Since(started)
				if took != tt.want || errors.Is(err, context.DeadlineExceeded) != tt.wantInterrupts {
					t.Errorf("got %v after %v, want %v", err, took, tt.want)
				}
			})
		})
	}
}

func TestUntil(t *testing.T) {
	const never = 1000 * time.Hour
	for _, tt := range []struct {
		name   string
		closed time.Duration // when the channel is closed; 0 is before the wait
		ends   time.Duration // when the context ends; 0 is before the wait
		want   error
		took   time.Duration
	}{
		{"closed", 0, time.Hour, nil, 0},
		{"closed, context ended", 0, 0, nil, 0},
		{"closed later", time.Minute, time.Hour, nil, time.Minute},
		{"open", never, time.Minute, context.DeadlineExceeded, time.Minute},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := make(chan struct{})
				if tt.closed == 0 {
					close(c)
				} else {
					time.AfterFunc(tt.closed, func() { close(c) })
				}
				if got := Closed(c); got != (tt.closed == 0) {
					t.Errorf("got closed %v, want %v", got, tt.closed == 0)
				}
				ctx, cancel := context.WithTimeout(t.Context(), tt.ends)
				defer cancel()
				started := time.Now()
				if err := Until(ctx, c); !errors.Is(err, tt.want) || time.Since(started) != tt.took {
					t.Errorf("got %v after %v, want %v after %v", err, time.Since(started), tt.want, tt.took)
				}
			})
		})
	}
	if err := Until(t.Context(), nil); err != nil || !Closed(nil) {
		t.Errorf("nil: got %v and closed %v, want a nil channel to count as closed", err, Closed(nil))
	}
}
