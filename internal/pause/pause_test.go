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
