// Package alternatives starts alternatives one after another, each with a delay, and returns the result of the first
// that succeeds. RFC 8305 does the same with addresses: the caller's order is preferred, but a slow alternative does
// not delay the others.
package alternatives

import (
	"context"
	"errors"
	"time"

	"ironroot/internal/goroutine"
)

var errNone = errors.New("nothing to try")

// First calls try with the numbers from 0 to n-1. It starts each call gap after the previous one or as soon as a call
// fails. It returns the value and the number of the first call that succeeds. It then cancels the context of the other
// calls, and passes values that they return nevertheless to drop, which may be nil. If all calls fail, it returns
// their joined errors. If n is 0, it returns an error.
func First[T any](
	ctx context.Context, n int, gap time.Duration, try func(context.Context, int) (T, error), drop func(T),
) (T, int, error) {
	var none T
	if n < 1 {
		return none, 0, errNone
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	type result struct {
		value T
		by    int
		err   error
	}
	results := make(chan result, n) // buffered, so that no call blocks
	started := 0
	start := func() {
		by := started
		started++
		var value T
		goroutine.Go(func() (err error) {
			value, err = try(ctx, by)
			return err
		}, func(err error) { results <- result{value, by, err} })
	}
	start()
	var failed []error
	for len(failed) < n {
		var next <-chan time.Time
		if started < n {
			next = time.After(gap)
		}
		select {
		case r := <-results:
			if r.err == nil {
				if left := started - len(failed) - 1; drop != nil {
					goroutine.Go(func() error {
						for range left {
							if late := <-results; late.err == nil {
								drop(late.value)
							}
						}
						return nil
					}, nil)
				}
				return r.value, r.by, nil
			}
			if failed = append(failed, r.err); started < n {
				start()
			}
		case <-next:
			start()
		}
	}
	return none, 0, errors.Join(failed...)
}
