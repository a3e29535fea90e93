package image

import (
	"context"
	"errors"
	"io"
	"sync/atomic"
	"time"
)

// body is what a server sends, read with a limit to the time between two reads.
type body struct {
	ctx     context.Context
	cancel  context.CancelCauseFunc
	stream  io.ReadCloser
	timer   *time.Timer
	stall   time.Duration
	url     string // for errors
	total   int64  // of the whole file, -1 unknown
	partial bool   // the server did answer with the range asked for
	// rate and redirected may be nil.
	rate       *rateMeter
	redirected *atomic.Bool
	// validator is what the server calls this state of the file, "" where it does not tell.
	validator string
}

// Read ends with io.EOF only where the server's answer is complete.
func (b *body) Read(p []byte) (int, error) {
	b.timer.Reset(b.stall)
	begin := time.Now()
	n, err := b.stream.Read(p)
	b.timer.Stop()
	if err == nil || err == io.EOF { //nolint:errorlint // io.EOF is compared unwrapped, as by io.ReadFull
		// A failed read does not count: stalls and broken connections have retries of their own.
		if slow := b.rate.add(n, time.Since(begin), b.url); slow != nil {
			return n, slow
		}
		return n, err
	}
	return n, b.fail(err)
}

// Close ends the request, whatever has not arrived yet.
func (b *body) Close() error {
	b.timer.Stop()
	b.cancel(nil)
	return b.stream.Close()
}

// fail turns an error of net/http into a DownloadError, and a cancelled context into its cause.
func (b *body) fail(err error) error {
	cause := context.Cause(b.ctx)
	if cause != nil && !errors.Is(cause, errStalled) {
		return cause
	}
	if cause != nil {
		err = errStalled
	}
	var redirect *redirectError
	fatal := errors.As(err, &redirect)
	if cause == nil {
		err = publicCause(err, b.redirected != nil && b.redirected.Load())
	}
	if errors.Is(err, io.ErrUnexpectedEOF) {
		err = errTruncated
	}
	return &DownloadError{URL: b.url, Err: err, Fatal: fatal}
}

var errTruncated = errors.New("the connection was closed before the whole file had arrived")
