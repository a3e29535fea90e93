package command

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"ironroot/agent/fault"
	"ironroot/internal/goroutine"
)

// Options of a Registry.
type Options struct {
	AllowDestructive bool   // false: commands marked Destructive are refused
	Finished         func() // called after an asynchronous command ended, whatever its outcome; may be nil
	// Started and Ended hear of every command when it begins and when its record is final; either may be nil.
	Started func(name string, p Params)
	Ended   func(err error)
	Redact  func(text string) string // removes secrets from error texts before they are stored; nil keeps them as they are
	Log     *slog.Logger
}

// Registry runs commands, one at a time, and keeps their records.
type Registry struct {
	set      Set
	finished func()
	started  func(name string, p Params)
	ended    func(err error)
	redact   func(text string) string
	log      *slog.Logger
	ctx      context.Context // of asynchronous commands: they outlive the request
	cancel   context.CancelFunc
	turn     chan struct{} // holds one token: whoever has it may start a command

	mu      sync.Mutex
	entries []*entry // in the order of their start
}

type entry struct {
	record Record        // guarded by Registry.mu
	done   chan struct{} // closed when the record is final
}

// NewRegistry makes a registry of the extensions' commands, with an empty list of records.
func NewRegistry(extensions []Extension, o Options) *Registry {
	r := &Registry{
		set:      Set{Extensions: extensions, AllowDestructive: o.AllowDestructive},
		finished: o.Finished,
		started:  o.Started,
		ended:    o.Ended,
		redact:   o.Redact,
		log:      o.Log,
		turn:     make(chan struct{}, 1),
	}
	if r.finished == nil {
		r.finished = func() {}
	}
	if r.started == nil {
		r.started = func(string, Params) {}
	}
	if r.ended == nil {
		r.ended = func(error) {}
	}
	if r.redact == nil {
		r.redact = func(text string) string { return text }
	}
	if r.log == nil {
		r.log = slog.New(slog.DiscardHandler)
	}
	r.ctx, r.cancel = context.WithCancel(context.Background())
	return r
}

// Close cancels whatever runs. The records stay.
func (r *Registry) Close() { r.cancel() }

// Execute starts the command with the full name "extension.command". A synchronous one has ended when Execute
// returns; an asynchronous one is returned as running. A command that failed is not an error of Execute: errors are
// the refusals that leave no record (busy, unknown, invalid). ctx bounds only the wait for the command's turn.
func (r *Registry) Execute(ctx context.Context, name string, p Params) (*Record, error) {
	_, short, err := split(name)
	if err != nil {
		return nil, err
	}
	select {
	case r.turn <- struct{}{}:
		defer func() { <-r.turn }()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	if busy, ok := r.running(); ok {
		return nil, fault.AgentBusy(busy)
	}
	command, err := r.set.Find(name)
	if err != nil {
		return nil, err
	}
	r.log.Info("command starts", "command", name)
	r.started(name, p)
	if command.Async {
		return r.startAsync(ctx, command, name, p)
	}
	return r.runSync(command, name, short, p)
}

func (r *Registry) runSync(c Command, name, short string, p Params) (*Record, error) {
	started := time.Now()
	// The command goes on when the client hangs up, or the next one would find half of it done.
	result, err := c.Call(r.ctx, p)
	if fault.IsInvalidContent(err) {
		r.ended(err)
		return nil, err
	}
	record := Record{ID: newID(), Name: short}
	if r.finish(&record, result, wrapSync, err); record.Error != nil {
		record.Name = name
	}
	r.report(name, started, record, err)
	r.add(record)
	return &record, nil
}

func (r *Registry) startAsync(ctx context.Context, c Command, name string, p Params) (*Record, error) {
	mistake := c.check(p)
	if mistake == nil {
		if err := c.validate(ctx, p); fault.IsInvalidContent(err) {
			r.ended(err)
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
	goroutine.Go(func() error {
		defer r.finished()
		defer close(e.done)
		r.work(e, c, name, p, mistake)
		return nil
	}, nil)
	return &record, nil
}

// work is the life of an asynchronous command. mistake is what is wrong with its parameters, which by the protocol
// only its record tells.
func (r *Registry) work(e *entry, c Command, name string, p Params, mistake error) {
	started := time.Now()
	var result any
	err := mistake
	if err != nil {
		err = fault.CommandExecution(errors.New("TypeError: " + fault.From(mistake).Details))
	} else {
		result, err = c.run(r.ctx, p)
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

// end makes the record of an asynchronous command final. It panics if the JSON encoder of the result does.
func (r *Registry) end(e *entry, c Command, result any, err error) Record {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.finish(&e.record, result, func(text string) any {
		return map[string]string{"result": c.Name + ": " + text}
	}, err)
	bound(r.entries)
	return e.record
}

// finish writes the outcome of a command into its record. Secrets are removed from the text of an error: Ironic stores it
// in the node's last_error, where more people read it than the agent's log.
func (r *Registry) finish(record *Record, result any, wrap func(string) any, err error) {
	record.finish(result, wrap, err)
	if record.Error != nil {
		redacted := *record.Error
		redacted.Message, redacted.Details = r.redact(redacted.Message), r.redact(redacted.Details)
		record.Error = &redacted
	}
}

func wrapSync(text string) any { return map[string]string{"result": text} }

func (r *Registry) report(name string, started time.Time, record Record, err error) {
	r.ended(err)
	log := r.log.With("command", name, "status", record.Status, "took", time.Since(started).Round(time.Millisecond))
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
	bound(r.entries)
	return e
}

// running names the command that runs, if one does: only the last one can.
func (r *Registry) running() (name string, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.entries) == 0 {
		return "", false
	}
	last := r.entries[len(r.entries)-1].record
	return last.Name, last.Status == Running
}

// List gives all records in the order the commands were started.
func (r *Registry) List() []Record {
	r.mu.Lock()
	defer r.mu.Unlock()
	records := make([]Record, len(r.entries))
	for i, e := range r.entries {
		records[i] = e.record
	}
	return records
}

// Get gives the record with the id.
func (r *Registry) Get(id string) (Record, bool) {
	if e := r.entry(id); e != nil {
		return r.read(e), true
	}
	return Record{}, false
}

// Wait gives the record with the id when its command has ended. An unknown id is a RequestedObjectNotFoundError; the
// end of ctx is its error.
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
