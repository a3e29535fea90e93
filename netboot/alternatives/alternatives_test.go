package alternatives

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"ironroot/internal/goroutine"
	"ironroot/internal/test/testenv"
)

// attempt is the result of a call and its duration. Without an end it lasts until its context ends.
type attempt struct {
	after time.Duration
	fails bool
}

func TestFirst(t *testing.T) {
	const gap = time.Second
	for _, tt := range []struct {
		name     string
		gap      time.Duration
		attempts []attempt
		want     int // -1 for none
		after    time.Duration
		started  []time.Duration // those that are started before the end
	}{
		{"the first is quick", gap, []attempt{{gap / 2, false}, {0, false}}, 0, gap / 2, []time.Duration{0}},
		{
			"the first is slow", gap,
			[]attempt{{time.Hour, false}, {gap / 2, false}},
			1, 3 * gap / 2,
			[]time.Duration{0, gap},
		},
		{"the first fails", gap, []attempt{{gap / 2, true}, {0, false}}, 1, gap / 2, []time.Duration{0, gap / 2}},
		{
			"a failure restarts the gap", gap,
			[]attempt{{gap / 2, true}, {time.Hour, false}, {0, false}},
			2, 3 * gap / 2,
			[]time.Duration{0, gap / 2, 3 * gap / 2},
		},
		{"no gap", 0, []attempt{{3, false}, {2, true}, {1, false}}, 2, 1, []time.Duration{0, 0, 0}},
		{"all fail", gap, []attempt{{3 * gap, true}, {gap / 2, true}, {0, true}}, -1, 3 * gap, []time.Duration{
			0, gap, 3 * gap / 2,
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				began := time.Now()
				started := make([]time.Duration, len(tt.attempts))
				for i := range started {
					started[i] = -1
				}
				value, by, err := First(t.Context(), len(tt.attempts), tt.gap,
					func(ctx context.Context, i int) (string, error) {
						started[i] = time.Since(began)
						select {
						case <-time.After(tt.attempts[i].after):
						case <-ctx.Done():
							return "", ctx.Err()
						}
						if tt.attempts[i].fails {
							return "", fmt.Errorf("way %d is closed", i)
						}
						return fmt.Sprint(i), nil
					}, nil)
				took := time.Since(began)
				synctest.Wait()
				if tt.want >= 0 && (err != nil || by != tt.want || value != fmt.Sprint(tt.want)) || took != tt.after {
					t.Errorf("got %q by %d, %v after %v, want %d after %v", value, by, err, took, tt.want, tt.after)
				}
				if tt.want < 0 {
					for i := range tt.attempts {
						if err == nil || !slices.ContainsFunc(err.(interface{ Unwrap() []error }).Unwrap(),
							func(e error) bool { return e.Error() == fmt.Sprintf("way %d is closed", i) }) {
							t.Errorf("got %v, want it to tell of way %d", err, i)
						}
					}
				}
				diff := cmp.Diff(tt.started, slices.DeleteFunc(started, func(d time.Duration) bool { return d < 0 }))
				if diff != "" {
					t.Errorf("starts (-want +got):\n%s", diff)
				}
			})
		})
	}
}

// With n 0 there is an error, and no function is called.
func TestFirstOfNone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		called := 0
		value, by, err := First(t.Context(), 0, time.Hour, func(context.Context, int) (string, error) {
			called++
			return "value", nil
		}, nil)
		synctest.Wait()
		if value != "" || by != 0 || err == nil || err.Error() != "nothing to try" || called != 0 {
			t.Errorf("got %q by %d, error %v and %d calls, want nothing to try and none", value, by, err, called)
		}
	})
}

func TestFirstEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		_, _, err := First(ctx, 2, time.Second, func(ctx context.Context, _ int) (int, error) {
			<-ctx.Done()
			return 0, ctx.Err()
		}, nil)
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v, want the end of the context", err)
		}
	})
}

// Values that arrive too late are dropped once; errors are not.
func TestLosersAreDropped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var dropped []int
		_, by, err := First(t.Context(), 4, 0, func(_ context.Context, i int) (int, error) {
			time.Sleep(time.Duration(i+1) * time.Second)
			if i == 0 || i == 2 {
				return 0, errors.New("closed")
			}
			return i, nil
		}, func(i int) { dropped = append(dropped, i) })
		time.Sleep(time.Minute)
		synctest.Wait()
		if err != nil || by != 1 || !slices.Equal(dropped, []int{3}) {
			t.Errorf("got %d, %v and dropped %v, want 1 and 3 dropped", by, err, dropped)
		}
	})
}

// A panic counts as a failure.
func TestFirstContainsPanics(t *testing.T) {
	testenv.ExpectPanics(t)
	got, by, err := First(t.Context(), 2, time.Hour, func(_ context.Context, i int) (string, error) {
		if i == 0 {
			panic("oops")
		}
		return "second", nil
	}, nil)
	if got != "second" || by != 1 || err != nil {
		t.Errorf("got %q, %d, %v, want that of the second way", got, by, err)
	}
	var caught *goroutine.PanicError
	if _, _, err = First(t.Context(), 1, 0, func(context.Context, int) (int, error) { panic("oops") },
		nil); !errors.As(err, &caught) {
		t.Errorf("got error %v, want the panic", err)
	}
}
