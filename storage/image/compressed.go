package image

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"runtime"

	"ironroot/storage/image/device"
	"ironroot/storage/image/fetch"
	"ironroot/storage/image/pipeline"
	"ironroot/storage/image/unpack"
)

// maxTrailing is the number of bytes that may follow the end of a compressed image.
const maxTrailing = 1 << 20

// compressedContent is an image of a format that is copied, compressed as a whole.
type compressedContent struct{ format unpack.Format }

// openCompressed returns the function that opens images of a compression format. It inspects the content as far as the
// beginning of the file contains it.
func openCompressed(f unpack.Format) func(context.Context, *attempt) (content, error) {
	return func(_ context.Context, a *attempt) (content, error) {
		c := compressedContent{f}
		return c, c.inspectHead(a)
	}
}

// inspectHead inspects the content at the beginning of a file.
func (c compressedContent) inspectHead(a *attempt) error {
	if err := a.options.permit(findFormat(formatRaw)); err != nil {
		return err
	}
	content := make([]byte, device.HeadSize)
	n := 0
	r, err := c.format.NewReader(&headReader{rest: a.header.head}, a.options.UnpackMemory)
	if err == nil {
		defer r.Close()
		n, err = io.ReadFull(r, content)
	}
	var damaged *unpack.Error
	if n == 0 && errors.As(err, &damaged) && !errors.Is(damaged.Err, errHeadEnd) {
		return &FormatError{Format: c.format.Name, Reason: err.Error()}
	}
	if n == 0 {
		return nil // the first block is not complete
	}
	_, err = c.inspect(a, content[:n], nil)
	return err
}

// inspect returns the format of an image whose content begins with head and ends with end, unless that is nil. The
// format must be one that is copied, and raw must be permitted, whether or not formats are inspected otherwise. For a
// whole disk, the content must be a disk image.
func (c compressedContent) inspect(a *attempt, head, end []byte) (string, error) {
	if err := a.options.permit(findFormat(formatRaw)); err != nil {
		return "", err
	}
	format, err := a.options.inspect("", head, end)
	if err != nil {
		return "", err
	}
	if !findFormat(format).copied {
		return "", &FormatError{Format: c.format.Name, Reason: fmt.Sprintf(
			"there is an image of format %s inside the %s image: "+
				"only raw images are written from packed files; serve it unpacked",
			format, c.format.Name)}
	}
	return format, checkDisk(a.url, head, a.options.DiskSectorSize)
}

// write decompresses the file and copies its content.
func (c compressedContent) write(ctx context.Context, a *attempt) (Report, error) {
	if err := a.requestFile(ctx); err != nil {
		return Report{}, err
	}
	a.begin()
	runtime.GC() // frees the decompressor of the header or the last attempt before there is another
	limit := maxFile(a.size)
	r := pipeline.NewReadAhead(a.stream, limit, a.sum)
	defer r.Close()
	head, end, format, err := c.copy(ctx, a, r)
	if err := c.settle(r, a, err); errors.Is(err, pipeline.ErrTooLong) {
		return Report{}, &FormatError{Format: c.format.Name, Reason: fmt.Sprintf(
			"packed image: the file is too long, for this disk %d bytes are accepted at most", limit)}
	} else if err != nil {
		return Report{}, fetch.Interrupted(err)
	}
	if err := a.complete(ctx, a.stream.Pos); err != nil {
		return Report{}, err
	}
	if end == 0 {
		return Report{}, a.emptyError(c.format.Name)
	}
	if _, err := c.inspect(a, head, a.end); err != nil {
		return Report{}, err
	}
	if err := a.writeHead(head); err != nil {
		return Report{}, err
	}
	report := a.report(format, end, a.stream.Pos)
	report.Compression = c.format.Name
	return report, nil
}

// copy decompresses a file. It returns the first MiB of the content, and writes the rest to the device.
func (c compressedContent) copy(ctx context.Context, a *attempt, from *pipeline.ReadAhead) (
	head []byte, end int64, format string, err error,
) {
	r, err := c.format.NewReader(from, a.options.UnpackMemory)
	if err != nil {
		return nil, 0, "", err
	}
	defer r.Close()
	n, err := io.ReadFull(r, a.head)
	if err != nil && !fetch.AtEnd(err) {
		return nil, 0, "", err
	}
	head, end = a.head[:n], int64(n)
	a.end.add(head)
	if format, err = c.inspect(a, head, nil); err != nil || n < device.HeadSize {
		return head, end, format, err
	}
	end, err = a.copyRest(ctx, &decompressed{r, a.stream}, nil)
	return head, end, format, err
}

// settle reads a file to its end after its content was copied with err, and decides which error counts: first an error
// of the source, then a wrong checksum, and last an error of the content, because only a file with the right checksum
// can be damaged itself.
func (c compressedContent) settle(from *pipeline.ReadAhead, a *attempt, err error) error {
	var damaged *unpack.Error
	if err != nil && !errors.As(err, &damaged) {
		return err
	}
	limit := int64(maxTrailing)
	if damaged != nil {
		limit = math.MaxInt64
	}
	if rest := from.Drain(limit); errors.Is(rest, pipeline.ErrTrailing) {
		return &FormatError{Reason: fmt.Sprintf("image %s: %v", a.url, rest)}
	} else if rest != nil {
		return rest
	}
	if damaged == nil {
		return nil
	}
	if err := a.verify(); err != nil {
		return err
	}
	return &FormatError{Format: damaged.Format, Reason: damaged.Error()}
}

// decompressed is the content of a compressed file, as the source of a pipeline.
type decompressed struct {
	*unpack.Reader
	source pipeline.Source
}

// Abort ends the source if the device failed. At the end of the pipeline, or if the content is damaged, the rest of
// the source is needed for its checksum.
func (d *decompressed) Abort(why error) {
	var damaged *unpack.Error
	if !errors.As(why, &damaged) && !errors.Is(why, context.Canceled) {
		d.source.Abort(why)
	}
}

// errHeadEnd is the end of the beginning of a file, which is not the end of the file.
var errHeadEnd = errors.New("the beginning of the file is not enough")

// headReader reads the beginning of a file.
type headReader struct{ rest []byte }

func (h *headReader) Read(p []byte) (int, error) {
	if len(h.rest) == 0 {
		return 0, errHeadEnd
	}
	n := copy(p, h.rest)
	h.rest = h.rest[n:]
	return n, nil
}
