// Package timelimit limits the time of calls that can block in the kernel, such as those that read, write, erase or
// sync a disk.
//
// Linux cannot interrupt a process that waits for a device. A call that exceeds its limit is therefore left behind: it
// continues in the background until the kernel returns.
package timelimit

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"ironroot/internal/goroutine"
)

// ErrStuck is returned if a call did not return in time. The call continues: if it writes to a device that it holds
// exclusively, it keeps holding it.
var ErrStuck = errors.New("still busy in the kernel")

// Limits are the time limits of a call.
type Limits struct {
	NoProgress time.Duration // from the start, or from the last progress, to the end of the call's context
	Grace      time.Duration // from the end of the call's context to its return
}

// Disk are limits that suit any disk. NoProgress exceeds the time for which Linux retries a command: drivers give up
// after some minutes of retries and resets.
var Disk = Limits{NoProgress: 15 * time.Minute, Grace: 30 * time.Second}

// Do calls a function in another goroutine, and returns its result. A panic of the function is returned as an error.
//
// If the function does not call [Progress] for l.NoProgress, Do cancels the context of the call. If the call does not
// return within l.Grace after its context has ended, Do returns an error that wraps [ErrStuck], and no result. The
// function must start no new operation after its context has ended, because nobody waits for it.
func Do[T any](ctx context.Context, l Limits, call func(context.Context) (T, error)) (T, error) {
	type result struct {
		value T
		err   error
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	d := &deadline{started: time.Now(), limit: l.NoProgress}
	done := make(chan result, 1)
	var value T
	goroutine.Go(func() (err error) {
		value, err = call(context.WithValue(ctx, deadlineKey{}, d))
		return err
	}, func(err error) { done <- result{value, err} })

	timer := time.NewTimer(l.NoProgress)
	var expired error // set if the context was cancelled for lack of progress
	for ctx.Err() == nil {
		select {
		case r := <-done:
			return r.value, r.err
		case <-timer.C:
			if left := d.left(); left > 0 {
				timer.Reset(left)
			} else {
				expired = fmt.Errorf("no progress for %v", l.NoProgress)
				cancel(expired)
			}
		case <-ctx.Done():
		}
	}
	timer.Reset(l.Grace)
	select {
	case r := <-done:
		if expired != nil && r.err != nil {
			return r.value, fmt.Errorf("%w: %w", expired, r.err)
		}
		return r.value, r.err
	case <-timer.C:
		var none T
		return none, fmt.Errorf("%w: %w", ErrStuck, context.Cause(ctx))
	}
}

// Run is [Do] for a function without a result.
func Run(ctx context.Context, l Limits, call func(context.Context) error) error {
	_, err := Do(ctx, l, func(ctx context.Context) (struct{}, error) { return struct{}{}, call(ctx) })
	return err
}

// deadline is the time until which a call must report progress. It is 0 before the first call of Progress or Extend.
type deadline struct {
	started time.Time
	limit   time.Duration
	until   atomic.Int64 // time.Duration since started
}

type deadlineKey struct{}

func (d *deadline) set(after time.Duration) { d.until.Store(int64(time.Since(d.started) + after)) }

func (d *deadline) left() time.Duration { return time.Duration(d.until.Load()) - time.Since(d.started) }

// Progress reports progress of a function to [Do], if the context belongs to its call.
func Progress(ctx context.Context) {
	if d, ok := ctx.Value(deadlineKey{}).(*deadline); ok {
		d.set(d.limit)
	}
}

// Extend announces to [Do] that an operation reports no progress for up to the duration: the limit counts from then on.
func Extend(ctx context.Context, duration time.Duration) {
	if d, ok := ctx.Value(deadlineKey{}).(*deadline); ok {
		d.set(d.limit + duration)
	}
}
