package image

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"log/slog"

	"ironroot/storage/image/checksum"
	"ironroot/storage/image/device"
	"ironroot/storage/image/fetch"
	"ironroot/storage/image/pipeline"
)

// transfer copies an image once from its stream to the device.
type transfer struct {
	*output
	stream   *fetch.Stream
	checksum checksum.Sum // what the file must have
	sum      hash.Hash    // of what has arrived
	end      ending       // of the content that is copied
	progress *Progress
	log      *slog.Logger
}

// output is what all transfers of a Write use.
type output struct {
	disk        *device.Disk
	head        []byte            // the image's first MiB, which is written last
	memory      []*pipeline.Chunk // of the pipeline
	spoolMemory int               // bytes that the spool of a qcow2 image keeps in memory
}

// begin prepares the counters.
func (t *transfer) begin() {
	t.progress.total.Store(max(0, t.stream.Total))
	t.progress.enter(PhaseTransfer)
	t.stream.OnRead = func(n int) { t.progress.read.Add(int64(n)) }
	t.log.Info("image transfer started", "url", t.stream.URL, "device", t.disk.Path, "bytes", t.stream.Total)
}

// verify checks the checksum of what has arrived.
func (t *transfer) verify() error { return t.checksum.Verify(t.sum, t.stream.URL) }

// complete checks length and checksum of a file that has ended after n bytes.
func (t *transfer) complete(ctx context.Context, n int64) error {
	if err := context.Cause(ctx); err != nil {
		return err
	}
	t.progress.enter(PhaseFinish)
	if err := t.stream.CheckLength(n); err != nil {
		return err
	}
	if err := t.verify(); err != nil {
		return err
	}
	if n == 0 {
		return &FormatError{Reason: fmt.Sprintf("image %s is empty", t.stream.URL)}
	}
	return nil
}

// write writes content to its place on the device. The first MiB is kept in memory.
func (o *output) write(p []byte, off int64) error {
	if off < device.HeadSize {
		n := copy(o.head[off:], p)
		p, off = p[n:], off+int64(n)
	}
	if len(p) == 0 {
		return nil
	}
	return o.disk.Write(p, off)
}

// finish makes the device bootable. head is the first MiB of the image. Everything else reaches the medium first, then
// the first MiB and the end of the device, and last the first sector, without which no firmware boots from the device.
func (o *output) finish(head []byte) error {
	if err := o.disk.Sync(); err != nil {
		return err
	}
	first := min(len(head), device.Align)
	if first < len(head) {
		if err := errors.Join(o.disk.Write(head[first:], int64(first)), o.disk.ReleaseEnd()); err != nil {
			return err
		}
		if err := o.disk.Sync(); err != nil {
			return err
		}
	}
	if err := o.disk.Write(head[:first], 0); err != nil {
		return err
	}
	return o.disk.Flush()
}

// report describes an image of size bytes that came in a file of n bytes.
func (t *transfer) report(format string, size, n int64) Report {
	return Report{
		URL: t.stream.URL, Format: format, Bytes: n, Size: size,
		Written: t.progress.written.Load(), Resumed: t.stream.Resumed,
		Checksum: checksum.Sum{Algorithm: t.checksum.Algorithm, Value: hex.EncodeToString(t.sum.Sum(nil))},
	}
}
