package timelimit

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"ironroot/internal/test/testenv"
)

func TestDo(t *testing.T) {
	testenv.ExpectPanics(t)
	limits := Limits{NoProgress: time.Minute, Grace: time.Second}
	broken := errors.New("broken")
	for _, tt := range []struct {
		name  string
		call  func(context.Context) (string, error)
		value string
		err   error
		took  time.Duration
	}{
		{"result", func(context.Context) (string, error) { return "done", nil }, "done", nil, 0},
		{"both", func(context.Context) (string, error) { return "part", broken }, "part", broken, 0},
		{
			"just in time", func(context.Context) (string, error) { time.Sleep(59 * time.Second); return "done", nil },
			"done", nil, 59 * time.Second,
		},
		{"progress", func(ctx context.Context) (string, error) {
			for range 100 {
				time.Sleep(50 * time.Second)
				Progress(ctx)
			}
			return "done", nil
		}, "done", nil, 5000 * time.Second},
		{"extended", func(ctx context.Context) (string, error) {
			Extend(ctx, 24*time.Hour)
			time.Sleep(24 * time.Hour)
			Progress(ctx)
			time.Sleep(59 * time.Second)
			return "done", nil
		}, "done", nil, 24*time.Hour + 59*time.Second},
		{
			"progress, then none", func(ctx context.Context) (string, error) {
				time.Sleep(30 * time.Second)
				Progress(ctx)
				<-ctx.Done()
				return "", ctx.Err()
			}, "", context.Canceled, 90 * time.Second,
		},
		{
			"silent, then ended by its context",
			func(ctx context.Context) (string, error) { <-ctx.Done(); return "", ctx.Err() }, "", context.Canceled,
			time.Minute,
		},
		{
			"silent, then done", func(ctx context.Context) (string, error) { <-ctx.Done(); return "done", nil },
			"done", nil, time.Minute,
		},
	} {
		synctest.Test(t, func(t *testing.T) {
			started := time.Now()
			value, err := Do(t.Context(), limits, tt.call)
			if took := time.Since(started); value != tt.value || !errors.Is(err, tt.err) || took != tt.took {
				t.Errorf("%s: got %q and %v after %v, want %q and %v after %v",
					tt.name, value, err, took, tt.value, tt.err, tt.took)
			}
		})
	}
	synctest.Test(t, func(t *testing.T) {
		_, err := Do(t.Context(), limits,
			func(ctx context.Context) (string, error) { <-ctx.Done(); return "", ctx.Err() })
		if want := "no progress for 1m0s: context canceled"; err == nil || err.Error() != want {
			t.Errorf("silent: got %v, want %s", err, want)
		}
	})
	own, err := Do(t.Context(), limits, func(ctx context.Context) (context.Context, error) { return ctx, nil })
	if err != nil || own.Err() == nil {
		t.Errorf("returned: got %v, and its context ended with %v, want it to have ended", err, own.Err())
	}
	if _, err := Do(t.Context(), limits, func(context.Context) (string, error) { panic("broken") }); err == nil ||
		!strings.Contains(err.Error(), "panic") {
		t.Errorf("panic: got %v, want an error", err)
	}
}

// A cancelled call returns its error.
func TestCancelled(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	broken := errors.New("broken")
	value, err := Do(ctx, Disk, func(context.Context) (string, error) { return "part", broken })
	if value != "part" || err != broken { //nolint:errorlint // as it is
		t.Errorf("got %q and %v, want part and %v", value, err, broken)
	}
}

// Do returns without a call that does not return, and the call's context has ended.
func TestStuck(t *testing.T) {
	limits := Limits{NoProgress: time.Minute, Grace: time.Second}
	for name, tt := range map[string]struct {
		cancel time.Duration // after which the caller gives up
		took   time.Duration
		cause  error
		text   string
	}{
		"silent":    {time.Hour, time.Minute + time.Second, nil, "still busy in the kernel: no progress for 1m0s"},
		"cancelled": {5 * time.Second, 6 * time.Second, context.Canceled, "still busy in the kernel: context canceled"},
		"at once":   {0, time.Second, context.Canceled, "still busy in the kernel: context canceled"},
	} {
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			if tt.cancel == 0 {
				cancel()
			} else {
				defer time.AfterFunc(tt.cancel, cancel).Stop()
			}
			returns, started := make(chan struct{}), time.Now()
			contexts := make(chan context.Context, 1) // of the call
			value, err := Do(ctx, limits, func(ctx context.Context) (string, error) {
				contexts <- ctx
				<-returns // of the kernel
				return "done", nil
			})
			took := time.Since(started)
			if value != "" || !errors.Is(err, ErrStuck) || !strings.Contains(err.Error(), tt.text) || took != tt.took {
				t.Errorf("%s: got %q and %v after %v, want %q after %v", name, value, err, took, tt.text, tt.took)
			}
			if tt.cause != nil && !errors.Is(err, tt.cause) {
				t.Errorf("%s: got %v, want %v in it", name, err, tt.cause)
			}
			if own := <-contexts; own.Err() == nil {
				t.Errorf("%s: the context of the call has not ended", name)
			}
			close(returns)
		})
	}
}
