package goroutine

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"runtime/debug"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
)

// PanicError represents a contained panic.
type PanicError struct {
	Value any
	Stack []byte // of the goroutine that panicked
}

func (e *PanicError) Error() string { return fmt.Sprintf("internal error: panic: %v", e.Value) }

// Unwrap returns the value of the panic if it is an error, and otherwise nil.
func (e *PanicError) Unwrap() error {
	err, _ := e.Value.(error)
	return err
}

// Catch calls f and returns its error. A panic of f is logged and returned as a *PanicError. A panic with a
// *PanicError was logged before and is returned unchanged.
func Catch(f func() error) (err error) {
	defer func() {
		switch value := recover().(type) {
		case nil:
		case *PanicError:
			err = value
		default:
			caught := &PanicError{Value: value, Stack: debug.Stack()}
			caught.log()
			err = caught
		}
	}()
	return f()
}

// origin identifies the place of a panic by the program counters of its callers.
type origin [16]uintptr

// seen counts the panics of each origin. The number of origins is limited by the size of the program.
var seen = struct {
	sync.Mutex
	count map[origin]int
}{count: map[origin]int{}}

// log logs the 1st, 2nd, 4th, 8th ... panic of one origin: a peer that sends many malformed messages must not fill the
// log.
func (e *PanicError) log() {
	const callers = 4 // runtime.Callers, log, Catch's deferred function, panic
	var from origin
	runtime.Callers(callers, from[:])
	seen.Lock()
	seen.count[from]++
	count := seen.count[from]
	seen.Unlock()
	if count&(count-1) == 0 {
		slog.Default().Error("panic contained", "err", e, "count", count, "stack", string(e.Stack))
	}
}

// errExited is the result of a function that ended its goroutine by runtime.Goexit.
var errExited = errors.New("goroutine exited before its function returned")

// Go calls f in a new goroutine, and then done with its error in the same goroutine. A panic of f is a *PanicError. Go
// calls done exactly once. done must not panic; a send to a buffered channel is best. If done is nil, an error is
// logged.
func Go(f func() error, done func(error)) {
	if done == nil {
		done = func(err error) {
			var caught *PanicError
			if err != nil && !errors.As(err, &caught) { // a panic was logged
				slog.Default().Error("goroutine failed", "err", err)
			}
		}
	}
	go func() {
		err := errExited
		defer func() { done(err) }()
		err = Catch(f)
	}()
}

// Persist calls f until it returns. After a panic, which is logged, it waits for pause and calls f again, unless ctx
// has ended.
func Persist(ctx context.Context, pause time.Duration, f func()) {
	for {
		err := Catch(func() error {
			f()
			return nil
		})
		if err == nil || ctx.Err() != nil {
			return
		}
		timer := time.NewTimer(pause)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return
		}
	}
}

// AfterTime is [time.AfterFunc] with a function whose panic is contained.
func AfterTime(d time.Duration, f func()) *time.Timer {
	return time.AfterFunc(d, func() { contained(f) })
}

// AfterContext is [context.AfterFunc] with a function whose panic is contained.
func AfterContext(ctx context.Context, f func()) (stop func() bool) {
	return context.AfterFunc(ctx, func() { contained(f) })
}

func contained(f func()) {
	_ = Catch(func() error { // a panic was logged
		f()
		return nil
	})
}

// Group is an [errgroup.Group] that contains panics.
type Group struct{ group *errgroup.Group }

// NewGroup returns a Group without goroutines.
func NewGroup() *Group { return &Group{new(errgroup.Group)} }

// WithContext returns a Group whose context ends at the first error or panic, and when Wait returns.
func WithContext(ctx context.Context) (*Group, context.Context) {
	group, ctx := errgroup.WithContext(ctx)
	return &Group{group}, ctx
}

// Go calls f in a new goroutine, once the limit allows.
func (g *Group) Go(f func() error) { g.group.Go(func() error { return Catch(f) }) }

// SetLimit limits the number of goroutines that run at a time. It must not be called while any runs.
func (g *Group) SetLimit(n int) { g.group.SetLimit(n) }

// Wait waits for all goroutines and returns the first error. A panic is a *PanicError.
func (g *Group) Wait() error { return g.group.Wait() }

// Do calls the functions concurrently and returns when all have returned. If some panic, Do panics with the first
// one's *PanicError.
func Do(functions ...func()) {
	group := NewGroup()
	for _, f := range functions {
		group.Go(func() error {
			f()
			return nil
		})
	}
	if err := group.Wait(); err != nil {
		panic(err)
	}
}
