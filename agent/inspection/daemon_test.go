package inspection

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
)

// Parity: H10
func TestRepeat(t *testing.T) {
	const interval = 300 * time.Second
	for _, tt := range []struct {
		name   string
		random float64
		fails  []bool
		want   []time.Duration // between the runs
	}{
		{"shortest pause", 0, []bool{false, false, false}, []time.Duration{210 * time.Second, 210 * time.Second}},
		{"longest pause", 1, []bool{false, false, false}, []time.Duration{360 * time.Second, 360 * time.Second}},
		{
			"failures make the pause longer, up to four times, and a success makes it short again", 0.6,
			[]bool{true, true, true, false, true, false},
			[]time.Duration{
				810 * time.Second, 1200 * time.Second, 1200 * time.Second, 300 * time.Second, 810 * time.Second,
			},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancel(t.Context())
				var pauses []time.Duration
				last, runs := time.Now(), 0
				Repeat(ctx, interval, func() float64 {
					return tt.random
				}, slog.New(slog.DiscardHandler), func(context.Context) error {
					if runs > 0 {
						pauses = append(pauses, time.Since(last).Round(time.Second))
					}
					last = time.Now()
					runs++
					if runs == len(tt.fails) {
						cancel()
					}
					if tt.fails[runs-1] {
						return errors.New("Ironic is away")
					}
					return nil
				})
				if diff := cmp.Diff(tt.want, pauses); diff != "" {
					t.Errorf("pauses differ (-want +got):\n%s", diff)
				}
			})
		})
	}
}
