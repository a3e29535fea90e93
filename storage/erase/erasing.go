package erase

import (
	"context"
	"time"

	"ironroot/internal/goroutine"
	"ironroot/internal/pause"
)

// Erasing is called while a drive carries out a command that reports no progress: at its start, and then about once for
// each percent of the time that the drive says it takes, or each minute if it does not say, which is an estimate of 0.
// The first call is on the goroutine of the erase, the others on another one. They do not overlap, and end with the
// command or its context.
type Erasing func(method Method, elapsed, estimate time.Duration)

// Limits of the interval between two calls of an Erasing.
const (
	minErasingInterval = time.Second
	maxErasingInterval = time.Minute
)

// interval returns the time between two calls: a percent of the estimate, within the limits.
func (e Erasing) interval(estimate time.Duration) time.Duration {
	if estimate <= 0 {
		return maxErasingInterval
	}
	return min(max(estimate/100, minErasingInterval), maxErasingInterval)
}

// during calls command, which returns when the drive has erased itself, and e until then. A panic of e during the
// command ends the calls; it is logged, and does not change the result. For the time limit of the command, the calls
// are no progress: that time passes says nothing about the drive.
func (e Erasing) during(ctx context.Context, method Method, estimate time.Duration, command func() error) error {
	if e == nil {
		return command()
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	ended := make(chan struct{})
	began := time.Now()
	e(method, 0, estimate)
	goroutine.Go(func() error {
		for pause.For(ctx, e.interval(estimate)) == nil {
			e(method, time.Since(began), estimate)
		}
		return nil
	}, func(error) { close(ended) }) // a panic was logged
	err := command()
	cancel()
	<-ended
	return err
}
