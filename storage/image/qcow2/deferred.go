package qcow2

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
)

// deferred holds the state of an image whose tables arrive in the stream. Clusters that arrive before the table that
// names them are spooled, and placed at the end.
type deferred struct {
	tables  *tableStream
	spool   *spool
	pieces  []piece
	pending bool  // tables were missing when the present chunk began
	refused error // a table is invalid; the rest of the file is read for its checksum only
}

// piece is a run that began to arrive before it was known.
type piece struct {
	Run
	end int64 // in the file: of the part that is in the spool
}

// failed reports whether nothing is placed any more.
func (d *deferred) failed() bool { return d != nil && d.refused != nil }

// addTables reads the tables in the present chunk.
func (p *Placer) addTables() error {
	d := p.deferred
	if d == nil || d.failed() {
		return nil
	}
	if d.pending = !d.tables.done(); !d.pending {
		return nil
	}
	m, err := d.tables.add(p.window.off, p.window.data, d.spool.read)
	if err == nil {
		err = p.addMap(m, p.window.off)
	}
	if errors.As(err, new(*Error)) {
		d.refused, err = err, nil
	}
	return err
}

// addMap adds what tables describe after the file has arrived up to off.
func (p *Placer) addMap(m *Map, off int64) error {
	d, h := p.deferred, p.m.Header
	ahead := m.Runs[:0]
	for _, r := range m.Runs {
		end := r.Host + r.hostLen(h)
		if r.Host >= off || !r.Compressed && end > off {
			ahead = append(ahead, r)
		}
		if r.Host >= off {
			continue
		}
		if len(d.pieces) >= maxRuns {
			return tooManyPieces(len(d.pieces))
		}
		d.pieces = append(d.pieces, piece{r, min(end, off)})
	}
	p.m.Runs, p.next = slices.Delete(p.m.Runs, 0, p.next), 0
	if err := p.m.join(&Map{Runs: ahead, Holes: m.Holes}); err != nil {
		return err
	}
	p.m.finish()
	return nil
}

// spoolRest spools what the present chunk contains beside the known runs. That includes the chunk with the last
// table: a compressed cluster that began before that table is not longer than a chunk.
func (p *Placer) spoolRest(runs []Run) error {
	d, h, w := p.deferred, p.m.Header, &p.window
	if d == nil || !d.pending {
		return nil
	}
	slices.SortFunc(runs, func(a, b Run) int { return cmp.Compare(a.Host, b.Host) })
	// covered is the end of what certainly belongs to known runs, reach the end of what may: the next compressed
	// cluster can begin in the last sector of another one, and may be unknown yet.
	covered, reach := w.off, w.off
	gap := func(end int64) error {
		if end <= reach {
			return nil
		}
		return d.spool.add(covered, w.data[covered-w.off:end-w.off])
	}
	for _, r := range runs {
		if err := gap(min(r.Host, w.end())); err != nil {
			return err
		}
		end := r.Host + r.hostLen(h)
		reach = max(reach, end)
		if r.Compressed {
			end -= sectorSize
		}
		covered = max(covered, min(end, w.end()))
	}
	if reach == w.end() {
		reach = covered
	}
	return gap(w.end())
}

// check returns what is wrong with the tables of a file that has ended.
func (d *deferred) check() error {
	if d.refused == nil && !d.tables.done() {
		return tableMissing(d.tables.table.Len, d.tables.url)
	}
	return d.refused
}

// placeDeferred places what is in the spool, after the file has ended at end and its checksum was right.
func (p *Placer) placeDeferred(ctx context.Context, end int64) error {
	d := p.deferred
	for _, one := range d.pieces {
		if err := context.Cause(ctx); err != nil {
			return err
		}
		intact := p.clusters.err() == nil
		n, err := p.placeRun(one.Run, one.end, d.spool.read)
		if err != nil {
			return err
		}
		missing := one.Host + n
		if !one.Compressed && missing < one.end {
			return usedBefore(missing)
		}
		damaged := intact && p.clusters.err() != nil
		if damaged && missing < min(end, one.Host+one.hostLen(p.m.Header)) {
			return usedBefore(missing)
		}
	}
	if err := p.m.ZeroHoles(ctx, p.output.Disk); err != nil {
		return err
	}
	return d.spool.clear(ctx)
}

// usedBefore returns the error of a part of the file that several tables name, or in which the last cluster of one
// ends.
func usedBefore(off int64) error {
	return fmt.Errorf("%w: byte %d of it was used when another table named it", ErrOnePass, off)
}
