package image

import (
	"context"
	"errors"
	"fmt"

	"ironroot/storage/image/device"
	"ironroot/storage/image/fetch"
)

// prober looks at the beginning of an image, finds out its format, and refuses an image that must not be written.
type prober struct {
	src     Source
	options Options // Log and Progress are not nil
	device  string
	size    int64 // of the device, bytes
}

// probe is what a prober has found.
type probe struct {
	rawURL  string
	url     string // for errors
	head    []byte // the first MiB of the file
	end     []byte // its last bytes, nil if they are unknown or not needed
	format  string
	content content
	stream  *fetch.Stream // the whole file, if the server ignored the range; otherwise nil
	fetcher *fetch.Fetcher
}

// content is an image of a known format that can be written.
type content interface {
	// prepare writes to the device what needs no connection to the server.
	prepare(ctx context.Context, t *device.Disk) error
	// write writes the image that arrives with t.
	write(ctx context.Context, t *transfer) (Report, error)
}

// close closes the stream, unless open has returned it.
func (x *probe) close() {
	if x != nil && x.stream != nil {
		x.stream.Close() //nolint:errcheck // what was needed has been read
		x.stream = nil
	}
}

// open returns the whole file, which the caller closes.
func (x *probe) open(ctx context.Context, f *fetch.Fetcher) (*fetch.Stream, error) {
	if s := x.stream; s != nil {
		x.stream = nil
		s.SetFetcher(f)
		return s, nil
	}
	return f.OpenStream(ctx, x.rawURL, nil)
}

// isDeclaredRaw reports whether the image is copied without format detection.
func (s Source) isDeclaredRaw() bool { return s.Format == formatRaw || s.Format == formatGPT }

// probeFirst probes the image once, before the disk is wiped. It returns nil and no error if the server fails: the
// transfers retry later, unless no image of the declared format can be written. Its errors are refusals.
func (p *prober) probeFirst(ctx context.Context, f *fetch.Fetcher) (*probe, error) {
	if p.src.isDeclaredRaw() {
		return p.probeRaw(ctx, f)
	}
	once := *f
	once.Retries = 0
	x, _, err := p.probe(ctx, &once, p.src.URLs[0], true)
	var refused *FormatError
	var noDisk *NoDiskError
	var small *device.TooSmallError
	if errors.As(err, &refused) || errors.As(err, &noDisk) && len(p.src.URLs) == 1 || errors.As(err, &small) {
		return nil, err
	}
	if declared, known := declaredFormat(p.src.Format); err != nil && known && ctx.Err() == nil {
		return nil, findFormat(declared).writable()
	}
	return x, nil
}

// probe probes the image at a URL. opened reports whether the server began to respond. If the server ignores ranges,
// onePass keeps its response for the transfer; the tables of a qcow2 image are read from it then.
func (p *prober) probe(ctx context.Context, f *fetch.Fetcher, rawURL string, onePass bool) (
	x *probe, opened bool, err error,
) {
	s, err := f.OpenStream(ctx, rawURL, &fetch.Range{Len: device.HeadSize})
	if err != nil {
		return nil, false, err
	}
	x = &probe{rawURL: rawURL, url: s.URL, stream: s, fetcher: f}
	if x.head, err = s.Peek(device.HeadSize); err == nil {
		if s.IsPart() || !onePass {
			x.close()
		}
		x.end = p.readEnd(ctx, x, s)
		err = p.open(ctx, x)
	}
	if err != nil {
		x.close()
		return nil, true, fetch.Interrupted(err)
	}
	return x, true, nil
}

// open finds out the format of x, and its content.
func (p *prober) open(ctx context.Context, x *probe) (err error) {
	if len(x.head) == 0 {
		return &FormatError{Reason: fmt.Sprintf("image %s is empty", x.url)}
	}
	if x.format, err = p.options.inspect(p.src.Format, x.head, x.end); err != nil {
		return err
	}
	p.options.Log.Info("image format detected", "url", x.url, "format", x.format, "declared", p.src.Format)
	if findFormat(x.format).copied {
		if err := checkDisk(x.url, x.head, p.options.DiskSectorSize); err != nil {
			return err
		}
	}
	x.content, err = findFormat(x.format).open(ctx, p, x)
	return err
}

// recheck compares the beginning of a stream, and its end unless that is nil, with the format that an earlier response
// had: a server may have two files.
func (p *prober) recheck(format string, head, end []byte) error {
	if len(head) == 0 {
		return nil
	}
	again, err := p.options.inspect(p.src.Format, head, end)
	if err == nil && again != format {
		err = security(again, "the server sent an image of format %s first, and then one of format %s", format, again)
	}
	return err
}
