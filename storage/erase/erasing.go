package erase

import (
	"context"
	"errors"
	"time"

	"ironroot/internal/goroutine"
	"ironroot/internal/pause"
)

// erasing is the type of Options.Erasing.
type erasing func(method Method, elapsed, estimate time.Duration)

// Limits of the interval between two calls of an erasing.
const (
	minErasingInterval = time.Second
	maxErasingInterval = time.Minute
)

// interval returns the time between two calls: a percent of the estimate, within the limits.
func (e erasing) interval(estimate time.Duration) time.Duration {
	if estimate <= 0 {
		return maxErasingInterval
	}
	return min(max(estimate/100, minErasingInterval), maxErasingInterval)
}

// during calls command, which returns when the drive has erased itself, and e until then. It does not report progress
// to [Bounded]: that time passes says nothing about the drive.
func (e erasing) during(ctx context.Context, method Method, estimate time.Duration, command func() error) error {
	if e == nil {
		return command()
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	ended := make(chan error, 1)
	began := time.Now()
	e(method, 0, estimate)
	goroutine.Go(func() error {
		for pause.For(ctx, e.interval(estimate)) == nil {
			e(method, time.Since(began), estimate)
		}
		return nil
	}, func(err error) { ended <- err })
	err := command()
	cancel()
	return errors.Join(err, <-ended)
}
