package erase

import (
	"context"
	"slices"
	"sync"
	"time"

	"ironroot/storage/erase/evidence"
)

// Trace collects what an erase has done, what the drive reported and what was read back. It is safe for concurrent use:
// an erase that the kernel does not return from ([ErrStuck]) leaves what is known until then.
type Trace struct {
	mu    sync.Mutex
	found Observed
}

// Observed is the content of a [Trace].
type Observed struct {
	Firmware  string // revision that the drive reported to the erase, "" if it was not asked
	Unreached string // what else the drive holds that an erase of the device does not reach, "" if nothing is known
	Passes    []evidence.Pass
	Reported  []evidence.Statement
	Samples   *evidence.Samples
	Hidden    *evidence.Hidden // sectors of an ATA drive; nil if none are known to be hidden
	ReadBack  *evidence.ReadBack
}

type traceKey struct{}

// WithTrace returns a context whose calls of [Full] and [Express] write to the trace.
func WithTrace(ctx context.Context) (context.Context, *Trace) {
	t := &Trace{}
	return context.WithValue(ctx, traceKey{}, t), t
}

// ensureTrace returns a context with a trace: the one that it has, or a new one.
func ensureTrace(ctx context.Context) (context.Context, *Trace) {
	if t, ok := ctx.Value(traceKey{}).(*Trace); ok {
		return ctx, t
	}
	return WithTrace(ctx)
}

// Observed returns what is known so far.
func (t *Trace) Observed() Observed {
	t.mu.Lock()
	defer t.mu.Unlock()
	o := t.found
	o.Passes, o.Reported = slices.Clone(o.Passes), slices.Clone(o.Reported)
	return o
}

// note calls change with the content of the trace of a context. Without a trace it does nothing.
func note(ctx context.Context, change func(*Observed)) {
	t, ok := ctx.Value(traceKey{}).(*Trace)
	if !ok {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	change(&t.found)
}

// reported notes what the drive has reported. completed means that it reported the end of the erase without an error.
func reported(ctx context.Context, source, text string, completed bool) {
	note(ctx, func(o *Observed) {
		o.Reported = append(o.Reported, evidence.Statement{
			Time: time.Now().UTC(), Source: source, Text: text, Completed: completed,
		})
	})
}
