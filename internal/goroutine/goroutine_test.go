package goroutine

import (
	"bytes"
	"context"
	"errors"
	"io"
	"io/fs"
	"log/slog"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// captureLog returns what is logged to slog.Default until the test ends.
func captureLog(t *testing.T) *bytes.Buffer {
	t.Helper()
	clear(seen.count)
	var text bytes.Buffer
	before := slog.Default()
	slog.SetDefault(slog.New(slog.NewTextHandler(&text, nil)))
	t.Cleanup(func() { slog.SetDefault(before) })
	return &text
}

//go:noinline
func explode() error { panic("oops") }

// isPanic checks that err is the panic of explode.
func isPanic(t *testing.T, err error) {
	t.Helper()
	var caught *PanicError
	if !errors.As(err, &caught) || caught.Value != "oops" ||
		!strings.Contains(string(caught.Stack), "goroutine.explode") {
		t.Errorf("got error %v, want the panic with its stack", err)
	}
}

func TestGo(t *testing.T) {
	refused := errors.New("refused")
	for _, test := range []struct {
		name string
		f    func() error
		want error
	}{
		{"success", func() error { return nil }, nil},
		{"error", func() error { return refused }, refused},
		{"panic with an error", func() error { panic(fs.ErrInvalid) }, fs.ErrInvalid},
		{"nil dereference", func() error { var p *int; *p = 1; return nil }, nil},
		{"exit", func() error { runtime.Goexit(); return nil }, errExited},
	} {
		t.Run(test.name, func(t *testing.T) {
			captureLog(t)
			done := make(chan error, 1)
			Go(test.f, func(err error) { done <- err })
			err := <-done
			if test.name == "nil dereference" {
				var caught *PanicError
				if !errors.As(err, &caught) {
					t.Errorf("got error %v, want a *PanicError", err)
				}
			} else if !errors.Is(err, test.want) || (err == nil) != (test.want == nil) {
				t.Errorf("got error %v, want %v", err, test.want)
			}
		})
	}
}

func TestGoLogsPanicOnce(t *testing.T) {
	text := captureLog(t)
	done := make(chan error, 1)
	Go(func() error { return Catch(func() error { Do(func() { _ = explode() }); return nil }) },
		func(err error) { done <- err })
	isPanic(t, <-done)
	if got := text.String(); strings.Count(got, "panic contained") != 1 || !strings.Contains(got, "oops") ||
		!strings.Contains(got, "goroutine.explode") {
		t.Errorf("got log %q, want one line with value and stack", got)
	}
}

func TestGroup(t *testing.T) {
	captureLog(t)
	group, ctx := WithContext(context.Background())
	group.Go(func() error { <-ctx.Done(); return nil }) // ended by the panic of the other function
	group.Go(explode)
	isPanic(t, group.Wait())

	group = NewGroup()
	group.SetLimit(1)
	var running atomic.Int32
	for range 4 {
		group.Go(func() error {
			defer running.Add(-1)
			if n := running.Add(1); n != 1 {
				t.Errorf("%d functions run at a time, want 1", n)
			}
			return nil
		})
	}
	if err := group.Wait(); err != nil {
		t.Errorf("got error %v, want none", err)
	}
}

func TestDo(t *testing.T) {
	left, right := make(chan bool), make(chan bool)
	var ended atomic.Int32
	Do( // sequential calls would wait forever
		func() { left <- <-right; ended.Add(1) },
		func() { right <- true; <-left; ended.Add(1) },
	)
	if ended.Load() != 2 {
		t.Errorf("%d functions ended, want 2", ended.Load())
	}
	Do()
}

func TestDoPanics(t *testing.T) {
	captureLog(t)
	ended := false
	defer func() {
		err, _ := recover().(error)
		isPanic(t, err)
		if !ended {
			t.Error("the other function was not waited for")
		}
	}()
	Do(func() { _ = explode() }, func() { ended = true })
}

func TestPersist(t *testing.T) {
	captureLog(t)
	calls := 0
	Persist(context.Background(), time.Millisecond, func() {
		if calls++; calls < 3 {
			panic("oops")
		}
	})
	if calls != 3 {
		t.Errorf("got %d calls, want 3: two panics and a return", calls)
	}
	ctx, cancel := context.WithCancel(context.Background())
	calls = 0
	Persist(ctx, time.Hour, func() {
		calls++
		cancel()
		panic("oops")
	})
	if calls != 1 {
		t.Errorf("got %d calls, want 1: the context has ended", calls)
	}
}

// signalHandler is a handler that sends each record.
type signalHandler struct {
	slog.Handler
	records chan slog.Record
}

func (h signalHandler) Handle(_ context.Context, r slog.Record) error {
	h.records <- r
	return nil
}

func TestAfterFunctions(t *testing.T) {
	captureLog(t)
	records := make(chan slog.Record)
	slog.SetDefault(slog.New(signalHandler{slog.NewTextHandler(io.Discard, nil), records}))
	oops := func() { _ = explode() }
	AfterTime(0, oops)
	ctx, cancel := context.WithCancel(context.Background())
	stop := AfterContext(ctx, oops)
	if r := <-records; r.Message != "panic contained" {
		t.Errorf("got log %q, want the panic of AfterTime", r.Message)
	}
	cancel()
	if r := <-records; r.Message != "panic contained" {
		t.Errorf("got log %q, want the panic of AfterContext", r.Message)
	}
	if stop() {
		t.Error("a function that was called could be stopped")
	}
	if stop := AfterContext(context.Background(), oops); !stop() {
		t.Error("a function that was not called could not be stopped")
	}
}

// A peer that repeats malformed messages does not fill the log.
func TestLogIsBounded(t *testing.T) {
	text := captureLog(t)
	for range 1000 {
		_ = Catch(explode)
	}
	if lines := strings.Count(text.String(), "panic contained"); lines != 10 {
		t.Errorf("got %d lines for 1000 panics, want 10", lines)
	}
	if err := Catch(func() error { return explode() }); err == nil {
		t.Error("got no error")
	}
	if lines := strings.Count(text.String(), "panic contained"); lines != 11 {
		t.Errorf("got %d lines after a panic from elsewhere, want 11", lines)
	}
}
