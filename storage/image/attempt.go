package image

import (
	"context"
	"encoding/hex"
	"fmt"

	"ironroot/storage/image/checksum"
	"ironroot/storage/image/device"
	"ironroot/storage/image/fetch"
)

// attempt writes the image once, from one server.
type attempt struct {
	*writer
	server  int // index of its URL, counted on from the last server to the first
	address fetch.URL
	url     string // address for logs and errors
	mode    mode
	fetcher *fetch.Fetcher
	opened  bool // the server has begun to respond
	header  header
	content content
	stream  *fetch.Stream // the whole file; nil if it was not requested
	end     ending        // of the content that was copied
}

// mode says which requests an attempt sends.
type mode int

const (
	// wholeFile requests the file of an image that is declared as raw. It is not inspected.
	wholeFile mode = iota
	// headerFirst requests the header, and then the whole file. A server that ignores ranges sends the whole file at
	// once; the tables of a qcow2 image are read from it when they arrive.
	headerFirst
	// tablesFirst requests the header, the tables of a qcow2 image, and then the whole file.
	tablesFirst
)

// content is an image of a known format that can be written.
type content interface {
	// write writes the image. What needs no connection to the server is done before the file is requested.
	write(ctx context.Context, a *attempt) (Report, error)
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

// run transfers the image, unless open has failed.
func (a *attempt) run(ctx context.Context) (Report, error) {
	defer a.close()
	if !a.opened {
		if err := a.open(ctx); err != nil {
			return Report{}, err
		}
	}
	return a.content.write(ctx, a)
}

// open sends the first request and inspects the response, unless the image is declared as raw.
func (a *attempt) open(ctx context.Context) error {
	if a.mode == wholeFile {
		return a.request(ctx, nil)
	}
	if err := a.request(ctx, &fetch.Range{Len: device.HeadSize}); err != nil {
		return err
	}
	return fetch.Interrupted(a.inspect(ctx))
}

// request requests the whole file, or a part at its beginning.
func (a *attempt) request(ctx context.Context, part *fetch.Range) (err error) {
	a.stream, err = a.fetcher.OpenStream(ctx, a.address, part)
	if err == nil {
		a.opened = true
	}
	return err
}

// close ends the request.
func (a *attempt) close() {
	if a.stream != nil {
		a.stream.Close() //nolint:errcheck // what was needed has been read
		a.stream = nil
	}
}

// setFetcher replaces the fetcher.
func (a *attempt) setFetcher(f *fetch.Fetcher) {
	a.fetcher = f
	if a.stream != nil {
		a.stream.SetFetcher(f)
	}
}

// requestFile requests the whole file, unless it was requested before.
func (a *attempt) requestFile(ctx context.Context) error {
	if a.stream != nil {
		return nil
	}
	return fetch.Interrupted(a.request(ctx, nil))
}

// begin prepares the counters for the whole file.
func (a *attempt) begin() {
	a.sum.Reset()
	progress := a.options.Progress
	progress.total.Store(max(0, a.stream.Total))
	progress.enter(PhaseTransfer)
	a.stream.OnRead = func(n int) { progress.read.Add(int64(n)) }
	a.options.Log.Info("image transfer started", "url", a.url, "device", a.path, "bytes", a.stream.Total)
}

// complete checks length and checksum of a file that has ended after n bytes.
func (a *attempt) complete(ctx context.Context, n int64) error {
	if err := context.Cause(ctx); err != nil {
		return err
	}
	a.options.Progress.enter(PhaseFinish)
	if err := a.stream.CheckLength(n); err != nil {
		return err
	}
	if err := a.verify(); err != nil {
		return err
	}
	if n == 0 {
		return a.emptyError("")
	}
	return nil
}

// verify checks the checksum of what has arrived.
func (a *attempt) verify() error { return a.src.Checksum.Verify(a.sum, a.url) }

// emptyError returns the error of an image without content.
func (a *attempt) emptyError(format string) error {
	return &FormatError{Format: format, Reason: fmt.Sprintf("image %s is empty", a.url)}
}

// report describes an image of size bytes that came in a file of n bytes.
func (a *attempt) report(format string, size, n int64) Report {
	return Report{
		URL: a.url, Format: format, Bytes: n, Size: size,
		Written: a.options.Progress.written.Load(), Resumed: a.stream.Resumed,
		Checksum: checksum.Sum{Algorithm: a.src.Checksum.Algorithm, Value: hex.EncodeToString(a.sum.Sum(nil))},
	}
}
