package confine

import (
	"context"
	"errors"
	"time"

	"ironroot/internal/goroutine"
)

// ErrStillRunning is the error about a process that was killed and is left behind.
var ErrStillRunning = errors.New("killed, but still running")

// Await calls wait, which waits for the end of a process, and returns its error. When ctx ends, it calls kill. The
// kernel does not end a process that waits for a device that does not respond: after the limit Await leaves it behind
// and returns ErrStillRunning. The call of wait continues, so that the process is reaped if it ends after all.
func Await(ctx context.Context, limit time.Duration, wait, kill func() error) error {
	ended := make(chan error, 1)
	goroutine.Go(wait, func(err error) { ended <- err })
	select {
	case err := <-ended:
		return err
	case <-ctx.Done():
	}
	_ = kill() // fails only if it has ended
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case err := <-ended:
		return err
	case <-timer.C:
		return ErrStillRunning
	}
}
