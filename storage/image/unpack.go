package image

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"ironroot/storage/image/qcow2"
)

// batchSize is how many unpacked bytes are written at once where they follow each other on the disk.
const batchSize = 1 << 20

// unpacker writes a qcow2 image while its file passes by.
type unpacker struct {
	w     *writer
	m     *qcow2.Map
	next  int         // of m.Runs, the first that has not begun yet
	open  []qcow2.Run // begun, and not at their end yet
	carry []byte      // what of the file before the present chunk belongs to open compressed runs
	seals []*seal
	ahead []*seal // those that have not passed in whole
	late  *late   // what depends on tables that come with the file; nil where all are known
	tools chan *tool

	joined      qcow2.Run // the compressed run that was last put together from carry and a chunk
	joinedBytes []byte

	mu      sync.Mutex
	corrupt error // the first cluster that could not be unpacked
}

// tool is what one job needs to unpack clusters.
type tool struct {
	*qcow2.Decompressor
	buffer []byte
}

// readTables finds out where the content of a qcow2 image lies.
func (w *writer) readTables(ctx context.Context, x *examined) error {
	h, err := qcow2.ParseHeader(x.head)
	if err != nil {
		return qcowRefusal(err)
	}
	if h.Size > w.target.size {
		return &TooSmallError{Device: w.device, Size: w.target.size, Need: h.Size}
	}
	w.progress.enter(PhasePrepare)
	if x.stream != nil {
		return w.beginTables(x, h)
	}
	if x.m, x.seals, err = w.fetchMap(ctx, x.rawURL, h, x.head); err != nil {
		return err
	}
	w.log.Info("qcow2 tables read", "url", x.url, "size", h.Size, "pieces", len(x.m.Runs), "holes", len(x.m.Holes))
	return nil
}

// zeroHoles zeroes what the image has no content for.
func (w *writer) zeroHoles(ctx context.Context, m *qcow2.Map) error {
	for _, hole := range m.Holes {
		if err := w.target.zero(ctx, extent{hole.Off, hole.Len}); err != nil {
			return err
		}
	}
	return nil
}

func newUnpacker(w *writer, x *examined) (*unpacker, error) {
	slices.SortFunc(x.seals, func(a, b *seal) int { return cmp.Compare(a.off, b.off) })
	u := &unpacker{w: w, m: x.m, seals: x.seals, ahead: x.seals, tools: make(chan *tool, writers)}
	if x.passing != nil {
		u.late = &late{tables: x.passing, spool: newSpool(w.target, x.m.Header.Size, w.spooled)}
	}
	for range writers {
		d, err := qcow2.NewDecompressor(x.m.Header)
		if err != nil {
			u.close()
			return nil, fmt.Errorf("unpack qcow2 clusters: %w", err)
		}
		u.tools <- &tool{Decompressor: d}
	}
	return u, nil
}

func (u *unpacker) close() {
	close(u.tools)
	for t := range u.tools {
		t.Close()
	}
}

// unpack writes a qcow2 image out of its file, which is read once.
func (w *writer) unpack(ctx context.Context, b *stream, x *examined) (report Report, err error) {
	clear(w.head)
	sum, err := w.src.Checksum.hash()
	if err != nil {
		return Report{}, err
	}
	u, err := newUnpacker(w, x)
	if err != nil {
		return Report{}, err
	}
	defer u.close()
	defer func() {
		if err != nil && ctx.Err() == nil && u.late != nil {
			err = errors.Join(err, u.late.spool.clear(ctx))
		}
	}()
	w.begin(b)
	p := &pipeline{source: b, sum: sum, place: u.place, memory: w.memory}
	end, err := p.run(ctx)
	if err != nil {
		return Report{}, broken(err)
	}
	if err := w.complete(ctx, b, end, sum); err != nil {
		return Report{}, err
	}
	if err := u.finish(ctx, b, end); err != nil {
		return Report{}, err
	}
	if err := w.finish(w.head[:min(headSize, u.m.Header.Size)]); err != nil {
		return Report{}, err
	}
	return w.report(b, formatQcow2, u.m.Header.Size, end, sum), nil
}

// finish deals with what depends on where the file ended: its checksum has held by now.
func (u *unpacker) finish(ctx context.Context, b *stream, end int64) error {
	for _, s := range u.seals {
		if !s.holds() {
			return broken(&DownloadError{URL: b.url, Err: fmt.Errorf("the file changed between two requests: %d bytes of its tables differ", s.len)})
		}
	}
	if u.late != nil {
		if err := u.late.settled(); err != nil {
			return err
		}
	}
	// The last cluster of a file need not be there in whole: what is missing reads as zeros.
	for _, r := range append(u.open, u.m.Runs[u.next:]...) {
		if err := u.finishRun(ctx, r, end); err != nil {
			return err
		}
	}
	if u.late != nil {
		if err := u.finishLate(ctx, end); err != nil {
			return err
		}
	}
	if u.corrupt != nil {
		return &FormatError{Format: formatQcow2, Reason: "qcow2 image: " + u.corrupt.Error()}
	}
	return nil
}

func (u *unpacker) finishRun(ctx context.Context, r qcow2.Run, end int64) error {
	h := u.m.Header
	if !r.Compressed {
		from := max(r.Host, end) - r.Host + r.Guest
		to := min(r.Guest+r.HostLen(h), h.Size)
		if from >= to {
			return nil
		}
		return u.w.target.zero(ctx, extent{from, to - from})
	}
	if r.Host >= end {
		return &FormatError{Format: formatQcow2, Reason: fmt.Sprintf("qcow2 image: a cluster lies beyond the end of the file, which has %d bytes", end)}
	}
	return u.unpackBatch([]packed{{r.Guest, u.carry[int64(len(u.carry))-(end-r.Host):]}})
}
