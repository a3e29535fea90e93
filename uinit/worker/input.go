//go:build linux

package worker

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"

	"ironroot/internal/bounded"
)

// maxInput limits the input of a worker in bytes.
const maxInput = 2 << 20

// Input is the input of a worker, which is JSON. Check returns an error if it is not valid.
type Input interface{ Check() error }

// ReadInput decodes and checks the input of this worker, and closes it.
func ReadInput(into Input) error {
	return errors.Join(DecodeInput(os.Stdin, into), os.Stdin.Close())
}

// DecodeInput decodes and checks an input. Errors of the decoder contain no part of it.
func DecodeInput(r io.Reader, into Input) error {
	text, err := bounded.ReadAll(r, maxInput)
	if err != nil {
		return fmt.Errorf("read input: %w", err)
	}
	if err := json.Unmarshal(text, into); err != nil {
		return errors.New("read input: invalid JSON") // err can contain secrets
	}
	return into.Check()
}

// Exit ends a process that was started for one piece of work, whose error it writes to standard error.
func Exit(err error) {
	if err != nil {
		_, _ = fmt.Fprintf(os.Stderr, "%s: %v\n", os.Args[0], err)
		os.Exit(exitFailed)
	}
	os.Exit(0)
}
