package command

import (
	"context"
	"encoding/json"
	"maps"
	"slices"
	"sync/atomic"

	"ironroot/agent/fault"
)

// latch contains the command marked Last that has succeeded, if any. A registry shares its latch with the commands that
// it runs by their context, so that it also holds for commands that these call. It is safe for concurrent use.
type latch struct{ last atomic.Pointer[lastCommand] }

// lastCommand is a command marked Last that has succeeded.
type lastCommand struct {
	name    string   // without the extension's name
	request *request // nil until its record is complete, and if another command called it
}

// request is a request to run a command, with the record that answers it.
type request struct {
	name   string // with the extension's name
	params Params
	record Record
}

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
		return fault.InvalidCommand("%s refused after %s", name, last.name)
	}
	return nil
}

// repeated returns the record of the last command if a request with this name and these parameters repeats it.
func (l *latch) repeated(name string, p Params) (record Record, ok bool) {
	last := l.last.Load()
	if last == nil || last.request == nil {
		return Record{}, false
	}
	first := last.request
	if first.name != name || !maps.EqualFunc(first.params, p, slices.Equal[json.RawMessage]) {
		return Record{}, false
	}
	return first.record, true
}

// close stores the last command.
func (l *latch) close(last lastCommand) { l.last.Store(&last) }
