//go:build linux

package main

import "fmt"

// Environment of a test binary with mutants.
const (
	activeVariable = "MUTANT"         // number of the active one
	traceVariable  = "MUTANT_REACHED" // file to which the numbers of those are appended that are reached
)

// sandboxEnvironment is the file in the sandbox with the values of these variables, a line each. Processes that tests
// start with an environment of their own read it.
const sandboxEnvironment = "/tmp/mutant"

// switchboard returns the source of the file that is added to a package. Instrumented statements call its functions.
func switchboard(pkg string, mutants int) string {
	return fmt.Sprintf(`package %s

import (
	"os"
	"strconv"
	"strings"
	"sync/atomic"
)

var mutantReached [%d]atomic.Bool

func mutantVariable(name string) string {
	text, _ := os.ReadFile(%q)
	for line := range strings.Lines(string(text)) {
		if value, ok := strings.CutPrefix(line, name+"="); ok {
			return strings.TrimSpace(value)
		}
	}
	return os.Getenv(name)
}

var mutantActive = func() int {
	n, err := strconv.Atoi(mutantVariable(%q))
	if err != nil {
		return -1
	}
	return n
}()

var mutantTrace = func() *os.File {
	name := mutantVariable(%q)
	if name == "" {
		return nil
	}
	f, err := os.OpenFile(name, os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		panic(err)
	}
	return f
}()

func mutantIs(n int) bool {
	if mutantTrace != nil && !mutantReached[n].Swap(true) {
		if _, err := mutantTrace.WriteString(strconv.Itoa(n) + "\n"); err != nil {
			panic(err)
		}
	}
	return n == mutantActive
}

func mutantNegate[T ~bool](n int, v T) T {
	if mutantIs(n) {
		return !v
	}
	return v
}

func mutantNil(n int, err error) error {
	if mutantIs(n) {
		return nil
	}
	return err
}
`, pkg, max(mutants, 1), sandboxEnvironment, activeVariable, traceVariable)
}
