package image

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"ironroot/storage/image/qcow2"
)

// late is what an image needs whose tables are read as they pass: what of the file no table has told the place of yet is
// spooled, and goes to its place at the end.
type late struct {
	tables  *passing
	spool   *spool
	pieces  []piece
	missing bool  // there were tables to come when the present chunk began
	refused error // a table makes no sense; what follows is read for its checksum only
}

// piece is a run that began to pass before it was known.
type piece struct {
	qcow2.Run
	upto int64 // in the file: what of a plain run lies before it is in the spool
}

// beginTables reads those tables that are in the beginning of the file. The others come with the rest.
func (w *writer) beginTables(x *examined, h *qcow2.Header) (err error) {
	if x.passing, err = newPassing(h, x.stream, maxFile(w.target.size)); err != nil {
		return err
	}
	x.m, err = x.passing.pass(0, x.head, nil)
	if err == nil {
		x.m.Finish()
	}
	return err
}

// passTables reads the tables in c.
func (u *unpacker) passTables(c *chunk) error {
	l := u.late
	if l == nil || l.failed() {
		return nil
	}
	if l.missing = !l.tables.done(); !l.missing {
		return nil
	}
	m, err := l.tables.pass(c.off, c.data, l.spool.read)
	if err == nil {
		err = u.learn(m, c.off)
	}
	if errors.As(err, new(*FormatError)) {
		l.refused, err = err, nil
	}
	return err
}

// failed tells that nothing is to be placed any more.
func (l *late) failed() bool { return l != nil && l.refused != nil }

// learn adds what tables have told after the file has passed up to off.
func (u *unpacker) learn(m *qcow2.Map, off int64) error {
	l, h := u.late, u.m.Header
	ahead := m.Runs[:0]
	for _, r := range m.Runs {
		end := r.Host + r.HostLen(h)
		if r.Host >= off || !r.Compressed && end > off {
			ahead = append(ahead, r)
		}
		if r.Host >= off {
			continue
		}
		if len(l.pieces) >= qcow2.MaxRuns {
			return fmt.Errorf("%w: more than %d pieces of it came before the tables that tell their places", errOnePass, len(l.pieces))
		}
		l.pieces = append(l.pieces, piece{r, min(end, off)})
	}
	u.m.Runs, u.next = slices.Delete(u.m.Runs, 0, u.next), 0
	if err := u.m.Join(&qcow2.Map{Runs: ahead, Holes: m.Holes}); err != nil {
		return qcowRefusal(err)
	}
	u.m.Finish()
	return nil
}

// spoolRest keeps what of c is in none of the runs known by now. That goes for the chunk with the last table as well: a
// compressed run that began before it is not longer than a chunk.
func (u *unpacker) spoolRest(c *chunk, runs []qcow2.Run) error {
	l, h := u.late, u.m.Header
	if l == nil || !l.missing {
		return nil
	}
	slices.SortFunc(runs, func(a, b qcow2.Run) int { return cmp.Compare(a.Host, b.Host) })
	// covered is what known runs have for sure, reach what may be theirs: where a compressed cluster ends in its last
	// sector the next one begins, and that may be one that nobody knows yet.
	covered, reach := c.off, c.off
	gap := func(end int64) error {
		if end <= reach {
			return nil
		}
		return l.spool.add(covered, c.data[covered-c.off:end-c.off])
	}
	for _, r := range runs {
		if err := gap(min(r.Host, c.end())); err != nil {
			return err
		}
		end := r.Host + r.HostLen(h)
		reach = max(reach, end)
		if r.Compressed {
			end -= qcow2.Sector
		}
		covered = max(covered, min(end, c.end()))
	}
	if reach == c.end() {
		reach = covered
	}
	return gap(c.end())
}

// settled returns what is wrong with the tables of a file that has ended.
func (l *late) settled() error {
	if l.refused == nil && !l.tables.done() {
		return tableMissing(l.tables.table, l.tables.url)
	}
	return l.refused
}

// finishLate brings the rest to its place after the file has ended at end and its checksum has held.
func (u *unpacker) finishLate(ctx context.Context, end int64) error {
	l := u.late
	for _, p := range l.pieces {
		if err := context.Cause(ctx); err != nil {
			return err
		}
		place := u.placeLate
		if p.Compressed {
			place = u.unpackLate
		}
		if err := place(p, end); err != nil {
			return err
		}
	}
	if err := u.w.zeroHoles(ctx, u.m); err != nil {
		return err
	}
	return l.spool.clear(ctx)
}

func (u *unpacker) placeLate(p piece, _ int64) error {
	buffer := u.w.memory[0].buffer
	for host, guest := p.Host, p.Guest; host < p.upto; {
		data := buffer[:min(int64(len(buffer)), p.upto-host)]
		n, err := u.late.spool.read(data, host)
		if err == nil && n == 0 {
			err = passedBefore(host)
		}
		if err == nil {
			err = u.write(guest, data[:n])
		}
		if err != nil {
			return err
		}
		host, guest = host+int64(n), guest+int64(n)
	}
	return nil
}

func (u *unpacker) unpackLate(p piece, end int64) error {
	data := u.w.memory[0].buffer[:p.HostLen(u.m.Header)]
	n, err := u.late.spool.read(data, p.Host)
	if err != nil {
		return err
	}
	sound := u.corrupt == nil
	if err := u.unpackBatch([]packed{{p.Guest, data[:n]}}); err != nil {
		return err
	}
	if sound && u.corrupt != nil && p.Host+int64(n) < min(end, p.Host+int64(len(data))) {
		return passedBefore(p.Host + int64(n))
	}
	return nil
}

// passedBefore is about a part of the file that more than one table names, or that the last cluster of one ends in.
func passedBefore(off int64) error {
	return fmt.Errorf("%w: byte %d of it was used when another table named it", errOnePass, off)
}
