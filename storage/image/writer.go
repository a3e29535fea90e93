package image

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"log/slog"
	"slices"
)

// writer writes an image, in as many attempts as it may take.
type writer struct {
	device    string
	src       Source
	options   Options
	fetch     *fetcher
	log       *slog.Logger
	progress  *Progress
	target    *target
	head      []byte // the image's first MiB, which is written last
	memory    []*chunk
	lastWrong string // the sum of the last whole transfer, if it was wrong
	examined  *examined
	spooled   int // bytes that a spool keeps in memory
}

// newWriter validates its arguments.
func newWriter(device string, src Source, o Options) (*writer, error) {
	if len(src.URLs) == 0 {
		return nil, &DownloadError{Err: errors.New("the image has no URL"), Fatal: true}
	}
	if o.PermittedFormats != nil && len(o.PermittedFormats) == 0 {
		return nil, security("", "no image format is permitted")
	}
	for _, raw := range src.URLs {
		if _, err := parseURL(raw); err != nil {
			return nil, err
		}
	}
	if _, err := src.Checksum.hash(); err != nil {
		return nil, fmt.Errorf("image %s: %w", redactURL(src.URLs[0]), err)
	}
	f := newFetcher(src.Fetch, o.Log, o.Progress)
	return &writer{device: device, src: src, options: o, fetch: f, log: f.log, progress: f.progress, spooled: spoolMemory}, nil
}

// write opens the device, and repeats the transfer until it succeeds or a repetition cannot help.
func (w *writer) write(ctx context.Context) (report Report, err error) {
	w.target, err = openTarget(w.device, &w.progress.written)
	if err != nil {
		return Report{}, err
	}
	defer func() {
		w.examined.close()
		if err != nil && w.target.touched.Load() {
			err = errors.Join(err, w.target.wipe())
		}
		err = errors.Join(err, w.target.close())
	}()
	if w.src.Fetch.MaxDuration > 0 {
		limited, cancel := context.WithTimeoutCause(ctx, w.src.Fetch.MaxDuration, errMaxDuration)
		defer cancel()
		report, err = w.transfers(limited)
		if errors.Is(context.Cause(limited), errMaxDuration) && err != nil && ctx.Err() == nil {
			return Report{}, w.timeout(err)
		}
		return report, err
	}
	return w.transfers(ctx)
}

// timeout returns the error of attempts that took too long, the last of which failed with last.
func (w *writer) timeout(last error) error {
	e := &TimeoutError{URL: redactURL(w.src.URLs[0]), Max: w.src.Fetch.MaxDuration}
	if !errors.Is(last, errMaxDuration) {
		e.Err = last
	}
	return e
}

// transfers repeats a transfer that was interrupted or had a wrong checksum, starting with the next URL of the list.
func (w *writer) transfers(ctx context.Context) (Report, error) {
	if err := w.examineFirst(ctx); err != nil {
		return Report{}, err
	}
	// Before anything can go wrong: what was on this disk before shall not boot in place of the image.
	if err := w.target.wipe(); err != nil {
		return Report{}, err
	}
	w.head, w.memory = alignedBuffer(headSize), newChunks()
	for attempt := 0; ; attempt++ {
		if attempt > 0 {
			// What the last transfer brought was wrong: no table or boot loader of it may stay behind the right image.
			if err := w.target.wipe(); err != nil {
				return Report{}, err
			}
			w.progress.restart(PhaseConnect)
		}
		first := attempt % len(w.src.URLs)
		urls := slices.Concat(w.src.URLs[first:], w.src.URLs[:first])
		report, err := w.transfer(ctx, urls)
		if err == nil {
			return report, nil
		}
		if !w.worthRepeating(err) || attempt >= w.fetch.Retries || ctx.Err() != nil {
			return Report{}, err
		}
		w.log.Warn("the transfer failed, trying again", "url", redactURL(urls[0]), "device", w.device,
			"attempt", attempt+1, "of", w.fetch.Retries+1, "err", err)
		if err := pause(ctx, w.fetch.RetryInterval); err != nil {
			return Report{}, err
		}
	}
}

// worthRepeating reports whether a transfer may succeed when repeated. The same wrong checksum twice is not a network
// error: the file on the server differs, and only another server can help. After a rate that was too low, only another
// server is tried.
func (w *writer) worthRepeating(err error) bool {
	var sum *ChecksumError
	if errors.As(err, &sum) {
		same := sum.Got == w.lastWrong && len(w.src.URLs) == 1
		w.lastWrong = sum.Got
		return !same
	}
	var slow *SlowError
	if errors.As(err, &slow) {
		return len(w.src.URLs) > 1
	}
	var broken *transferError
	return errors.As(err, &broken)
}

// transferError marks a download that broke off after a good beginning, in contrast to one that never began.
type transferError struct{ err error }

func (e *transferError) Error() string { return e.err.Error() }
func (e *transferError) Unwrap() error { return e.err }

// broken marks download errors as worth another transfer.
func broken(err error) error {
	var down *DownloadError
	if errors.As(err, &down) && !down.Fatal {
		return &transferError{err}
	}
	return err
}

// transfer gets the image once from the first server that has it.
func (w *writer) transfer(ctx context.Context, urls []string) (Report, error) {
	var failures []error
	for _, raw := range urls {
		report, opened, err := w.transferFrom(ctx, raw)
		if err == nil || opened || ctx.Err() != nil {
			return report, err
		}
		var down *DownloadError
		if !errors.As(err, &down) || down.Fatal {
			return Report{}, err
		}
		failures = append(failures, err)
		w.log.Warn("the image cannot be had from this server", "url", redactURL(raw), "err", err)
	}
	if len(failures) == 1 {
		return Report{}, failures[0]
	}
	return Report{}, fmt.Errorf("image not available from any of %d servers: %w", len(urls), errors.Join(failures...))
}

// transferFrom gets the image once from one server; opened reports whether the server began to answer.
func (w *writer) transferFrom(ctx context.Context, raw string) (report Report, opened bool, err error) {
	if !w.declaredRaw() {
		return w.transferInspected(ctx, raw)
	}
	b, err := w.fetch.openStream(ctx, raw, nil)
	if err != nil {
		return Report{}, false, err
	}
	defer b.Close() //nolint:errcheck // everything was read, or has failed before
	report, err = w.copyRaw(ctx, b, w.src.Format)
	return report, true, err
}

// declaredRaw reports whether the image is to be copied without a look at its content.
func (w *writer) declaredRaw() bool { return w.src.Format == formatRaw || w.src.Format == formatGPT }

// copyRaw writes an answer's bytes as they are.
func (w *writer) copyRaw(ctx context.Context, b *stream, format string) (Report, error) {
	if b.total > w.target.size {
		return Report{}, &TooSmallError{Device: w.device, Size: w.target.size, Need: b.total}
	}
	sum, err := w.src.Checksum.hash()
	if err != nil {
		return Report{}, err
	}
	w.begin(b)
	n, err := io.ReadFull(b, w.head)
	if err != nil && !atEnd(err) {
		return Report{}, broken(err)
	}
	head, end := w.head[:n], int64(n)
	if err := w.recheck(format, head); err != nil {
		return Report{}, err
	}
	sum.Write(head) //nolint:errcheck // a hash never fails
	if n == headSize {
		if end, err = w.pipeRaw(ctx, b, sum); err != nil {
			return Report{}, broken(err)
		}
	}
	if err := w.complete(ctx, b, end, sum); err != nil {
		return Report{}, err
	}
	if err := w.finish(head); err != nil {
		return Report{}, err
	}
	return w.report(b, format, end, end, sum), nil
}

// begin prepares the counters for the bytes of b.
func (w *writer) begin(b *stream) {
	w.progress.total.Store(max(0, b.total))
	w.progress.enter(PhaseTransfer)
	b.onRead = func(n int) { w.progress.read.Add(int64(n)) }
	w.log.Info("image arrives", "url", b.url, "device", w.device, "bytes", b.total)
}

// complete checks length and checksum of a source that has ended after n bytes.
func (w *writer) complete(ctx context.Context, b *stream, n int64, sum hash.Hash) error {
	if err := context.Cause(ctx); err != nil {
		return err
	}
	w.progress.enter(PhaseFinish)
	if b.total >= 0 && n != b.total {
		return broken(&DownloadError{URL: b.url, Err: fmt.Errorf("%w: got %d bytes, want %d", errTruncated, n, b.total)})
	}
	if err := w.src.Checksum.verify(sum, b.url); err != nil {
		return err
	}
	if n == 0 {
		return &FormatError{Reason: fmt.Sprintf("image %s is empty", b.url)}
	}
	return nil
}

// finish makes the device bootable: everything else first, then the first MiB and the end of the device, the first sector
// last, without which no firmware takes the device for one to boot from; each has reached the medium before the next.
func (w *writer) finish(head []byte) error {
	if err := w.target.sync(); err != nil {
		return err
	}
	first := min(len(head), directAlign)
	if first < len(head) {
		if err := errors.Join(w.target.writeAt(head[first:], int64(first)), w.target.release()); err != nil {
			return err
		}
		if err := w.target.sync(); err != nil {
			return err
		}
	}
	if err := w.target.writeAt(head[:first], 0); err != nil {
		return err
	}
	return w.target.flush()
}

func (w *writer) report(b *stream, format string, size, bytes int64, sum hash.Hash) Report {
	return Report{
		URL: b.url, Format: format, Bytes: bytes, Size: size, Written: w.progress.written.Load(), Resumed: b.resumed,
		Checksum: Checksum{Algorithm: w.src.Checksum.Algorithm, Value: hex.EncodeToString(sum.Sum(nil))},
	}
}
