package testenv

import (
	"io"
	"log"
	"log/slog"
	"sync"
	"testing"
)

// expected counts the tests that cause panics, and holds what the last of them restores.
var expected struct {
	sync.Mutex
	tests  int
	before *slog.Logger
	output io.Writer
	flags  int
}

// ExpectPanics discards records of contained panics, which go to [slog.Default], until the end of the test. The stacks
// of panics that a test causes would hide why it, or another one, has failed.
func ExpectPanics(t testing.TB) {
	t.Helper()
	expected.Lock()
	defer expected.Unlock()
	if expected.tests++; expected.tests == 1 {
		expected.before, expected.output, expected.flags = slog.Default(), log.Writer(), log.Flags()
		slog.SetDefault(slog.New(slog.DiscardHandler))
	}
	t.Cleanup(func() {
		expected.Lock()
		defer expected.Unlock()
		if expected.tests--; expected.tests == 0 {
			slog.SetDefault(expected.before)
			log.SetOutput(expected.output)
			log.SetFlags(expected.flags)
		}
	})
}
