package command

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"

	"ironroot/agent/fault"
	"ironroot/internal/test/testenv"
)

func set(commands ...Command) []Extension { return []Extension{{Name: "x", Commands: commands}} }

// observer calls the functions that are not nil.
type observer struct {
	started  func(name string, p Params)
	ended    func(err error)
	finished func()
}

func (o observer) Started(name string, p Params) {
	if o.started != nil {
		o.started(name, p)
	}
}

func (o observer) Ended(err error) {
	if o.ended != nil {
		o.ended(err)
	}
}

func (o observer) Finished() {
	if o.finished != nil {
		o.finished()
	}
}

// An asynchronous command continues after its request, ends with Close, and the hook runs after its record is final.
func TestAsyncCommand(t *testing.T) {
	finished := make(chan []Record, 1)
	var r *Registry
	r = NewRegistry(set(Command{Name: "wait", Async: true, Run: func(ctx context.Context, _ Params) (any, error) {
		<-ctx.Done()
		return nil, ctx.Err()
	}}), Options{Observer: observer{finished: func() { finished <- r.List() }}})
	request, cancel := context.WithCancel(context.Background())
	record, err := r.Execute(request, "x.wait", nil)
	if err != nil {
		t.Fatal(err)
	}
	cancel()
	if _, err := r.Wait(request, record.ID); !errors.Is(err, context.Canceled) {
		t.Errorf("Wait after the end of its request: got %v, want %v", err, context.Canceled)
	}
	if got, _ := r.Get(record.ID); got.Status != Running {
		t.Fatalf("after the end of the request: got %s, want RUNNING", got.Status)
	}
	r.Close()
	if got := <-finished; len(got) != 1 || got[0].Status != Failed {
		t.Errorf("records when the hook runs: got %v, want one that FAILED", got)
	}
}

// Concurrently requested commands run one at a time.
func TestOneAtATime(t *testing.T) {
	inside := 0
	r := NewRegistry(set(Command{Name: "count", Run: func(context.Context, Params) (any, error) {
		inside++ // the race detector checks this, too
		defer func() { inside-- }()
		if inside != 1 {
			return nil, errors.New("not alone: " + strconv.Itoa(inside))
		}
		return nil, nil
	}}), Options{})
	defer r.Close()
	done := make(chan *Record)
	for range 20 {
		go func() {
			record, err := r.Execute(context.Background(), "x.count", nil)
			if err != nil {
				t.Error(err)
			}
			done <- record
		}()
	}
	for range 20 {
		if got := <-done; got.Status != Succeeded {
			t.Errorf("got %s %v, want SUCCEEDED", got.Status, got.Error)
		}
	}
}

// The wait for the start of a command ends with its context.
func TestWaitForStartHonoursContext(t *testing.T) {
	entered, leave := make(chan struct{}), make(chan struct{})
	r := NewRegistry(set(Command{Name: "hold", Run: func(context.Context, Params) (any, error) {
		close(entered)
		<-leave
		return nil, nil
	}}), Options{})
	defer r.Close()
	held := make(chan error)
	go func() {
		_, err := r.Execute(context.Background(), "x.hold", nil)
		held <- err
	}()
	<-entered
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := r.Execute(ctx, "x.hold", nil); !errors.Is(err, context.Canceled) {
		t.Errorf("second command: got %v, want %v", err, context.Canceled)
	}
	close(leave)
	if err := <-held; err != nil {
		t.Error(err)
	}
}

func TestDecode(t *testing.T) {
	p := Params{"n": json.RawMessage("7"), "null": json.RawMessage(" null "), "text": json.RawMessage(`"x"`)}
	n := 1
	for _, name := range []string{"absent", "null"} {
		if err := p.Decode(name, &n); err != nil || n != 1 {
			t.Errorf("%s: got %d, %v, want the value unchanged", name, n, err)
		}
	}
	if err := p.Decode("n", &n); err != nil || n != 7 {
		t.Errorf("n: got %d, %v, want 7", n, err)
	}
	if err := p.Decode("text", &n); !fault.IsInvalidContent(err) {
		t.Errorf("text into a number: got %v, want an InvalidCommandParamsError", err)
	}
}

// A destructive command runs only if that is allowed.
func TestAllowDestructive(t *testing.T) {
	erase := Command{
		Name: "erase", Destructive: true, Run: func(context.Context, Params) (any, error) { return nil, nil },
	}
	for _, allowed := range []bool{false, true} {
		r := NewRegistry(set(erase), Options{AllowDestructive: allowed})
		record, err := r.Execute(context.Background(), "x.erase", nil)
		if (err == nil) != allowed || (record != nil) != allowed {
			t.Errorf("allowed %v: got %v, %v", allowed, record, err)
		}
		r.Close()
	}
}

// broken panics when it is encoded.
type broken struct{}

func (broken) MarshalJSON() ([]byte, error) { panic("oops") }

// A command that panics, or whose result panics, fails: its waiters return, and the next command can run.
func TestPanics(t *testing.T) {
	testenv.ExpectPanics(t)
	r := NewRegistry(set(
		Command{Name: "run", Async: true, Run: func(context.Context, Params) (any, error) { panic("oops") }},
		Command{Name: "result", Async: true, Run: func(context.Context, Params) (any, error) { return broken{}, nil }},
	), Options{})
	defer r.Close()
	for _, name := range []string{"x.run", "x.result"} {
		record, err := r.Execute(t.Context(), name, nil)
		if err != nil {
			t.Fatal(err)
		}
		got, err := r.Wait(t.Context(), record.ID)
		if err != nil || got.Status != Failed || got.Error == nil {
			t.Errorf("%s: got %s, %v, %v, want FAILED", name, got.Status, got.Error, err)
		}
	}
}

// masked masks a password.
type masked struct{}

func (masked) Clean(text string) string { return strings.ReplaceAll(text, "hunter2", "***") }

// Stored errors are redacted.
func TestErrorsAreRedacted(t *testing.T) {
	fail := func(context.Context, Params) (any, error) {
		return nil, errors.New("get http://user:hunter2@host: refused")
	}
	invalid := func(context.Context, Params) error { return errors.New("no route for hunter2") }
	r := NewRegistry(set(
		Command{Name: "sync", Run: fail},
		Command{Name: "async", Async: true, Run: fail},
		Command{Name: "checked", Async: true, Run: fail, Validate: invalid},
		Command{Name: "panics", Async: true, Run: func(context.Context, Params) (any, error) { panic("hunter2") }},
	), Options{Redactor: masked{}})
	defer r.Close()
	for _, name := range []string{"x.sync", "x.async", "x.checked", "x.panics"} {
		record, err := r.Execute(t.Context(), name, nil)
		if err != nil {
			t.Fatal(err)
		}
		stored, err := r.Wait(t.Context(), record.ID)
		if err != nil {
			t.Fatal(err)
		}
		for _, got := range []Record{stored, *record} {
			text := fmt.Sprint(got.Error)
			if got.Status == Failed && (!strings.Contains(text, "***") || strings.Contains(text, "hunter2")) {
				t.Errorf("%s: got %s, want the password as ***", name, text)
			}
		}
		if stored.Status != Failed {
			t.Errorf("%s: got %s, want %s", name, stored.Status, Failed)
		}
	}
}

// Reset cancels the running command, also a synchronous one, returns after its end, and empties the list. A later
// command runs.
func TestReset(t *testing.T) {
	for _, async := range []bool{true, false} {
		t.Run(fmt.Sprintf("async %t", async), func(t *testing.T) {
			entered, ended := make(chan struct{}), false
			r := NewRegistry(set(
				Command{Name: "write", Async: async, Run: func(ctx context.Context, _ Params) (any, error) {
					close(entered)
					<-ctx.Done()
					ended = true // the race detector checks that this happens before the end of Reset
					return nil, ctx.Err()
				}},
				Command{Name: "next", Run: func(ctx context.Context, _ Params) (any, error) { return nil, ctx.Err() }},
			), Options{})
			defer r.Close()
			answered := make(chan error, 1)
			go func() {
				_, err := r.Execute(context.Background(), "x.write", nil)
				answered <- err
			}()
			<-entered
			if err := r.Reset(t.Context()); err != nil {
				t.Fatal(err)
			}
			if !ended {
				t.Error("Reset returned before the end of the command")
			}
			if got := r.List(); len(got) != 0 {
				t.Errorf("after Reset: got %v, want no records", got)
			}
			if err := <-answered; err != nil {
				t.Error(err)
			}
			if record, err := r.Execute(t.Context(), "x.next", nil); err != nil || record.Status != Succeeded {
				t.Errorf("next command: got %+v and %v, want SUCCEEDED", record, err)
			}
			if got := r.List(); len(got) != 1 || got[0].Name != "next" {
				t.Errorf("records: got %v, want those since Reset", got)
			}
		})
	}
}

// A command that waits for its start belongs to the session that Reset ends: it never runs.
func TestResetRejectsWaiting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ran := false
		r := NewRegistry(set(
			Command{Name: "write", Run: func(ctx context.Context, _ Params) (any, error) {
				<-ctx.Done()
				return nil, ctx.Err()
			}},
			Command{Name: "next", Run: func(context.Context, Params) (any, error) {
				ran = true
				return nil, nil
			}},
		), Options{})
		defer r.Close()
		answers := make(chan error, 2)
		for _, name := range []string{"x.write", "x.next"} {
			go func() {
				_, err := r.Execute(context.Background(), name, nil)
				answers <- err
			}()
			synctest.Wait() // the first one runs, the second one waits
		}
		if err := r.Reset(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(<-answers, <-answers); !errors.Is(err, errReset) || ran {
			t.Errorf("got %v, and the waiting command ran: %v, want %v", err, ran, errReset)
		}
		if got := r.List(); len(got) != 0 {
			t.Errorf("after Reset: got %v, want no records", got)
		}
		if _, err := r.Execute(t.Context(), "x.next", nil); err != nil || !ran {
			t.Errorf("next session: got %v, ran %v", err, ran)
		}
	})
}

// A client that waits for a command learns why Reset has cancelled it.
func TestResetCause(t *testing.T) {
	entered := make(chan struct{})
	ended := make(chan error, 1)
	r := NewRegistry(set(Command{Name: "write", Async: true, Run: func(ctx context.Context, _ Params) (any, error) {
		close(entered)
		<-ctx.Done()
		return nil, fmt.Errorf("write: %w", ctx.Err())
	}}), Options{Observer: observer{ended: func(err error) { ended <- err }}})
	defer r.Close()
	if _, err := r.Execute(t.Context(), "x.write", nil); err != nil {
		t.Fatal(err)
	}
	<-entered
	if err := r.Reset(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := <-ended; !errors.Is(err, errReset) || !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want %v", err, errReset)
	}
}

// A command that ignores its cancellation stays in the list: Reset fails with its context, and the next command is
// refused as busy.
func TestResetHonoursContext(t *testing.T) {
	leave := make(chan struct{})
	r := NewRegistry(set(Command{Name: "hold", Async: true, Run: func(context.Context, Params) (any, error) {
		<-leave
		return nil, nil
	}}), Options{})
	defer r.Close()
	record, err := r.Execute(t.Context(), "x.hold", nil)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := r.Reset(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("Reset: got %v, want %v", err, context.Canceled)
	}
	if _, err := r.Execute(t.Context(), "x.hold", nil); err == nil || !strings.Contains(err.Error(), "busy") {
		t.Errorf("second command: got %v, want busy", err)
	}
	close(leave)
	if got, err := r.Wait(t.Context(), record.ID); err != nil || got.Status != Succeeded {
		t.Errorf("got %+v and %v, want SUCCEEDED", got, err)
	}
}

// lastRig is a registry whose commands handover and lockdown are marked Last. handover waits for a result.
func lastRig(t *testing.T) (r *Registry, result chan<- error, ran *[]string) {
	t.Helper()
	results := make(chan error)
	ran = &[]string{}
	note := func(name string, last bool) Command {
		return Command{Name: name, Last: last, Run: func(context.Context, Params) (any, error) {
			*ran = append(*ran, name)
			return nil, nil
		}}
	}
	lockdown, plain := note("lockdown", true), note("plain", false)
	r = NewRegistry(set(lockdown, plain,
		Command{Name: "handover", Last: true, Run: func(context.Context, Params) (any, error) {
			return nil, <-results
		}},
		Command{Name: "both", Async: true, Run: func(ctx context.Context, _ Params) (any, error) {
			for _, c := range []Command{plain, lockdown, plain} {
				if _, err := c.Call(ctx, nil); err != nil {
					return nil, err
				}
			}
			return nil, nil
		}},
	), Options{})
	t.Cleanup(r.Close)
	return r, results, ran
}

// wantRefused executes commands that must be refused without a record, as invalid rather than busy.
func wantRefused(t *testing.T, r *Registry, after string, names ...string) {
	t.Helper()
	records := len(r.List())
	for _, name := range names {
		_, err := r.Execute(t.Context(), name, nil)
		if want := name + " refused after " + after; !fault.IsInvalidContent(err) || fault.From(err).Details != want {
			t.Errorf("%s: got %v, want an InvalidCommandError: %s", name, err, want)
		}
	}
	if got := len(r.List()); got != records {
		t.Errorf("got %d records, want %d", got, records)
	}
}

// Once a command marked Last has succeeded, no other one runs, also if it has waited for its turn, or Ironic starts
// another session. If it fails, those that wait run.
func TestLastCommand(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, result, ran := lastRig(t)
		execute := func(name string) <-chan error {
			answer := make(chan error, 1)
			go func() {
				_, err := r.Execute(t.Context(), name, nil)
				answer <- err
			}()
			synctest.Wait() // the first one runs, the others wait
			return answer
		}
		first, waiting := execute("x.handover"), execute("x.plain")
		result <- errors.New("not possible")
		if err := errors.Join(<-first, <-waiting); err != nil || len(*ran) != 1 {
			t.Errorf("after a failure: got %v, and %v ran, want the waiting command", err, *ran)
		}
		first = execute("x.handover")
		waits := []<-chan error{execute("x.lockdown"), execute("x.plain"), execute("x.both")}
		result <- nil
		if err := <-first; err != nil {
			t.Error(err)
		}
		for _, answer := range waits {
			err := <-answer
			if !fault.IsInvalidContent(err) || !strings.Contains(err.Error(), "refused after handover") {
				t.Errorf("command that waited: got %v, want that it is refused after handover", err)
			}
		}
		wantRefused(t, r, "handover", "x.lockdown", "x.plain", "x.both")
		if err := r.Reset(t.Context()); err != nil {
			t.Fatal(err)
		}
		wantRefused(t, r, "handover", "x.lockdown", "x.plain")
		if len(*ran) != 1 {
			t.Errorf("got %v, want that nothing runs after the last command", *ran)
		}
	})
}

// Ironic repeats a command whose answer it did not get in time. Only the same command is answered as the first one was,
// and it does not run again.
//
// Parity: E10 (a repetition)
func TestRepeatedLastCommand(t *testing.T) {
	runs := 0
	r := NewRegistry(set(Command{
		Name: "handover", Last: true, Params: []Param{{Name: "password"}},
		Run: func(context.Context, Params) (any, error) {
			runs++
			return "done", nil
		},
	}), Options{})
	t.Cleanup(r.Close)
	params := func(password string) Params { return Params{"password": json.RawMessage(strconv.Quote(password))} }
	first, err := r.Execute(t.Context(), "x.handover", params("a"))
	if err != nil || first.Status != Succeeded {
		t.Fatalf("got %+v and %v, want SUCCEEDED", first, err)
	}
	again, err := r.Execute(t.Context(), "x.handover", params("a"))
	if diff := cmp.Diff(first, again); err != nil || diff != "" {
		t.Errorf("repeated: got %v, record differs (-first +again):\n%s", err, diff)
	}
	if _, err := r.Execute(t.Context(), "x.handover", params("b")); !fault.IsInvalidContent(err) {
		t.Errorf("with another password: got %v, want an InvalidCommandError", err)
	}
	if runs != 1 || len(r.List()) != 1 {
		t.Errorf("got %d runs and %d records, want 1 of each", runs, len(r.List()))
	}
}

// A command marked Last that another command calls is the last one, too, and the caller can call none after it.
func TestLastCommandIsCalled(t *testing.T) {
	r, _, ran := lastRig(t)
	record, err := r.Execute(t.Context(), "x.both", nil)
	if err != nil {
		t.Fatal(err)
	}
	got, err := r.Wait(t.Context(), record.ID)
	if err != nil || got.Status != Failed || !strings.Contains(got.Error.Error(), "plain refused after lockdown") {
		t.Errorf("got %s, %v and %v, want a failure at the command after lockdown", got.Status, got.Error, err)
	}
	if want := "plain lockdown"; strings.Join(*ran, " ") != want {
		t.Errorf("got %v, want %s", *ran, want)
	}
	wantRefused(t, r, "lockdown", "x.lockdown", "x.plain", "x.both")
}
