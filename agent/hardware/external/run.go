package external

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"ironroot/internal/confine"
	"ironroot/internal/goroutine"
)

// maxOutput limits the standard output of a program that is no manager, in bytes.
const maxOutput = 1 << 20

// run runs a program to its end and returns its standard output, without space at its ends. After the timeout, when ctx
// ends, or after more than maxOutput bytes, the program is killed. A program that does not end then is left behind.
func run(ctx context.Context, p program, timeout time.Duration) ([]byte, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, timeout, fmt.Errorf("%w within %v", errNotDone, timeout))
	defer cancel()
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	return runUntil(ctx, p, func(out io.Reader) ([]byte, error) { return readLimited(out, stop) })
}

// readLimited reads the output of a program. More than maxOutput bytes are an error, with which it calls stop. It
// returns the error, too, because the program may have ended before it is killed.
func readLimited(out io.Reader, stop context.CancelCauseFunc) ([]byte, error) {
	output, err := io.ReadAll(io.LimitReader(out, maxOutput+1))
	if len(output) > maxOutput {
		err = fmt.Errorf("output longer than %d bytes", maxOutput)
		stop(err)
	}
	return output, err
}

// runToEnd runs a program to its end, which nothing but the program itself determines: it is never killed. It returns
// the beginning of its standard output, at most maxOutput bytes; the rest is discarded.
func runToEnd(p program) ([]byte, error) {
	return runUntil(context.Background(), p, func(out io.Reader) ([]byte, error) {
		output, err := io.ReadAll(io.LimitReader(out, maxOutput))
		if err == nil {
			_, err = io.Copy(io.Discard, out)
		}
		return output, err
	})
}

// runUntil runs a program to its end, or kills it when ctx ends. read reads its standard output.
func runUntil(ctx context.Context, p program, read func(io.Reader) ([]byte, error)) ([]byte, error) {
	child, err := p.start()
	if err != nil {
		return nil, err
	}
	defer child.out.Close()    //nolint:errcheck // only read
	defer child.errors.Close() //nolint:errcheck // only read
	if child.in != nil {
		_ = child.in.Close() // nothing was written
	}
	var output, errorOutput []byte
	group := goroutine.NewGroup()
	group.Go(func() (err error) {
		output, err = read(child.out)
		return err
	})
	group.Go(func() error {
		errorOutput = confine.Tail(child.errors)
		return nil
	})
	err = confine.Await(ctx, defaultLimits.exitTimeout, child.Wait, child.Kill)
	if errors.Is(err, confine.ErrStillRunning) {
		child.expire(0)
	}
	readErr := group.Wait()
	output = bytes.TrimSpace(output)
	switch {
	case ctx.Err() != nil && err != nil:
		err = fmt.Errorf("%w: %w", context.Cause(ctx), err)
	case err == nil:
		err = readErr
	}
	if err != nil {
		text := cmp.Or(strings.TrimSpace(string(errorOutput)), string(output[max(0, len(output)-confine.MaxOutput):]))
		if text != "" {
			err = fmt.Errorf("%w: %s", err, text)
		}
	}
	return output, err
}
