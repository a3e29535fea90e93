package erase

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"ironroot/internal/test/testenv"
	"ironroot/internal/timelimit"
	"ironroot/storage/block"
	"ironroot/storage/sysfs"
)

// recordErasing returns options that record the observations of SelfErasing.
func recordErasing(o Options, calls *[]Progress) Options {
	o.Recorder = &Recorder{Observer: observe(func(p Progress) {
		if p.Phase == SelfErasing {
			*calls = append(*calls, p)
		}
	})}
	return o
}

// An erase that reports no progress shows how long it has taken, with the drive's estimate, until its end.
func TestErasing(t *testing.T) {
	ata := func(drive fakeATA) func(*testing.T, *[]Progress) func(context.Context) error {
		return func(t *testing.T, calls *[]Progress) func(context.Context) error {
			disk := ataMedium(t)
			drive.path = disk.Path
			return func(ctx context.Context) error {
				o := recordErasing(Options{ATA: true}, calls)
				_, err := eraseATA(ctx, sysfs.Root{}, disk, o, drive.open)
				return err
			}
		}
	}
	for name, c := range map[string]struct {
		prepare  func(*testing.T, *[]Progress) func(context.Context) error
		method   Technique
		estimate time.Duration
		interval time.Duration
		count    int
	}{
		"short": {
			ata(fakeATA{normalTime: 15, takes: 20 * time.Minute}), ATAErase, 30 * time.Minute, 18 * time.Second, 67,
		},
		"long": {
			ata(fakeATA{enhanced: true, normalTime: 1, enhancedTime: 250, takes: 9 * time.Hour}), ATAEnhanced,
			500 * time.Minute, time.Minute, 540,
		},
		"no estimate": {ata(fakeATA{takes: 2 * time.Hour}), ATAErase, 0, time.Minute, 120},
		"quick":       {ata(fakeATA{normalTime: 1}), ATAErase, 2 * time.Minute, 0, 1},
		"NVMe Format": {
			func(t *testing.T, calls *[]Progress) func(context.Context) error {
				drive := fakeNVMe{oacs: 2, formatTime: 90 * time.Minute}
				drive.path = testenv.SparseFile(t, mib)
				return func(ctx context.Context) error {
					o := recordErasing(Options{NVMe: true}, calls)
					_, _, err := eraseNVMe(ctx, block.Device{Path: drive.path}, o,
						func(string) (adminDevice, error) { return &drive, nil })
					return err
				}
			}, NVMeUser, 0, time.Minute, 90,
		},
	} {
		var calls []Progress
		erase := c.prepare(t, &calls)
		synctest.Test(t, func(t *testing.T) {
			err := erase(t.Context())
			count := len(calls)
			time.Sleep(24 * time.Hour) // by the clock of the test
			if len(calls) != count {
				t.Errorf("%s: got %d calls after the end", name, len(calls)-count)
			}
			// The last call can be that of the end of the command.
			if err != nil || count < c.count || count > c.count+1 {
				t.Errorf("%s: got %v and %d calls, want %d", name, err, count, c.count)
			}
			for i, call := range calls {
				elapsed := time.Duration(i) * c.interval
				if want := (Progress{
					Phase: SelfErasing, Technique: c.method, Elapsed: elapsed, Estimate: c.estimate,
				}); call != want {
					t.Fatalf("%s: got call %+v, want %+v", name, call, want)
				}
			}
		})
	}
}

// The calls end with the context, although the kernel does not return from the command, and do not count as progress. A
// panic of a call ends the calls, not the erase.
func TestErasingEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		calls, ended := 0, make(chan struct{})
		limits := timelimit.Limits{NoProgress: time.Hour, Grace: time.Minute}
		_, err := timelimit.Do(t.Context(), limits, func(ctx context.Context) (any, error) {
			defer close(ended)
			report := &Recorder{Observer: observe(func(Progress) { calls++ })}
			return nil, report.during(ctx, ATAErase, 0, func() error {
				time.Sleep(24 * time.Hour) // by the clock of the test
				return nil
			})
		})
		if !errors.Is(err, timelimit.ErrStuck) {
			t.Errorf("got %v, want %v", err, timelimit.ErrStuck)
		}
		<-ended
		if calls < 60 || calls > 61 {
			t.Errorf("got %d calls, want those of the hour until the context ended", calls)
		}
	})
	failure := errors.New("broken")
	for _, want := range []error{nil, failure} {
		synctest.Test(t, func(t *testing.T) {
			calls := 0
			report := &Recorder{Observer: observe(func(p Progress) {
				if calls++; p.Elapsed > 0 {
					panic("boom")
				}
			})}
			err := report.during(t.Context(), ATAErase, 0, func() error {
				time.Sleep(time.Hour) // by the clock of the test
				return want
			})
			if err != want || calls != 2 { //nolint:errorlint // exactly the error of the command
				t.Errorf("panic: got %v after %d calls, want %v after 2", err, calls, want)
			}
		})
	}
	var none *Recorder
	if err := none.during(t.Context(), ATAErase, 0, func() error { return failure }); !errors.Is(err, failure) {
		t.Errorf("got %v, want the error of the command", err)
	}
}
