// Package goroutine starts the goroutines of the ramdisk. A panic in a goroutine ends the whole process, and the process is
// PID 1: the kernel panics with it. Here a panic becomes an error for whoever waits for the goroutine.
//
// Every contained panic is logged with its value and stack to [slog.Default], once. Concurrent map access, exhausted stacks
// and other fatal errors of the runtime cannot be contained.
//
// The ramdisk has no other go statement.
package goroutine

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"

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

// Catch calls f and returns its error. A panic of f is logged and returned as a *PanicError. A panic with a *PanicError
// was logged where it came from, and is returned as it is.
func Catch(f func() error) (err error) {
	defer func() {
		switch value := recover().(type) {
		case nil:
		case *PanicError:
			err = value
		default:
			caught := &PanicError{Value: value, Stack: debug.Stack()}
			slog.Default().Error("panic contained", "err", caught, "stack", string(caught.Stack))
			err = caught
		}
	}()
	return f()
}

// errExited is the result of a function that ended its goroutine by runtime.Goexit.
var errExited = errors.New("goroutine exited before its function returned")

// Go calls f in a new goroutine, and then done with its error in the same goroutine. A panic of f is a *PanicError. Go
// calls done exactly once; it must not panic, and is best a send to a buffered channel. Without done, an error is logged.
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

// Do calls the functions concurrently and returns when all have returned. If some panic, Do panics with the first one's
// *PanicError.
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
