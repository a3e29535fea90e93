package command

import (
	"context"
	"sync/atomic"

	"ironroot/agent/fault"
)

// latch records that a command marked Last has succeeded. A registry shares its latch with the commands that it runs
// by their context, so that it also holds for commands that these call. It is safe for concurrent use.
type latch struct{ last atomic.Pointer[string] }

type latchKey struct{}

// withLatch returns a context whose commands use l.
func withLatch(ctx context.Context, l *latch) context.Context {
	return context.WithValue(ctx, latchKey{}, l)
}

// latchOf returns the latch of a command's context. Outside of a registry it is a new one.
func latchOf(ctx context.Context) *latch {
	if l, ok := ctx.Value(latchKey{}).(*latch); ok {
		return l
	}
	return &latch{}
}

// refuse returns an InvalidCommandError for a command if one marked Last has succeeded. AgentIsBusy would be wrong:
// Ironic sends a command to a busy agent again after the next heartbeat, and none follows.
func (l *latch) refuse(name string) error {
	if last := l.last.Load(); last != nil {
		return fault.InvalidCommand("%s refused after %s", name, *last)
	}
	return nil
}

func (l *latch) close(name string) { l.last.Store(&name) }
