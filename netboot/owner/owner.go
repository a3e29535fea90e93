package owner

import (
	"sync/atomic"

	"ironroot/internal/goroutine"
)

// Owner is the goroutine that owns a state. It alone changes the state, one change at a time, and publishes a copy
// after each change. Copies are shallow: what a state refers to must be replaced and never be changed in place. The
// methods of Owner may be called concurrently.
type Owner[S any] struct {
	changes   chan change[S]
	published atomic.Pointer[S]
	wake      func() // called after each change
	ending    chan struct{}
	ended     chan struct{}
}

// change requests a change of the state.
type change[S any] struct {
	apply func(*S)
	done  chan error // receives nil or the panic of apply
}

// Start starts the owner of a state. It runs until End, and calls wake after each change was published.
func Start[S any](initial S, wake func()) *Owner[S] {
	o := &Owner[S]{changes: make(chan change[S]), wake: wake, ending: make(chan struct{}), ended: make(chan struct{})}
	o.published.Store(&initial)
	goroutine.Go(o.run, func(error) { close(o.ended) })
	return o
}

// run applies the requested changes. If apply panics, the change has no effect.
func (o *Owner[S]) run() error {
	for {
		select {
		case <-o.ending:
			return nil
		case c := <-o.changes:
			next := o.State()
			c.done <- goroutine.Catch(func() error {
				c.apply(&next)
				o.published.Store(&next)
				o.wake()
				return nil
			})
		}
	}
}

// End ends the owner and waits until it has ended. It must be called once.
func (o *Owner[S]) End() {
	close(o.ending)
	<-o.ended
}

// State returns the published state.
func (o *Owner[S]) State() S { return *o.published.Load() }

// Change changes the state and returns when the change is published. It panics if apply does. apply must not block,
// because all else waits for it, nor call Change. After End, Change does nothing.
func (o *Owner[S]) Change(apply func(*S)) {
	c := change[S]{apply, make(chan error, 1)}
	select {
	case o.changes <- c:
		if err := <-c.done; err != nil {
			panic(err)
		}
	case <-o.ended:
	}
}
