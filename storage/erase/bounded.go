package erase

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"ironroot/internal/goroutine"
)

// ErrStuck is returned if the kernel did not return from an operation on a device in time. The operation continues.
// If it writes to the device, it holds it exclusively.
var ErrStuck = errors.New("still busy in the kernel")

// Limits are the time limits of [Bounded].
type Limits struct {
	Silence time.Duration // without progress
	Grace   time.Duration // from the end of the context to the return of the call
}

// DefaultLimits suit any disk. Silence exceeds the time for which Linux retries a command: drivers give up after some
// minutes of retries and resets.
var DefaultLimits = Limits{Silence: 15 * time.Minute, Grace: 30 * time.Second}

// Bounded calls a function that erases, reads or syncs devices, and returns its result. A panic of the function is
// returned as an error.
//
// A process that waits in the kernel for a device cannot be interrupted. If the function does not call
// [ReportProgress] for l.Silence, Bounded cancels the context of the call. If the call does not return within l.Grace
// after its context has ended, Bounded returns an error that wraps [ErrStuck], without a result. The call then
// continues until the kernel returns, and starts no new operation, because its context has ended; only the password of
// an ATA erase that failed is removed. Until then it holds a device that it writes to exclusively, so that nothing else
// can write to it.
func Bounded[T any](ctx context.Context, l Limits, call func(context.Context) (T, error)) (T, error) {
	type result struct {
		value T
		err   error
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	p := &pulse{started: time.Now(), silence: l.Silence}
	done := make(chan result, 1)
	var value T
	goroutine.Go(func() (err error) {
		value, err = call(context.WithValue(ctx, pulseKey{}, p))
		return err
	}, func(err error) { done <- result{value, err} })

	timer := time.NewTimer(l.Silence)
	var silence error // set if the context was cancelled for lack of progress
	for ctx.Err() == nil {
		select {
		case r := <-done:
			return r.value, r.err
		case <-timer.C:
			if left := p.left(); left > 0 {
				timer.Reset(left)
			} else {
				silence = fmt.Errorf("no progress for %v", l.Silence)
				cancel(silence)
			}
		case <-ctx.Done():
		}
	}
	timer.Reset(l.Grace)
	select {
	case r := <-done:
		if silence != nil && r.err != nil {
			return r.value, fmt.Errorf("%w: %w", silence, r.err)
		}
		return r.value, r.err
	case <-timer.C:
		var none T
		return none, fmt.Errorf("%w: %w", ErrStuck, context.Cause(ctx))
	}
}

// pulse holds the deadline for the next progress of a call. It is 0 until the first progress or the announcement of a
// long operation.
type pulse struct {
	started time.Time
	silence time.Duration
	until   atomic.Int64 // time.Duration since started
}

type pulseKey struct{}

func (p *pulse) expect(within time.Duration) { p.until.Store(int64(time.Since(p.started) + within)) }

func (p *pulse) left() time.Duration { return time.Duration(p.until.Load()) - time.Since(p.started) }

// ReportProgress reports progress of a function to [Bounded], if the context is that of its call.
func ReportProgress(ctx context.Context) {
	if p, ok := ctx.Value(pulseKey{}).(*pulse); ok {
		p.expect(p.silence)
	}
}

// willTake announces an operation that reports no progress for up to the duration.
func willTake(ctx context.Context, d time.Duration) {
	if p, ok := ctx.Value(pulseKey{}).(*pulse); ok {
		p.expect(p.silence + d)
	}
}
