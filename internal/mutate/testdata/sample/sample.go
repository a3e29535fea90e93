// Package sample has a statement of every kind that is mutated, and tests that kill some of the mutants.
package sample

import (
	"errors"
	"log/slog"
	"strings"
)

var upper = func(text string) string {
	text = strings.ToUpper(text)
	return text
}

type counter struct {
	n   int
	log *slog.Logger
}

func (c *counter) add(values []int, limit int) error {
	defer c.done()
	for _, v := range values {
		if v < 0 {
			continue
		}
		switch {
		case v > limit:
			return errors.New("too large")
		}
		c.n++
		c.n += v
	}
	_ = values
	c.log.Info("added")
	return nil
}

func (c *counter) done() { c.n-- }

func (c *counter) untested() bool {
	if c.n > 0 {
		panic("positive")
	}
	return c.n == 0
}

func receive(in chan int) int {
	total := 0
	for {
		v, ok := <-in
		if !ok {
			break
		}
		total += v
	}
	return total
}

func send(out chan<- int, values []int) {
	if len(values) == 0 {
		close(out)
		return
	}
	go func() {
		for _, v := range values {
			out <- v
		}
		close(out)
	}()
}

// exitStatus is called only in a process that a test starts.
func exitStatus(ok bool) int {
	if !ok {
		return 1
	}
	return 0
}
