package erase

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

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
			// The last call can come from the end of the command.
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

// A recorder is for one erase: a second one fails before anything is written, and does not change the report, whether
// or not the first succeeded.
func TestRecorderOnce(t *testing.T) {
	const size = mib
	used := map[string]func(*Recorder, block.Device) error{
		"Run": func(r *Recorder, d block.Device) error { return runZeros(t, d, r) },
		"failure": func(r *Recorder, d block.Device) error {
			d.Path = "/dev/missing"
			_ = runZeros(t, d, r)
			return nil
		},
		"Erased": func(r *Recorder, _ block.Device) error { r.Erased(Overwrite); return nil },
	}
	again := map[string]func(*Recorder, block.Device) error{
		"Run": func(r *Recorder, d block.Device) error { return runZeros(t, d, r) },
		"Express": func(r *Recorder, d block.Device) error {
			return Express(t.Context(), sysfs.Root{}, d, Options{Recorder: r}, func(error) {})
		},
		"Ranges": func(r *Recorder, d block.Device) error {
			return Ranges(t.Context(), sysfs.Root{}, d, [][2]int64{{0, size}}, Options{Zeroize: true, Recorder: r})
		},
		"Recover":        func(r *Recorder, d block.Device) error { return Recover(t.Context(), d, r) },
		"RecordMetadata": func(r *Recorder, d block.Device) error { return RecordMetadata(t.Context(), d, r) },
	}
	for first, use := range used {
		path := secretDisk(t, size)
		for second, act := range again {
			record := &Recorder{}
			record.AddLimit("a part") // what a caller adds is no use
			other := device(t, testenv.Loop(t, testenv.SparseFile(t, size), 512))
			if err := use(record, other); err != nil {
				t.Fatal(err)
			}
			want := record.Report()
			err := act(record, device(t, path))
			if err == nil || !strings.Contains(err.Error(), "recorder already used") ||
				!strings.Contains(err.Error(), path) {
				t.Errorf("%s after %s: got %v, want that the recorder is used, with %s", second, first, err, path)
			}
			if first == "Run" && !strings.Contains(fmt.Sprint(err), "used for "+other.Path) {
				t.Errorf("%s after %s: got %v, want %s", second, first, err, other.Path)
			}
			if diff := cmp.Diff(want, record.Report()); diff != "" {
				t.Errorf("%s after %s: report changed: -want +got:\n%s", second, first, diff)
			}
			unchanged(t, path)
		}
	}
}

// runZeros overwrites a device with zeros.
func runZeros(t *testing.T, d block.Device, record *Recorder) error {
	t.Helper()
	return Run(t.Context(), sysfs.Root{}, d, Options{Zeroize: true, Recorder: record})
}
