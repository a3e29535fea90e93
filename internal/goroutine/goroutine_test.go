package goroutine

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
)

// captureLog returns what is logged to slog.Default until the test ends.
func captureLog(t *testing.T) *bytes.Buffer {
	t.Helper()
	var text bytes.Buffer
	before := slog.Default()
	slog.SetDefault(slog.New(slog.NewTextHandler(&text, nil)))
	t.Cleanup(func() { slog.SetDefault(before) })
	return &text
}

func explode() error { panic("oops") }

// isPanic checks that err is the panic of explode.
func isPanic(t *testing.T, err error) {
	t.Helper()
	var caught *PanicError
	if !errors.As(err, &caught) || caught.Value != "oops" || !strings.Contains(string(caught.Stack), "goroutine.explode") {
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
	Go(func() error { return Catch(func() error { Do(func() { _ = explode() }); return nil }) }, func(err error) { done <- err })
	isPanic(t, <-done)
	if got := text.String(); strings.Count(got, "panic contained") != 1 || !strings.Contains(got, "oops") || !strings.Contains(got, "goroutine.explode") {
		t.Errorf("got log %q, want one line with value and stack", got)
	}
}

func TestGroup(t *testing.T) {
	captureLog(t)
	group, ctx := WithContext(context.Background())
	group.Go(func() error { <-ctx.Done(); return nil }) // ended by the panic of the other
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
	Do( // one after the other they would wait forever
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
