// Package parallel runs functions side by side as if the caller had run them: they have ended when it goes on, and a
// panic of one is the caller's.
package parallel

import (
	"fmt"
	"runtime/debug"
	"sync"
)

// Do runs the functions at the same time and returns when all have ended. Where some panic, so does it, with the first
// one's value and stack.
func Do(functions ...func()) {
	var running sync.WaitGroup
	panics := make(chan string, len(functions))
	for _, f := range functions {
		running.Go(func() {
			defer func() {
				if value := recover(); value != nil {
					panics <- fmt.Sprintf("%v\n%s", value, debug.Stack())
				}
			}()
			f()
		})
	}
	running.Wait()
	select {
	case text := <-panics:
		panic(text)
	default:
	}
}
