package image

import (
	"context"
	"errors"
	"fmt"
	"hash"
	"log/slog"

	"ironroot/storage/image/checksum"
	"ironroot/storage/image/device"
	"ironroot/storage/image/fetch"
	"ironroot/storage/image/pipeline"
	"ironroot/storage/image/qcow2"
)

// writer writes an image, in as many attempts as it may take. It contains what all attempts use.
type writer struct {
	src       Source
	options   Options // Log and Progress are not nil
	path      string  // of the device
	size      int64   // of the device, bytes
	disk      *device.Disk
	fetcher   *fetch.Fetcher
	sum       hash.Hash         // of the file, in the present attempt
	lastWrong string            // the checksum of the last complete file, if it was wrong
	head      []byte            // the image's first MiB, which is written last
	memory    []*pipeline.Chunk // of the pipeline

	spoolMemory int // bytes that the spool of a qcow2 image keeps in memory
}

// newWriter validates its arguments.
func newWriter(path string, src Source, o Options) (*writer, error) {
	if len(src.URLs) == 0 {
		return nil, &fetch.DownloadError{Err: errors.New("the image has no URL"), Fatal: true}
	}
	if o.PermittedFormats != nil && len(o.PermittedFormats) == 0 {
		return nil, security("", "no image format is permitted")
	}
	sum, err := src.Checksum.Hash()
	if err != nil {
		return nil, fmt.Errorf("image %s: %w", src.URLs[0], err)
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Progress == nil {
		o.Progress = new(Progress)
	}
	return &writer{
		src: src, options: o, path: path, fetcher: fetch.New(src.Fetch, o.Log), sum: sum,
		spoolMemory: qcow2.SpoolMemory,
	}, nil
}

// write opens the device, and writes the image within the time limit.
func (w *writer) write(ctx context.Context) (report Report, err error) {
	if w.disk, err = device.Open(w.path, &w.options.Progress.written); err != nil {
		return Report{}, err
	}
	w.size = w.disk.Size
	defer func() {
		if err != nil && w.disk.Touched() {
			err = errors.Join(err, w.disk.Wipe())
		}
		err = errors.Join(err, w.disk.Close())
	}()
	limit := w.src.Fetch.MaxDuration
	if limit <= 0 {
		return w.attempts(ctx)
	}
	limited, cancel := context.WithTimeoutCause(ctx, limit, fetch.ErrMaxDuration)
	defer cancel()
	report, err = w.attempts(limited)
	if err != nil && errors.Is(context.Cause(limited), fetch.ErrMaxDuration) && ctx.Err() == nil {
		late := &fetch.TimeoutError{URL: w.src.URLs[0].String(), Max: limit}
		if !errors.Is(err, fetch.ErrMaxDuration) {
			late.Err = err
		}
		return Report{}, late
	}
	return report, err
}

// attempts writes the image from the first server that has it. A transfer that was interrupted or had a wrong checksum
// is repeated, starting with the next server. A qcow2 image whose tables cannot be read as they arrive is fetched from
// the same server again.
func (w *writer) attempts(ctx context.Context) (Report, error) {
	a, err := w.first(ctx)
	if err != nil {
		return Report{}, err
	}
	defer func() { a.close() }()
	// The old system must not boot in place of the image, whatever fails from now on.
	if err := w.disk.Wipe(); err != nil {
		return Report{}, err
	}
	w.head, w.memory = device.NewBuffer(device.HeadSize), pipeline.NewMemory()
	var unavailable []error // of servers that have not responded since the last retry
	for retries := 0; ; {
		report, err := a.run(ctx)
		var down *fetch.DownloadError
		switch {
		case err == nil:
			return report, nil
		case errors.Is(err, qcow2.ErrOnePass) && a.mode != tablesFirst:
			w.options.Log.Warn("qcow2 image fetched again, its tables first: the server ignores ranges",
				"url", a.url, "err", err)
			if err := w.restart(); err != nil {
				return Report{}, err
			}
			a = w.attempt(a.server, tablesFirst)
			continue
		case !a.opened && a.mode != tablesFirst && ctx.Err() == nil && errors.As(err, &down) && !down.Fatal:
			w.options.Log.Warn("image not available from server", "url", a.url, "err", err)
			if unavailable = append(unavailable, err); len(unavailable) < len(w.src.URLs) {
				a = w.attempt(a.server+1, w.mode())
				continue
			}
			err = noneAvailable(unavailable)
		}
		if !w.worthRepeating(err) || retries >= w.fetcher.Retries || ctx.Err() != nil {
			return Report{}, err
		}
		first := w.src.URLs[retries%len(w.src.URLs)].String()
		retries, unavailable = retries+1, nil
		w.options.Log.Warn("image transfer failed, retrying", "url", first, "device", w.path,
			"attempt", retries, "of", w.fetcher.Retries+1, "err", err)
		if err := w.fetcher.WaitRetry(ctx); err != nil {
			return Report{}, err
		}
		if err := w.restart(); err != nil {
			return Report{}, err
		}
		a = w.attempt(retries, w.mode())
	}
}

// first returns the attempt from the first server. The beginning of the image is inspected before the disk is wiped, so
// that an image that cannot be written does not change the disk. Its errors are refusals: a server that fails is asked
// again later, unless there is one attempt only, or no image of the declared format can be written.
func (w *writer) first(ctx context.Context) (*attempt, error) {
	a := w.attempt(0, w.mode())
	if a.mode == wholeFile && w.options.DiskSectorSize == 0 {
		return a, nil
	}
	once := *w.fetcher
	once.Retries = 0
	a.fetcher = &once
	err := a.open(ctx)
	if err == nil && a.mode == wholeFile {
		err = a.checkBeginning()
	}
	if err == nil {
		a.setFetcher(w.fetcher)
		return a, nil
	}
	a.close()
	var (
		refused *FormatError
		noDisk  *NoDiskError
		small   *device.TooSmallError
	)
	isOnly := len(w.src.URLs) == 1
	if errors.As(err, &refused) || errors.As(err, &small) || errors.As(err, &noDisk) && isOnly ||
		a.mode == wholeFile && w.fetcher.Retries == 0 && isOnly {
		return nil, err
	}
	if declared, known := declaredFormat(w.src.Format); known && ctx.Err() == nil {
		if err := findFormat(declared).writable(); err != nil {
			return nil, err
		}
	}
	return w.attempt(0, w.mode()), nil
}

// isDeclaredRaw reports whether the image is copied without format detection.
func (s Source) isDeclaredRaw() bool { return s.Format == formatRaw || s.Format == formatGPT }

// mode returns the mode of the first attempt from a server.
func (w *writer) mode() mode {
	if w.src.isDeclaredRaw() {
		return wholeFile
	}
	return headerFirst
}

// attempt returns the next attempt. The servers are counted on from the last to the first.
func (w *writer) attempt(server int, m mode) *attempt {
	address := w.src.URLs[server%len(w.src.URLs)]
	a := &attempt{
		writer: w, server: server, address: address, url: address.String(), mode: m, fetcher: w.fetcher,
	}
	if m == wholeFile {
		a.header.format, a.content = w.src.Format, rawContent{}
	}
	return a
}

// restart prepares the disk for another attempt: no partition table or boot loader of the last one may remain behind
// the image.
func (w *writer) restart() error {
	if err := w.disk.Wipe(); err != nil {
		return err
	}
	w.options.Progress.restart(PhaseConnect)
	return nil
}

// noneAvailable returns the error of servers none of which has the image.
func noneAvailable(failures []error) error {
	if len(failures) == 1 {
		return failures[0]
	}
	return fmt.Errorf("image not available from any of %d servers: %w", len(failures), errors.Join(failures...))
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

// WriteContent writes content of the image to its place on the device. The first MiB is kept in memory.
func (w *writer) WriteContent(p []byte, off int64) error {
	if off < device.HeadSize {
		n := copy(w.head[off:], p)
		p, off = p[n:], off+int64(n)
	}
	if len(p) == 0 {
		return nil
	}
	return w.disk.Write(p, off)
}

// writeHead makes the device bootable. head is the first MiB of the image. Everything else reaches the medium first,
// then the first MiB and the end of the device, and last the first sector, without which no firmware boots from the
// device.
func (w *writer) writeHead(head []byte) error {
	if err := w.disk.Sync(); err != nil {
		return err
	}
	first := min(len(head), device.Align)
	if first < len(head) {
		if err := errors.Join(w.disk.Write(head[first:], int64(first)), w.disk.ReleaseEnd()); err != nil {
			return err
		}
		if err := w.disk.Sync(); err != nil {
			return err
		}
	}
	if err := w.disk.Write(head[:first], 0); err != nil {
		return err
	}
	return w.disk.Flush()
}
