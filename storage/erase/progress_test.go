package erase

import (
	"context"
	"errors"
	"os"
	"testing"
	"testing/synctest"
	"time"

	"ironroot/internal/test/testenv"
	"ironroot/internal/timelimit"
	"ironroot/storage/partition"
)

// Each block, each pass and each range searched for superblocks is progress.
func TestProgress(t *testing.T) {
	disk := testenv.SparseFile(t, mib)
	f, err := os.OpenFile(disk, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	whole := span{0, mib}
	minute := timelimit.Limits{NoProgress: time.Minute, Grace: time.Hour}
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
		// The limit passes unless the function has reported progress after the first of the two waits.
		synctest.Test(t, func(t *testing.T) {
			_, err := timelimit.Do(t.Context(), minute, func(ctx context.Context) (any, error) {
				time.Sleep(59 * time.Second)
				if err := do(ctx); err != nil {
					return nil, err
				}
				time.Sleep(59 * time.Second)
				return nil, ctx.Err()
			})
			if err != nil {
				t.Errorf("%s: got %v, want progress", name, err)
			}
		})
	}
	// A wait after the last block and one before the read-back: the pass is progress, too.
	waits := 0
	synctest.Test(t, func(t *testing.T) {
		_, err := timelimit.Do(t.Context(), minute, func(ctx context.Context) (any, error) {
			o := Options{Zeroize: true, Recorder: onProgress(func(done, total int64) {
				if done == total {
					waits++
					time.Sleep(59 * time.Second)
				}
			})}
			return nil, overwrite(hooked{ctx, func() error {
				if waits == 1 {
					waits++
					time.Sleep(59 * time.Second)
				}
				return ctx.Err()
			}}, disk, o)
		})
		if err != nil || waits != 2 {
			t.Errorf("pass: got %v after %d waits, want progress and 2", err, waits)
		}
	})
}
