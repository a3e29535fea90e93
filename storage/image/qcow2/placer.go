package qcow2

import (
	"bytes"
	"context"
	"fmt"
	"slices"

	"ironroot/storage/image/device"
	"ironroot/storage/image/fetch"
)

// Output is the destination of a Placer.
type Output struct {
	Disk    *device.Disk // for zeros and the spool
	Content Content
	// Limit is the largest length of the file in bytes.
	Limit int64
	// Jobs is the number of jobs that run concurrently.
	Jobs int
	// SpoolMemory is the number of bytes that the spool keeps in memory.
	SpoolMemory int
}

// Content receives the content of the guest's disk.
type Content interface {
	// WriteContent writes a part to its place. It is called concurrently.
	WriteContent(p []byte, off int64) error
}

// Placer writes an image while its file arrives.
//
// Content is placed in one of three ways: as it arrives, at the end of the file where a cluster ends behind it, and
// out of the spool where it arrived before the table that names it. All of them write plain content with write and
// compressed clusters with clusters.put.
type Placer struct {
	output   Output
	m        *Map
	next     int            // index in m.Runs of the first run that has not begun
	open     []Run          // runs that have begun and not ended
	digests  []*tableDigest // of all tables that were fetched
	ahead    []*tableDigest // of tables that have not arrived as a whole
	window   window
	deferred *deferred // nil where all tables are known
	clusters *clusters
	buffer   []byte // of a compressed run that placeRun reads
}

// NewPlacer returns a Placer for the image with that layout, which it uses up. Close it after use.
func NewPlacer(l *Layout, o Output) (*Placer, error) {
	p := &Placer{output: o, m: l.Map, digests: l.digests, ahead: l.digests}
	if l.stream != nil {
		p.deferred = &deferred{tables: l.stream, spool: newSpool(o.Disk, l.Map.Header.Size, o.SpoolMemory)}
	}
	var err error
	if p.clusters, err = newClusters(l.Map.Header, o.Jobs, p); err != nil {
		return nil, err
	}
	return p, nil
}

// Close frees the memory of the decompressors.
func (p *Placer) Close() { p.clusters.close() }

// Abandon zeroes what the spool used of the disk, after a failure.
func (p *Placer) Abandon(ctx context.Context) error {
	if p.deferred == nil {
		return nil
	}
	return p.deferred.spool.clear(ctx)
}

// Place submits the jobs that write the content in a chunk of the file. Chunks come in order. data must not change
// until the jobs have run.
func (p *Placer) Place(off int64, data []byte, submit func(func() error) error) error {
	p.window.off, p.window.data = off, data
	if p.window.end() > p.output.Limit {
		return fileTooLong(p.output.Limit)
	}
	p.addDigests()
	if err := p.addTables(); err != nil || p.deferred.failed() {
		return err
	}
	var open []Run
	var batch []cluster
	flush := func() error {
		if len(batch) == 0 {
			return nil
		}
		full := batch
		batch = nil
		return submit(func() error { return p.clusters.put(full) })
	}
	runs := p.runs()
	for _, r := range runs {
		n := r.hostLen(p.m.Header)
		ends := r.Host+n <= p.window.end()
		if !ends {
			open = append(open, r)
		}
		switch {
		case !r.Compressed:
			guest, data := p.window.plain(r, n)
			if err := submit(func() error { return p.write(guest, data) }); err != nil {
				return err
			}
		case ends:
			if !p.clusters.follows(batch, r.Guest) {
				if err := flush(); err != nil {
					return err
				}
			}
			batch = append(batch, cluster{r.Guest, p.window.compressed(r, n)})
		}
	}
	if err := flush(); err != nil {
		return err
	}
	p.open = open
	p.window.keep(open)
	return p.spoolRest(runs)
}

// addDigests hashes what the present chunk contains of tables that were fetched.
func (p *Placer) addDigests() {
	for len(p.ahead) > 0 && p.ahead[0].end() <= p.window.off {
		p.ahead = p.ahead[1:]
	}
	for _, d := range p.ahead {
		if d.Off >= p.window.end() {
			return
		}
		d.add(p.window.off, p.window.data)
	}
}

// runs returns the runs that have bytes in the present chunk, those first that began before it.
func (p *Placer) runs() []Run {
	runs := p.open
	for p.next < len(p.m.Runs) && p.m.Runs[p.next].Host < p.window.end() {
		runs = append(runs, p.m.Runs[p.next])
		p.next++
	}
	return runs
}

// write writes plain content. The last cluster may reach over the end of the disk.
func (p *Placer) write(guest int64, data []byte) error {
	return p.output.Content.WriteContent(data[:min(int64(len(data)), max(0, p.m.Header.Size-guest))], guest)
}

// Finish places the rest after the file from url has ended at end and its checksum was right.
func (p *Placer) Finish(ctx context.Context, url string, end int64) error {
	for _, d := range p.digests {
		if !d.matches() {
			err := fmt.Errorf("the file changed between two requests: %d bytes of its tables differ", d.Len)
			return fetch.Interrupted(&fetch.DownloadError{URL: url, Err: err})
		}
	}
	if p.deferred != nil {
		if err := p.deferred.check(); err != nil {
			return err
		}
	}
	for _, r := range append(p.open, p.m.Runs[p.next:]...) {
		if err := p.placeLast(ctx, r, end); err != nil {
			return err
		}
	}
	if p.deferred != nil {
		if err := p.placeDeferred(ctx, end); err != nil {
			return err
		}
	}
	return p.clusters.err()
}

// placeLast places a run that the end of the file cuts off. The last cluster of a file need not be complete: what is
// missing reads as zeros.
func (p *Placer) placeLast(ctx context.Context, r Run, end int64) error {
	h := p.m.Header
	if !r.Compressed {
		from := max(r.Host, end) - r.Host + r.Guest
		to := min(r.Guest+r.hostLen(h), h.Size)
		if from >= to {
			return nil
		}
		return p.output.Disk.Zero(ctx, from, to-from)
	}
	if r.Host >= end {
		return broken("a cluster lies beyond the end of the file, which has %d bytes", end)
	}
	_, err := p.placeRun(r, end, p.window.read)
	return err
}

// placeRun places what read returns of a run: of a plain one what lies before end in the file, of a compressed one all
// that is there. It returns how many bytes of the run those were.
func (p *Placer) placeRun(r Run, end int64, read readFunc) (int64, error) {
	if r.Compressed {
		p.buffer = slices.Grow(p.buffer[:0], int(r.hostLen(p.m.Header)))[:r.hostLen(p.m.Header)]
		n, err := read(p.buffer, r.Host)
		if err != nil {
			return 0, err
		}
		return int64(n), p.clusters.put([]cluster{{r.Guest, p.buffer[:n]}})
	}
	t, giveBack := p.clusters.borrow()
	defer giveBack()
	var done int64
	for r.Host+done < end {
		data := t.buffer[:min(int64(len(t.buffer)), end-r.Host-done)]
		n, err := read(data, r.Host+done)
		if err == nil && n > 0 {
			err = p.write(r.Guest+done, data[:n])
		}
		if err != nil || n == 0 {
			return done, err
		}
		done += int64(n)
	}
	return done, nil
}

// readFunc fills p with what lies at off in the file, and returns how many bytes of it, from the beginning, were
// there.
type readFunc func(p []byte, off int64) (n int, err error)

// window is the part of the file that is in memory: a chunk, and what compressed runs that continue in the chunk need
// of the bytes before it.
type window struct {
	off   int64  // of the chunk in the file
	data  []byte // the chunk
	carry []byte // the bytes before the chunk; after keep, those before its end

	joined     Run // the compressed run that was last put together from carry and a chunk
	joinedData []byte
}

// end returns the end of the chunk in the file.
func (w *window) end() int64 { return w.off + int64(len(w.data)) }

// plain returns what the chunk contains of a plain run of n bytes, and its place on the disk.
func (w *window) plain(r Run, n int64) (guest int64, data []byte) {
	from, to := max(r.Host, w.off), min(r.Host+n, w.end())
	return r.Guest + from - r.Host, w.data[from-w.off : to-w.off]
}

// compressed returns a compressed run of n bytes that ends in the chunk.
func (w *window) compressed(r Run, n int64) []byte {
	end := r.Host + n - w.off
	if r.Host >= w.off {
		return w.data[r.Host-w.off : end]
	}
	if w.joined.Host != r.Host || w.joined.size != r.size {
		before := w.carry[int64(len(w.carry))-(w.off-r.Host):]
		w.joined, w.joinedData = r, bytes.Join([][]byte{before, w.data[:end]}, nil)
	}
	return w.joinedData
}

// keep copies what open compressed runs need of the chunk, because its memory is used again.
func (w *window) keep(open []Run) {
	first := int64(-1)
	for _, r := range open {
		if r.Compressed && (first < 0 || r.Host < first) {
			first = r.Host
		}
	}
	switch {
	case first < 0:
		w.carry = w.carry[:0]
	case first >= w.off:
		w.carry = append(w.carry[:0], w.data[first-w.off:]...)
	default:
		w.carry = append(w.carry[int64(len(w.carry))-(w.off-first):], w.data...)
	}
}

// read is a readFunc of what was kept.
func (w *window) read(p []byte, off int64) (int, error) {
	return copy(p, w.carry[int64(len(w.carry))-(w.end()-off):]), nil
}
