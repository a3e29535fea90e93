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
func openQcow2(ctx context.Context, a *attempt) (content, error) {
	head := a.header.head
	h, err := qcow2.ParseHeader(head)
	if err != nil {
		return nil, qcow2Refusal(err)
	}
	if h.Size > a.size {
		return nil, &device.TooSmallError{Device: a.path, Size: a.size, Need: h.Size}
	}
	a.options.Progress.enter(PhasePrepare)
	var layout *qcow2.Layout
	if a.stream != nil {
		layout, err = qcow2.StreamLayout(h, a.stream, head, maxFile(a.size))
	} else {
		layout, err = qcow2.FetchLayout(ctx, a.fetcher, a.address, h, head, maxFile(a.size))
	}
	if err != nil {
		return nil, qcow2Refusal(err)
	}
	if !layout.Streamed() {
		m := layout.Map
		a.options.Log.Info("qcow2 tables read", "url", a.url, "size", h.Size, "pieces", len(m.Runs),
			"holes", len(m.Holes))
	}
	return qcow2Content{layout}, nil
}

// write zeroes what the image has no content for, and then writes the image from its file, which is read once. Where
// the tables arrive with the file, the placer zeroes at the end.
func (c qcow2Content) write(ctx context.Context, a *attempt) (report Report, err error) {
	if !c.layout.Streamed() {
		if err := c.layout.Map.ZeroHoles(ctx, a.disk); err != nil {
			return Report{}, err
		}
	}
	if err := a.requestFile(ctx); err != nil {
		return Report{}, err
	}
	clear(a.head)
	size := c.layout.Map.Header.Size
	placer, err := qcow2.NewPlacer(c.layout, qcow2.Output{
		Disk: a.disk, Content: a, Limit: maxFile(a.size), Jobs: pipeline.Writers, SpoolMemory: a.spoolMemory,
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
	a.begin()
	end, err := (&pipeline.Pipeline{
		Source: a.stream, Sum: a.sum, Placer: qcow2Placer{placer}, Memory: a.memory,
		Arrived: &a.options.Progress.read, Written: &a.options.Progress.readWritten,
	}).Run(ctx)
	if err != nil {
		return Report{}, fetch.Interrupted(err)
	}
	if err := a.complete(ctx, end); err != nil {
		return Report{}, err
	}
	if err := placer.Finish(ctx, a.url, end); err != nil {
		return Report{}, qcow2Refusal(err)
	}
	if err := a.writeHead(a.head[:min(device.HeadSize, size)]); err != nil {
		return Report{}, err
	}
	return a.report(formatQcow2, size, end), nil
}

// qcow2Placer writes the content of chunks.
type qcow2Placer struct{ *qcow2.Placer }

// Place implements [pipeline.Placer].
func (p qcow2Placer) Place(c *pipeline.Chunk, submit func(func() error) error) error {
	return qcow2Refusal(p.Placer.Place(c.Off, c.Data, submit))
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
