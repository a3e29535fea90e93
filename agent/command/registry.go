package command

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"ironroot/agent/fault"
	"ironroot/internal/goroutine"
)

// Options of a Registry.
type Options struct {
	AllowDestructive bool     // false rejects commands marked Destructive
	Observer         Observer // nil observes nothing
	Redactor         Redactor // of error texts before they are stored; nil stores them as they are
	Log              *slog.Logger
}

// Observer is notified of commands.
type Observer interface {
	Started(name string, p Params)
	Ended(err error) // its record is final
	Finished()       // after each asynchronous command
}

// Redactor removes secrets from texts.
type Redactor interface {
	Clean(text string) string
}

// nothing observes nothing, and changes no text.
type nothing struct{}

func (nothing) Started(string, Params)   {}
func (nothing) Ended(error)              {}
func (nothing) Finished()                {}
func (nothing) Clean(text string) string { return text }

// Registry runs commands, one at a time, and keeps their records until Reset. It runs none after one that is marked
// Last has succeeded.
type Registry struct {
	set      Set
	observer Observer
	redactor Redactor
	log      *slog.Logger
	ctx      context.Context // ended by Close
	cancel   context.CancelFunc
	turn     chan struct{} // a semaphore: its holder can start a command
	latch    latch         // closed by a command marked Last

	mu      sync.Mutex
	session session
	entries []*entry // in order of start
}

// session is the context of the commands between two calls of Reset. Commands continue when their request ends.
type session struct {
	ctx context.Context
	end context.CancelCauseFunc
}

type entry struct {
	record Record        // guarded by Registry.mu
	done   chan struct{} // closed when the record is final
}

// NewRegistry returns a registry of the extensions' commands without records.
func NewRegistry(extensions []Extension, o Options) *Registry {
	r := &Registry{
		set:      Set{Extensions: extensions, AllowDestructive: o.AllowDestructive},
		observer: o.Observer,
		redactor: o.Redactor,
		log:      o.Log,
		turn:     make(chan struct{}, 1),
	}
	if r.observer == nil {
		r.observer = nothing{}
	}
	if r.redactor == nil {
		r.redactor = nothing{}
	}
	if r.log == nil {
		r.log = slog.New(slog.DiscardHandler)
	}
	r.ctx, r.cancel = context.WithCancel(withLatch(context.Background(), &r.latch))
	r.session = r.newSession()
	return r
}

func (r *Registry) newSession() session {
	ctx, end := context.WithCancelCause(r.ctx)
	return session{ctx, end}
}

// Close cancels the running command. The records stay.
func (r *Registry) Close() { r.cancel() }

// errReset is the cause of a command's cancellation by Reset.
var errReset = errors.New("cancelled for another session of Ironic")

// Reset cancels the running command, waits until it has ended and removes all records: Ironic must not take commands of
// a former session for commands of a new one. Commands that wait for their start are rejected; those that are requested
// meanwhile wait. If ctx ends first, Reset returns its error, and the records stay.
func (r *Registry) Reset(ctx context.Context) error {
	r.endSession()
	select { // a synchronous command keeps its turn until it ends
	case r.turn <- struct{}{}:
	case <-ctx.Done():
		r.beginSession()
		return ctx.Err()
	}
	defer func() { <-r.turn }()
	defer r.beginSession() // before the next command starts
	if last := r.last(); last != nil {
		select {
		case <-last.done:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.entries = nil
	return nil
}

func (r *Registry) currentSession() session {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.session
}

func (r *Registry) endSession() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.session.end(errReset)
}

func (r *Registry) beginSession() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.session = r.newSession()
}

// sessionContext returns the context of a command that starts now. It does not end with the request, but has its
// caller.
func (r *Registry) sessionContext(request context.Context) context.Context {
	r.mu.Lock()
	defer r.mu.Unlock()
	if c, ok := CallerOf(request); ok {
		return WithCaller(r.session.ctx, c)
	}
	return r.session.ctx
}

// Execute starts the command with the full name "extension.command". It returns after the end of a synchronous
// command, and at once with the record of an asynchronous one. A failed command is not an error of Execute: errors
// are rejections without a record (busy, unknown, invalid, or after a command marked Last). Ironic repeats a command
// whose answer it did not get in time: a repetition of one marked Last returns the record of the first. ctx limits only
// the wait for the start.
func (r *Registry) Execute(ctx context.Context, name string, p Params) (*Record, error) {
	_, short, err := split(name)
	if err != nil {
		return nil, err
	}
	current := r.currentSession()
	var ended <-chan struct{} // by Reset; nil if it had ended before, because the command then belongs to the next one
	if current.ctx.Err() == nil {
		ended = current.ctx.Done()
	}
	select {
	case r.turn <- struct{}{}:
		defer func() { <-r.turn }()
	case <-ended:
		return nil, context.Cause(current.ctx)
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	if ended != nil && current.ctx.Err() != nil {
		return nil, context.Cause(current.ctx)
	}
	if record, ok := r.latch.repeated(name, p); ok {
		r.log.Info("command repeated, answered with its record", "command", name)
		return &record, nil
	}
	if err := r.latch.refuse(name); err != nil {
		return nil, err
	}
	if busy, ok := r.running(); ok {
		return nil, fault.AgentBusy(busy)
	}
	command, err := r.set.Find(name)
	if err != nil {
		return nil, err
	}
	r.log.Info("command started", "command", name)
	r.observer.Started(name, p)
	if command.Async {
		return r.startAsync(ctx, command, name, p)
	}
	return r.runSync(ctx, command, name, short, p)
}

func (r *Registry) runSync(ctx context.Context, c Command, name, short string, p Params) (*Record, error) {
	started := time.Now()
	// The command continues when the client disconnects: the next command must not find it half done.
	ctx = r.sessionContext(ctx)
	result, err := c.Call(ctx, p)
	err = withCause(ctx, err)
	if fault.IsInvalidContent(err) {
		r.observer.Ended(err)
		return nil, err
	}
	record := Record{ID: newID(), Name: short}
	if r.finish(&record, result, wrapSync, err); record.Error != nil {
		record.Name = name
	}
	r.report(name, started, record, err)
	r.add(record)
	if c.Last && err == nil {
		r.latch.close(lastCommand{name: short, request: &request{name, p, record}})
	}
	return &record, nil
}

func (r *Registry) startAsync(ctx context.Context, c Command, name string, p Params) (*Record, error) {
	mistake := c.check(p)
	if mistake == nil {
		if err := c.validate(ctx, p); fault.IsInvalidContent(err) {
			r.observer.Ended(err)
			return nil, err
		} else if err != nil {
			record := Record{ID: newID(), Name: name}
			r.finish(&record, nil, wrapSync, err)
			r.report(name, time.Now(), record, err)
			r.add(record)
			return &record, nil
		}
	}
	record := Record{ID: newID(), Name: c.Name, Status: Running}
	e := r.add(record)
	session := r.sessionContext(ctx)
	goroutine.Go(func() error {
		defer r.observer.Finished()
		defer close(e.done)
		r.work(session, e, c, name, p, mistake)
		return nil
	}, nil)
	return &record, nil
}

// work runs an asynchronous command until its record is final. mistake is the error of its parameters, which the
// protocol reports only in the record.
func (r *Registry) work(ctx context.Context, e *entry, c Command, name string, p Params, mistake error) {
	started := time.Now()
	var result any
	err := mistake
	if err != nil {
		err = fault.CommandExecution(errors.New("TypeError: " + fault.From(mistake).Details))
	} else {
		result, err = c.run(ctx, p)
		err = withCause(ctx, err)
	}
	var record Record
	if caught := goroutine.Catch(func() error {
		record = r.end(e, c, result, err)
		return nil
	}); caught != nil {
		err = caught
		record = r.end(e, c, nil, err)
	}
	r.report(name, started, record, err)
}

// withCause adds the reason of a cancellation to the error of a cancelled command.
func withCause(ctx context.Context, err error) error {
	if err != nil && errors.Is(context.Cause(ctx), errReset) {
		return fmt.Errorf("%w: %w", errReset, err)
	}
	return err
}

// end makes the record of an asynchronous command final. It panics if the JSON encoder of the result does.
func (r *Registry) end(e *entry, c Command, result any, err error) Record {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.finish(&e.record, result, func(text string) any {
		return map[string]string{"result": c.Name + ": " + text}
	}, err)
	limitResults(r.entries)
	return e.record
}

// finish stores the result or the error of a command in its record. It redacts the error, because Ironic stores the
// text in the node's last_error, which more people can read than the agent's log.
func (r *Registry) finish(record *Record, result any, wrap func(string) any, err error) {
	record.finish(result, wrap, err)
	if record.Error != nil {
		redacted := *record.Error
		redacted.Message, redacted.Details = r.redactor.Clean(redacted.Message), r.redactor.Clean(redacted.Details)
		record.Error = &redacted
	}
}

func wrapSync(text string) any { return map[string]string{"result": text} }

func (r *Registry) report(name string, started time.Time, record Record, err error) {
	r.observer.Ended(err)
	log := r.log.With("command", name, "status", record.Status, "duration", time.Since(started).Round(time.Millisecond))
	var panicked *PanicError
	switch {
	case errors.As(err, &panicked):
		log.Error("command panicked", "err", err, "stack", string(panicked.Stack))
	case record.Error != nil:
		log.Error("command failed", "type", record.Error.Type, "err", record.Error)
	default:
		log.Info("command ended")
	}
}

// add appends a record. One that is not running is final.
func (r *Registry) add(record Record) *entry {
	e := &entry{record: record, done: make(chan struct{})}
	if record.Status != Running {
		close(e.done)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.entries = append(r.entries, e)
	r.entries = slices.Delete(r.entries, 0, max(0, len(r.entries)-maxRecords))
	limitResults(r.entries)
	return e
}

// running returns the name of the running command, if any. Only the last one can be running.
func (r *Registry) running() (name string, ok bool) {
	last := r.last()
	if last == nil {
		return "", false
	}
	record := r.read(last)
	return record.Name, record.Status == Running
}

// last returns the latest command, nil without one.
func (r *Registry) last() *entry {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.entries) == 0 {
		return nil
	}
	return r.entries[len(r.entries)-1]
}

// List returns the latest records, at most maxRecords, in the order in which the commands were started.
func (r *Registry) List() []Record {
	r.mu.Lock()
	defer r.mu.Unlock()
	records := make([]Record, len(r.entries))
	for i, e := range r.entries {
		records[i] = e.record
	}
	return records
}

// Get returns the record with the id.
func (r *Registry) Get(id string) (Record, bool) {
	if e := r.entry(id); e != nil {
		return r.read(e), true
	}
	return Record{}, false
}

// Wait returns the record with the id once its command has ended. An unknown id is a RequestedObjectNotFoundError. If
// ctx ends first, Wait returns its error.
func (r *Registry) Wait(ctx context.Context, id string) (Record, error) {
	e := r.entry(id)
	if e == nil {
		return Record{}, fault.NotFound("Command Result", id)
	}
	select {
	case <-e.done:
		return r.read(e), nil
	case <-ctx.Done():
		return Record{}, ctx.Err()
	}
}

func (r *Registry) entry(id string) *entry {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, e := range r.entries {
		if e.record.ID == id {
			return e
		}
	}
	return nil
}

func (r *Registry) read(e *entry) Record {
	r.mu.Lock()
	defer r.mu.Unlock()
	return e.record
}
