package erase

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"ironroot/storage/erase/evidence"
)

// Trace collects what an erase has done, what the drive reported and what was read back. It is safe for concurrent use:
// an erase that the kernel does not return from (timelimit.ErrStuck) leaves what is known until then.
type Trace struct {
	mu    sync.Mutex
	found Observed
}

// Observed is the content of a [Trace].
type Observed struct {
	Firmware string // revision that the drive reported to the erase, "" if it was not asked
	// NoRotationRate means that an ATA drive reported no rotation rate. The kernel takes such drives for hard disks,
	// and old SSDs are among them.
	NoRotationRate bool
	// Unreached is what else the drive holds that an erase of the device does not reach, "" if nothing is known.
	Unreached string
	Passes    []evidence.Pass
	// InsteadOfZeros means that the last pass was random data although zeros were requested: it is not known whether
	// the drive is locked.
	InsteadOfZeros bool
	Reported       []evidence.Statement
	Samples        *evidence.Samples
	Hidden         *evidence.Hidden // sectors of an ATA drive; nil if none are known to be hidden
	ReadBack       *evidence.ReadBack
}

// Overwritten describes the passes of an overwrite, and what the read-back of the last one shows. It is "" if no pass
// was read back.
func (o Observed) Overwritten() string {
	if len(o.Passes) == 0 || o.ReadBack == nil {
		return ""
	}
	last, shown := "zeros", "all zeros, which a device that ignores writes can return, too"
	if o.Passes[len(o.Passes)-1].Pattern == evidence.PatternRandom {
		last, shown = "random data", "all as written, which proves that the device stores what is written"
	}
	if o.InsteadOfZeros {
		last += " instead of zeros, because it is not known whether the drive is locked"
	}
	if !o.ReadBack.Direct {
		shown = "through the kernel's cache, which does not show what the device stores"
	}
	return fmt.Sprintf("passes: %d, the last of %s; read back: %d of %d bytes, %s", len(o.Passes), last,
		o.ReadBack.Read, o.ReadBack.Size, shown)
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
