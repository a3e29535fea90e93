package image

import (
	"context"
	"encoding/hex"
	"fmt"
	"io"
	"slices"

	"ironroot/storage/image/checksum"
	"ironroot/storage/image/device"
	"ironroot/storage/image/fetch"
)

// attempt writes the image once, from one server.
type attempt struct {
	*writer
	server  int // number of the server; its URL is URLs[server % len(URLs)]
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
	// write writes the image. Work that needs no connection to the server is done before the file is requested.
	write(ctx context.Context, a *attempt) (Report, error)
}

// run sends the first request, unless it was sent before, and writes the image.
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
	a.stream.Arrived = &progress.read
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

// header is the part of the file that decides whether and how the image is written.
type header struct {
	head   []byte // the first MiB
	end    []byte // the last bytes; nil if they are unknown or not needed
	format string // the format that was found, or declared for an image that is not inspected
}

// inspect reads the header from the response, finds out the format of the image, and refuses an image that must not be
// written.
func (a *attempt) inspect(ctx context.Context) (err error) {
	s, h := a.stream, &a.header
	if h.head, err = s.Peek(device.HeadSize); err != nil {
		return err
	}
	if s.IsPart() || a.mode == tablesFirst {
		a.close()
	}
	if h.end = a.readEnd(ctx, s); len(h.head) == 0 {
		return a.emptyError("")
	}
	if h.format, err = a.options.inspect(a.src.Format, h.head, h.end); err != nil {
		return err
	}
	a.options.Log.Info("image format detected", "url", a.url, "format", h.format, "declared", a.src.Format)
	f := findFormat(h.format)
	if f.copied {
		if err := checkDisk(a.url, h.head, a.options.DiskSectorSize); err != nil {
			return err
		}
	}
	a.content, err = f.open(ctx, a)
	return err
}

// checkBeginning refuses an image that is declared as raw, whose beginning shows that it cannot boot.
func (a *attempt) checkBeginning() error {
	head, err := a.stream.Peek(device.HeadSize)
	if err != nil {
		return fetch.Interrupted(err)
	}
	if a.stream.Total > a.size {
		return nil // the transfer fails later: the image is too large
	}
	return checkDisk(a.url, head, a.options.DiskSectorSize)
}

// recheck compares the beginning of the whole file, and its end unless that is nil, with the format of the header: a
// server may have two files.
func (a *attempt) recheck(head, end []byte) error {
	if a.mode == wholeFile || len(head) == 0 {
		return nil
	}
	format := a.header.format
	again, err := a.options.inspect(a.src.Format, head, end)
	if err == nil && again != format {
		err = security(again, "the server sent an image of format %s first, and then one of format %s", format, again)
	}
	return err
}

// endSize is the number of bytes at the end of a file in which formats have a footer.
const endSize = max(vmdkFooterSize, vhdFooterSize)

// lastBytes returns the end of p, at most endSize bytes.
func lastBytes(p []byte) []byte { return p[max(0, len(p)-endSize):] }

// ending has the last bytes, at most endSize, of everything that was added.
type ending []byte

func (e *ending) add(p []byte) {
	all := slices.Concat(*e, lastBytes(p))
	*e = append((*e)[:0], lastBytes(all)...)
}

// readEnd returns the last bytes of the file, or nil if they are not needed or not known: a server that supports ranges
// sends them. A failure is no error, because the end of an image is inspected again when it has arrived. s is the
// beginning of the file, which was read.
func (a *attempt) readEnd(ctx context.Context, s *fetch.Stream) []byte {
	length := int64(len(a.header.head))
	switch {
	case s.Total == length, s.Total < 0 && length < device.HeadSize:
		return lastBytes(a.header.head)
	case s.Total < length, !s.IsPart(), !a.options.needsEnd(a.header.head):
		return nil
	}
	once := *a.fetcher
	once.Retries = 0
	end := make([]byte, min(s.Total, endSize))
	r, err := once.Open(ctx, a.address, &fetch.Range{Off: s.Total - int64(len(end)), Len: int64(len(end))})
	if err == nil {
		defer r.Close() //nolint:errcheck // what was needed has been read
		if !r.Partial || r.Total != s.Total {
			return nil
		}
		_, err = io.ReadFull(r, end)
	}
	if err != nil {
		a.options.Log.Warn("end of image not read, inspected after the transfer", "url", a.url, "err", err)
		return nil
	}
	return end
}

// needsEnd reports whether a file that begins with head is inspected at its end, too.
func (o Options) needsEnd(head []byte) bool {
	found := append(detect(head), formatRaw)
	f := findFormat(found[0])
	return !o.SkipFormatInspection && len(found) <= 2 && (f.copied || f.checkEnd != nil)
}
