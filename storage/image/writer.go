package image

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"

	"ironroot/storage/image/checksum"
	"ironroot/storage/image/device"
	"ironroot/storage/image/fetch"
	"ironroot/storage/image/pipeline"
	"ironroot/storage/image/qcow2"
)

// writer writes an image, in as many attempts as it may take.
type writer struct {
	src       Source
	device    string
	fetcher   *fetch.Fetcher
	prober    *prober
	output    output
	probed    *probe // of the first URL, before the device was wiped; nil once it was used
	lastWrong string // the checksum of the last complete transfer, if it was wrong
	log       *slog.Logger
	progress  *Progress
}

// newWriter validates its arguments.
func newWriter(device string, src Source, o Options) (*writer, error) {
	if len(src.URLs) == 0 {
		return nil, &fetch.DownloadError{Err: errors.New("the image has no URL"), Fatal: true}
	}
	if o.PermittedFormats != nil && len(o.PermittedFormats) == 0 {
		return nil, security("", "no image format is permitted")
	}
	for _, raw := range src.URLs {
		if err := fetch.CheckURL(raw); err != nil {
			return nil, err
		}
	}
	if _, err := src.Checksum.Hash(); err != nil {
		return nil, fmt.Errorf("image %s: %w", fetch.RedactURL(src.URLs[0]), err)
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Progress == nil {
		o.Progress = new(Progress)
	}
	return &writer{
		src: src, device: device, fetcher: fetch.New(src.Fetch, o.Log), log: o.Log, progress: o.Progress,
		prober: &prober{src: src, options: o, device: device},
		output: output{spoolMemory: qcow2.SpoolMemory},
	}, nil
}

// write opens the device, and repeats the transfer until it succeeds or a repetition cannot help.
func (w *writer) write(ctx context.Context) (report Report, err error) {
	target, err := device.Open(w.device, &w.progress.written)
	if err != nil {
		return Report{}, err
	}
	w.output.disk, w.prober.size = target, target.Size
	defer func() {
		w.probed.close()
		if err != nil && target.Touched() {
			err = errors.Join(err, target.Wipe())
		}
		err = errors.Join(err, target.Close())
	}()
	if w.src.Fetch.MaxDuration > 0 {
		limited, cancel := context.WithTimeoutCause(ctx, w.src.Fetch.MaxDuration, fetch.ErrMaxDuration)
		defer cancel()
		report, err = w.transfers(limited)
		if errors.Is(context.Cause(limited), fetch.ErrMaxDuration) && err != nil && ctx.Err() == nil {
			return Report{}, w.timeout(err)
		}
		return report, err
	}
	return w.transfers(ctx)
}

// timeout returns the error of attempts that took too long, the last of which failed with last.
func (w *writer) timeout(last error) error {
	e := &fetch.TimeoutError{URL: fetch.RedactURL(w.src.URLs[0]), Max: w.src.Fetch.MaxDuration}
	if !errors.Is(last, fetch.ErrMaxDuration) {
		e.Err = last
	}
	return e
}

// transfers repeats a transfer that was interrupted or had a wrong checksum, starting with the next URL of the list.
func (w *writer) transfers(ctx context.Context) (Report, error) {
	var err error
	if w.probed, err = w.prober.probeFirst(ctx, w.fetcher); err != nil {
		return Report{}, err
	}
	// The old system must not boot in place of the image, whatever fails from now on.
	if err := w.output.disk.Wipe(); err != nil {
		return Report{}, err
	}
	w.output.head, w.output.memory = device.NewBuffer(device.HeadSize), pipeline.NewMemory()
	for attempt := 0; ; attempt++ {
		if attempt > 0 {
			// No partition table or boot loader of the last transfer may remain behind the image.
			if err := w.output.disk.Wipe(); err != nil {
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
		if !w.worthRepeating(err) || attempt >= w.fetcher.Retries || ctx.Err() != nil {
			return Report{}, err
		}
		w.log.Warn("image transfer failed, retrying", "url", fetch.RedactURL(urls[0]), "device", w.device,
			"attempt", attempt+1, "of", w.fetcher.Retries+1, "err", err)
		if err := w.fetcher.WaitRetry(ctx); err != nil {
			return Report{}, err
		}
	}
}

// worthRepeating reports whether a transfer may succeed when repeated. The same wrong checksum twice is not a network
// error: the file on the server differs, and only another server can help. After a rate that was too low, or a response
// that is no disk, only another server is tried.
func (w *writer) worthRepeating(err error) bool {
	var sum *checksum.MismatchError
	if errors.As(err, &sum) {
		same := sum.Got == w.lastWrong && len(w.src.URLs) == 1
		w.lastWrong = sum.Got
		return !same
	}
	var slow *fetch.SlowError
	var noDisk *NoDiskError // from a raw image: the response can be an error page
	if errors.As(err, &slow) || errors.As(err, &noDisk) {
		return len(w.src.URLs) > 1
	}
	var broken *fetch.InterruptedError
	return errors.As(err, &broken)
}

// transfer transfers the image once from the first server that has it.
func (w *writer) transfer(ctx context.Context, urls []string) (Report, error) {
	var failures []error
	for _, raw := range urls {
		report, opened, err := w.transferFrom(ctx, raw)
		if err == nil || opened || ctx.Err() != nil {
			return report, err
		}
		var down *fetch.DownloadError
		if !errors.As(err, &down) || down.Fatal {
			return Report{}, err
		}
		failures = append(failures, err)
		w.log.Warn("image not available from server", "url", fetch.RedactURL(raw), "err", err)
	}
	if len(failures) == 1 {
		return Report{}, failures[0]
	}
	return Report{}, fmt.Errorf("image not available from any of %d servers: %w", len(urls), errors.Join(failures...))
}

// transferFrom transfers the image once from one server. opened reports whether the server began to respond.
func (w *writer) transferFrom(ctx context.Context, rawURL string) (report Report, opened bool, err error) {
	x := w.probed
	w.probed = nil // a probe is valid for one transfer
	if x != nil && x.rawURL != rawURL {
		x.close()
		x = nil
	}
	if w.src.isDeclaredRaw() {
		if x == nil {
			x = &probe{rawURL: rawURL}
		}
		s, err := x.open(ctx, w.fetcher)
		if err != nil {
			return Report{}, false, err
		}
		report, err = w.copy(ctx, s, &rawContent{format: w.src.Format, sector: w.prober.options.DiskSectorSize})
		return report, true, err
	}
	if x == nil {
		if x, opened, err = w.prober.probe(ctx, w.fetcher, rawURL, true); err != nil {
			return Report{}, opened, err
		}
	}
	report, err = w.transferProbed(ctx, x)
	if errors.Is(err, qcow2.ErrOnePass) {
		w.log.Warn("qcow2 image fetched again, its tables first: the server ignores ranges", "url", x.url, "err", err)
		if err := w.output.disk.Wipe(); err != nil {
			return Report{}, true, err
		}
		w.progress.restart(PhaseConnect)
		if x, _, err = w.prober.probe(ctx, w.fetcher, rawURL, false); err == nil {
			report, err = w.transferProbed(ctx, x)
		}
	}
	return report, true, err
}

// transferProbed transfers an image that was probed.
func (w *writer) transferProbed(ctx context.Context, x *probe) (Report, error) {
	if err := x.content.prepare(ctx, w.output.disk); err != nil {
		return Report{}, err
	}
	s, err := x.open(ctx, w.fetcher)
	if err != nil {
		return Report{}, fetch.Interrupted(err)
	}
	return w.copy(ctx, s, x.content)
}

// copy writes the content that arrives with s, which it closes.
func (w *writer) copy(ctx context.Context, s *fetch.Stream, c content) (Report, error) {
	defer s.Close() //nolint:errcheck // everything was read, or has failed before
	sum, err := w.src.Checksum.Hash()
	if err != nil {
		return Report{}, err
	}
	return c.write(ctx, &transfer{
		output: &w.output, stream: s, checksum: w.src.Checksum, sum: sum, progress: w.progress, log: w.log,
	})
}
