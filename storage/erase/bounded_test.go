package erase

import (
	"context"
	"errors"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"

	"ironroot/internal/sysfs"
	"ironroot/internal/testenv"
	"ironroot/storage/partition"
)

func TestBounded(t *testing.T) {
	limits := Limits{Silence: time.Minute, Grace: time.Second}
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
				ReportProgress(ctx)
			}
			return "done", nil
		}, "done", nil, 5000 * time.Second},
		{"announced", func(ctx context.Context) (string, error) {
			willTake(ctx, 24*time.Hour)
			time.Sleep(24 * time.Hour)
			ReportProgress(ctx)
			time.Sleep(59 * time.Second)
			return "done", nil
		}, "done", nil, 24*time.Hour + 59*time.Second},
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
			value, err := Bounded(t.Context(), limits, tt.call)
			if took := time.Since(started); value != tt.value || !errors.Is(err, tt.err) || took != tt.took {
				t.Errorf("%s: got %q and %v after %v, want %q and %v after %v",
					tt.name, value, err, took, tt.value, tt.err, tt.took)
			}
		})
	}
	synctest.Test(t, func(t *testing.T) {
		_, err := Bounded(t.Context(), limits,
			func(ctx context.Context) (string, error) { <-ctx.Done(); return "", ctx.Err() })
		if want := "no progress for 1m0s: context canceled"; err == nil || err.Error() != want {
			t.Errorf("silent: got %v, want %s", err, want)
		}
	})
	own, err := Bounded(t.Context(), limits, func(ctx context.Context) (context.Context, error) { return ctx, nil })
	if err != nil || own.Err() == nil {
		t.Errorf("returned: got %v, and its context ended with %v, want it to have ended", err, own.Err())
	}
	if _, err := Bounded(t.Context(), limits, func(context.Context) (string, error) { panic("broken") }); err == nil ||
		!strings.Contains(err.Error(), "panic") {
		t.Errorf("panic: got %v, want an error", err)
	}
}

// A cancelled call returns its error.
func TestBoundedCancelled(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	broken := errors.New("broken")
	value, err := Bounded(ctx, DefaultLimits, func(context.Context) (string, error) { return "part", broken })
	if value != "part" || err != broken { //nolint:errorlint // as it is
		t.Errorf("got %q and %v, want part and %v", value, err, broken)
	}
}

// A wait for a holder is announced, regardless of its duration.
func TestBoundedBusy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tries := 0
		wait := Wait{Retries: 3, Interval: time.Hour}
		_, err := Bounded(t.Context(), Limits{Silence: time.Minute, Grace: time.Second},
			func(ctx context.Context) (any, error) {
				return nil, wait.until(ctx, sysfs.Root{}, "/dev/none", func() error {
					if tries++; tries <= wait.Retries {
						return unix.EBUSY
					}
					return nil
				})
			})
		if err != nil || tries != 4 {
			t.Errorf("got %v after %d tries, want success after 4", err, tries)
		}
	})
}

// Each block, each pass and each range searched for superblocks is progress.
func TestReportProgress(t *testing.T) {
	disk := testenv.SparseFile(t, mib)
	f, err := os.OpenFile(disk, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	whole := span{0, mib}
	for name, do := range map[string]func(context.Context) error{
		"write zeros": func(ctx context.Context) error { return whole.zero(ctx, f, alignedZeros()) },
		"read zeros":  func(ctx context.Context) error { return whole.checkZero(ctx, f) },
		"superblocks": func(ctx context.Context) error { _, err := readLayout(ctx, disk, mib, nil); return err },
		"guard": func(ctx context.Context) error {
			return guardTable(ctx, disk, &partition.Table{Partitions: []partition.Partition{{Size: mib}}})
		},
		"checks": func(ctx context.Context) error { return checkWiped(ctx, disk, []span{whole}, nil) },
		"samples": func(ctx context.Context) error {
			taken, err := takeSamples(ctx, f, mib, sampling{})
			if err == nil {
				taken.free()
			}
			return err
		},
		"samples read back": func(ctx context.Context) error {
			taken, err := takeSamples(t.Context(), f, mib, sampling{})
			if err != nil {
				return err
			}
			defer taken.free()
			if err := taken.verify(ctx, f); !errors.Is(err, ErrNotErased) {
				return err
			}
			return nil
		},
		"read back": func(ctx context.Context) error {
			_, err := readPlan(ctx, f, mib, seedOf(1), expectedAny, nil)
			return err
		},
	} {
		p := &pulse{started: time.Now(), silence: time.Minute}
		if err := do(context.WithValue(t.Context(), pulseKey{}, p)); err != nil || p.until.Load() == 0 {
			t.Errorf("%s: got %v and the next progress expected within %v, want a time", name, err, p.left())
		}
	}
	p := &pulse{started: time.Now(), silence: time.Minute}
	var written, passed int64 // times by which progress was expected after the last block and before the read-back
	o := Options{Zeroize: true, Progress: func(int64, int64) { written = p.until.Load() }}
	ctx := hooked{context.WithValue(t.Context(), pulseKey{}, p), func() error {
		if written != 0 && passed == 0 {
			passed = p.until.Load()
		}
		return nil
	}}
	if err := overwrite(ctx, disk, o); err != nil {
		t.Fatal(err)
	}
	if written == 0 || passed <= written {
		t.Errorf("got progress expected by %d ns after the block and by %d after the pass, want 0 < block < pass",
			written, passed)
	}
}

// Bounded returns without a call that does not return, and the call's context has ended.
func TestBoundedStuck(t *testing.T) {
	limits := Limits{Silence: time.Minute, Grace: time.Second}
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
			value, err := Bounded(ctx, limits, func(ctx context.Context) (string, error) {
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
