package parallel

import (
	"strings"
	"sync/atomic"
	"testing"
)

func TestDo(t *testing.T) {
	left, right := make(chan bool), make(chan bool)
	var ended atomic.Int32
	Do( // one after the other they would wait for ever
		func() { left <- <-right; ended.Add(1) },
		func() { right <- true; <-left; ended.Add(1) },
	)
	if ended.Load() != 2 {
		t.Errorf("%d functions ended, want 2", ended.Load())
	}
	Do()
}

func TestPanic(t *testing.T) {
	ended := false
	defer func() {
		text, _ := recover().(string)
		if !strings.HasPrefix(text, "oops\n") || !strings.Contains(text, "parallel_test.go") {
			t.Errorf("got panic %q, want the function's with its stack", text)
		}
		if !ended {
			t.Error("the other function was not waited for")
		}
	}()
	Do(func() { panic("oops") }, func() { ended = true })
}
