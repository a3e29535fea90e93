package image

import (
	"context"
	"errors"

	"ironroot/storage/image/device"
	"ironroot/storage/image/fetch"
	"ironroot/storage/image/pipeline"
	"ironroot/storage/image/qcow2"
)

// qcow2Content is a qcow2 image whose layout is known.
type qcow2Content struct{ layout *qcow2.Layout }

// openQcow2 reads the layout of an image.
func openQcow2(ctx context.Context, p *prober, x *probe) (content, error) {
	h, err := qcow2.ParseHeader(x.head)
	if err != nil {
		return nil, qcow2Refusal(err)
	}
	if h.Size > p.size {
		return nil, &device.TooSmallError{Device: p.device, Size: p.size, Need: h.Size}
	}
	p.options.Progress.enter(PhasePrepare)
	var layout *qcow2.Layout
	if x.stream != nil {
		layout, err = qcow2.StreamLayout(h, x.stream, x.head, maxFile(p.size))
	} else {
		layout, err = qcow2.FetchLayout(ctx, x.fetcher, x.rawURL, h, x.head, maxFile(p.size))
	}
	if err != nil {
		return nil, qcow2Refusal(err)
	}
	if !layout.Streamed() {
		m := layout.Map
		p.options.Log.Info("qcow2 tables read", "url", x.url, "size", h.Size, "pieces", len(m.Runs),
			"holes", len(m.Holes))
	}
	return &qcow2Content{layout}, nil
}

// prepare zeroes what the image has no content for, while no server waits. If that is not known yet, write does it.
func (c *qcow2Content) prepare(ctx context.Context, t *device.Disk) error {
	if c.layout.Streamed() {
		return nil
	}
	return c.layout.Map.ZeroHoles(ctx, t)
}

// write writes the image from its file, which is read once.
func (c *qcow2Content) write(ctx context.Context, t *transfer) (report Report, err error) {
	clear(t.head)
	size := c.layout.Map.Header.Size
	placer, err := qcow2.NewPlacer(c.layout, qcow2.Output{
		Disk: t.disk, Write: t.write, Limit: maxFile(t.disk.Size), Jobs: pipeline.Writers,
		SpoolMemory: t.spoolMemory,
	})
	if err != nil {
		return Report{}, err
	}
	defer placer.Close()
	defer func() {
		if err != nil && ctx.Err() == nil {
			err = errors.Join(err, placer.Abandon(ctx))
		}
	}()
	t.begin()
	place := func(c *pipeline.Chunk, submit func(func() error) error) error {
		return qcow2Refusal(placer.Place(c.Off, c.Data, submit))
	}
	end, err := (&pipeline.Pipeline{
		Source: t.stream, Sum: t.sum, Place: place, Filled: t.progress.filled, Memory: t.memory,
	}).Run(ctx)
	if err != nil {
		return Report{}, fetch.Interrupted(err)
	}
	if err := t.complete(ctx, end); err != nil {
		return Report{}, err
	}
	if err := placer.Finish(ctx, t.stream.URL, end); err != nil {
		return Report{}, qcow2Refusal(err)
	}
	if err := t.finish(t.head[:min(device.HeadSize, size)]); err != nil {
		return Report{}, err
	}
	return t.report(formatQcow2, size, end), nil
}

// qcow2Refusal turns an error of an image's content into a FormatError, and returns any other as it is.
func qcow2Refusal(err error) error {
	var refusal *qcow2.Error
	if !errors.As(err, &refusal) {
		return err
	}
	if refusal.Unsafe {
		return security(formatQcow2, "%v", refusal)
	}
	return &FormatError{Format: formatQcow2, Reason: refusal.Error()}
}

// maxFile limits the length of a file that is not copied, in bytes: twice the disk, and 64 MiB. A file is longer than
// its content by its tables, and by internal snapshots, which are ignored. Without a limit a server could send
// forever.
func maxFile(disk int64) int64 { return 2*disk + 64<<20 }
