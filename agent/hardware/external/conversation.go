package external

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strings"
	"time"

	"ironroot/agent/hardware"
	"ironroot/agent/journal"
	"ironroot/agent/status"
	"ironroot/internal/confine"
	"ironroot/internal/goroutine"
)

// limits are the limits of a request. Tests shorten them.
type limits struct {
	describeTimeout  time.Duration // of describe and evaluate
	cancelTimeout    time.Duration // from the request to cancel until the executable is killed
	exitTimeout      time.Duration // from the result, and from the signal that kills it, until the executable ends
	outputTimeout    time.Duration // from its end until its output ends, which a process it left behind keeps open
	maxMessageBytes  int           // of one message
	maxOutputBytes   int64         // of all messages
	progressInterval time.Duration // between two progress messages that are shown and logged
}

var defaultLimits = limits{
	describeTimeout: 10 * time.Second, cancelTimeout: 30 * time.Second, exitTimeout: 10 * time.Second,
	outputTimeout: 10 * time.Second, maxMessageBytes: 1 << 20, maxOutputBytes: 64 << 20,
	progressInterval: time.Second,
}

const (
	// maxErrorText and maxProgressText limit the text of a message in an error and in the log, in bytes.
	maxErrorText    = 4 << 10
	maxProgressText = 512
)

// errProtocol is wrapped by errors that the executable's violations of the protocol cause.
var errProtocol = errors.New("protocol error")

func protocolError(format string, args ...any) error {
	return fmt.Errorf("%w: %w", errProtocol, fmt.Errorf(format, args...))
}

// errNotDone is wrapped by the errors of time limits.
var errNotDone = errors.New("not done")

// conversation is one run of the executable.
type conversation struct {
	limits
	log     *slog.Logger
	request request
	timeout time.Duration
	// abortable permits to cancel and to kill the executable. Otherwise it runs to its end, whatever it does.
	abortable bool
	tracker   status.Tracker // nil for none

	process   *process
	input     chan []byte // lines for the standard input
	result    json.RawMessage
	failure   error            // the first
	latest    message          // of progress
	reported  time.Time        // time of the last report of progress
	reportDue <-chan time.Time // time to report the latest progress, nil if it was reported
	expired   <-chan time.Time // end of the current time limit, nil for none
	limited   limited          // by the current time limit
	abandoned bool             // killed, but still running
}

// run runs the executable to its end and returns the result.
func (c *conversation) run(ctx context.Context, start starter) (json.RawMessage, error) {
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	text, err := json.Marshal(c.request)
	if err != nil {
		return nil, err
	}
	if c.process, err = start.start(); err != nil {
		return nil, err
	}
	defer c.process.out.Close()    //nolint:errcheck // only read
	defer c.process.errors.Close() //nolint:errcheck // only read
	c.input = make(chan []byte, 2) // the request and cancel
	c.input <- append(text, '\n')
	defer close(c.input)
	from := c.connect()
	c.limit(c.timeout, wholeRequest)
	exit := c.handleAll(ctx, from)
	return c.outcome(exit, <-from.errorOutput)
}

// streams are the outputs of the executable.
type streams struct {
	messages    <-chan any // messages, and at most one error; closed at the end of the standard output
	errorOutput <-chan []byte
	exit        <-chan error // nil for exit status 0
}

// connect starts to write to the executable and to read from it.
func (c *conversation) connect() streams {
	goroutine.Go(func() error { return c.write(c.input) }, nil) // a failure shows in the reply
	messages := make(chan any)
	goroutine.Go(func() error {
		c.read(messages)
		return nil
	}, func(error) { close(messages) })
	tail := make(chan []byte, 1)
	goroutine.Go(func() error {
		tail <- confine.Tail(c.process.errors)
		return nil
	}, func(error) { close(tail) })
	exit := make(chan error, 1)
	goroutine.Go(c.process.Wait, func(err error) { exit <- err })
	return streams{messages, tail, exit}
}

// handleAll handles messages, time limits and the end of ctx until the executable has ended, or was abandoned, and its
// output has been read. It returns the error of an exit status other than 0.
func (c *conversation) handleAll(ctx context.Context, from streams) (exit error) {
	cancelled := ctx.Done()
	for running := true; running || from.messages != nil; {
		select {
		case m, ok := <-from.messages:
			if !ok {
				from.messages = nil
				continue
			}
			c.handle(m)
		case exit = <-from.exit:
			running, from.exit, c.expired = false, nil, nil
			c.process.expire(c.outputTimeout)
		case <-c.expired:
			c.expired = nil
			if c.expire(); c.abandoned {
				running, from.exit = false, nil
				c.process.expire(0)
			}
		case <-c.reportDue:
			c.report()
		case <-cancelled:
			cancelled = nil
			c.stop(context.Cause(ctx))
		}
	}
	return exit
}

// write writes the lines from input to the standard input and closes it.
func (c *conversation) write(input <-chan []byte) error {
	defer c.process.in.Close() //nolint:errcheck // nothing is buffered
	for line := range input {
		if _, err := c.process.in.Write(line); err != nil {
			return nil // it has ended or closed its input
		}
	}
	return nil
}

// limited is the subject of a time limit.
type limited int

const (
	wholeRequest   limited = iota // from its start to the result
	endOfProcess                  // from the request to cancel, or from an error, to the end of the executable
	endAfterResult                // from the result to the end of the executable
	endAfterKill                  // from the signal to the end of the executable
)

// limit sets the time limit, which replaces the last one.
func (c *conversation) limit(d time.Duration, of limited) {
	c.expired, c.limited = time.After(d), of
}

// expire acts on the end of the time limit.
func (c *conversation) expire() {
	switch c.limited {
	case wholeRequest:
		c.stop(fmt.Errorf("%w within %v", errNotDone, c.timeout))
	case endOfProcess:
		c.kill()
	case endAfterResult:
		c.fail(protocolError("still running %v after its result", c.exitTimeout))
		c.kill()
	case endAfterKill:
		c.abandoned = true
		c.failure = fmt.Errorf("%w; %w after %v", c.failure, confine.ErrStillRunning, c.exitTimeout)
	}
}

// fail records the first failure.
func (c *conversation) fail(err error) {
	if c.failure == nil {
		c.failure = err
	}
}

// stop asks the executable to cancel a step, and kills it if it does not end. Other requests are killed at once. If it
// must not be aborted, stop only logs.
func (c *conversation) stop(cause error) {
	if !c.abortable {
		c.log.Warn("step of hardware manager cannot be aborted, waiting for its end", "err", cause)
		return
	}
	c.fail(cause)
	if c.request.Method != methodRun {
		c.kill()
		return
	}
	text, err := json.Marshal(request{Method: methodCancel, Protocol: protocols[0]})
	if err != nil {
		panic(err) // the value is constant
	}
	select {
	case c.input <- append(text, '\n'):
	default: // it does not read its input
	}
	c.limit(c.cancelTimeout, endOfProcess)
}

// kill ends the executable and all its processes, unless it must not be aborted. The kernel does not end a process that
// waits for a device that does not respond. It is abandoned then: the agent must not wait for it, too.
func (c *conversation) kill() {
	if !c.abortable {
		c.log.Warn("hardware manager does not end and cannot be aborted, waiting for its end")
		return
	}
	if c.process.Kill() != nil {
		return // it has ended
	}
	c.limit(c.exitTimeout, endAfterKill)
}

// handle handles a message, or an error of the reader.
func (c *conversation) handle(m any) {
	switch m := m.(type) {
	case error:
		c.fail(m)
		c.kill()
	case message:
		switch {
		case m.Type == "progress" && c.result == nil:
			c.latest = m
			if wait := c.progressInterval - time.Since(c.reported); wait <= 0 {
				c.report()
			} else if c.reportDue == nil {
				c.reportDue = time.After(wait)
			}
		case m.Type == "result" && c.result == nil && len(m.Result) > 0:
			c.result = m.Result
			c.limit(c.exitTimeout, endAfterResult)
		case m.Type == "error" && c.result == nil && m.Message != "":
			c.result = json.RawMessage("null")
			c.fail(stepError{journal.Clipped{Text: m.Message, Limit: maxErrorText}.String(), m.Incompatible})
			c.limit(c.exitTimeout, endOfProcess)
		default:
			c.fail(protocolError("unexpected message %.200q", m.text()))
			c.kill()
		}
	}
}

// report passes the latest progress to the tracker and logs it.
func (c *conversation) report() {
	c.reported, c.reportDue = time.Now(), nil
	m := c.latest
	if c.tracker != nil {
		c.tracker.SetPercent(m.Message, m.Percent)
	}
	attributes := []any{"message", journal.Clipped{Text: m.Message, Limit: maxProgressText}}
	if m.Percent != nil {
		attributes = append(attributes, "percent", *m.Percent)
	}
	c.log.Info("progress of hardware manager", attributes...)
}

// stepError is an error that the executable reports.
type stepError struct {
	text         string
	incompatible bool
}

func (e stepError) Error() string { return e.text }

// Is makes an incompatible step pass to the next manager.
func (e stepError) Is(target error) bool { return e.incompatible && target == hardware.ErrIncompatible }

func (m message) text() string {
	text, err := json.Marshal(m)
	if err != nil {
		return err.Error()
	}
	return string(text)
}

// outcome returns the result or the first failure, with the end of the standard error. exit is the error of an exit
// status other than 0.
func (c *conversation) outcome(exit error, output []byte) (json.RawMessage, error) {
	switch {
	case c.failure != nil:
	case exit != nil:
		c.failure = fmt.Errorf("executable failed: %w", exit)
	case c.result == nil:
		c.failure = protocolError("ended without a result")
	}
	text := strings.TrimSpace(string(output))
	if text != "" {
		c.log.Info("error output of hardware manager", "output", text)
	}
	if c.failure != nil && text != "" {
		return nil, fmt.Errorf("%w: %s", c.failure, text)
	}
	return c.result, c.failure
}

// read sends the messages and, at most once, an error to the channel. It reads to the end in any case: an executable
// that must not be aborted must not wait for its reader either.
func (c *conversation) read(messages chan<- any) {
	in := bufio.NewReaderSize(c.process.out, 64<<10)
	var total int64
	for {
		line, err := readLine(in, c.maxMessageBytes)
		total += int64(len(line))
		var m message
		switch {
		case errors.Is(err, io.EOF), errors.Is(err, os.ErrDeadlineExceeded):
			if len(bytes.TrimSpace(line)) > 0 {
				messages <- protocolError("last line not terminated: %.200q", line)
			}
			return
		case err != nil:
			messages <- err
		case total > c.maxOutputBytes:
			messages <- protocolError("more than %d bytes of messages", c.maxOutputBytes)
		case len(bytes.TrimSpace(line)) == 0:
			continue
		default:
			if err := json.Unmarshal(line, &m); err != nil {
				messages <- protocolError("%w in line %.200q", err, line)
				break
			}
			messages <- m
			continue
		}
		_, _ = io.Copy(io.Discard, in) // until it ends
		return
	}
}

// readLine returns the next line, without its end.
func readLine(in *bufio.Reader, limit int) ([]byte, error) {
	var line []byte
	for {
		part, err := in.ReadSlice('\n')
		line = append(line, part...)
		switch {
		case len(line) > limit:
			return nil, protocolError("message longer than %d bytes", limit)
		case err == nil:
			return line[:len(line)-1], nil
		case !errors.Is(err, bufio.ErrBufferFull):
			return line, err
		}
	}
}
