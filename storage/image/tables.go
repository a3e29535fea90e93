package image

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"hash"
	"io"
	"net/http"

	"ironroot/storage/image/qcow2"
)

// skipLimit is the largest gap between two tables that is read over: a request of its own takes as long.
const skipLimit = 1 << 20

// partReader reads parts of a file, in ascending order, by range requests; where the server knows none, from the file's
// whole stream, leaving out what lies between.
type partReader struct {
	w     *writer
	url   string
	limit int64 // of the file's length
	body  *body
	pos   int64 // of the body's next byte
	end   int64 // of what the body will bring, -1 unknown
}

// maxFile limits the length of a qcow2 or packed file in bytes: twice the disk, and 64 MiB. A file is longer than its
// content by its tables, and by internal snapshots, of which nothing is used; without a limit a server could send for
// ever.
func maxFile(disk int64) int64 { return 2*disk + 64<<20 }

func fileTooLong(format string, limit int64) error {
	return &FormatError{Format: format, Reason: fmt.Sprintf(
		"%s image: the file is too long, for this disk %d bytes are accepted at most", format, limit)}
}

// read fills p from off. ahead is where the caller will have read on to, at least the end of p.
func (r *partReader) read(ctx context.Context, p []byte, off, ahead int64) error {
	if off+int64(len(p)) > r.limit {
		return fileTooLong(formatQcow2, r.limit)
	}
	if r.body != nil && (off < r.pos || r.body.partial && off+int64(len(p)) > r.end) {
		r.close()
	}
	if r.body == nil {
		b, err := r.w.fetch.open(ctx, r.url, &span{off: off, len: ahead - off})
		var down *DownloadError
		if errors.As(err, &down) && down.Status == http.StatusRequestedRangeNotSatisfiable {
			return tableMissing(extent{off, int64(len(p))}, down.URL)
		} else if err != nil {
			return err
		}
		r.body, r.pos, r.end = b, 0, -1
		if b.partial {
			r.pos, r.end = off, ahead
		}
	}
	skipped, err := io.CopyN(io.Discard, r.body, off-r.pos)
	r.pos += skipped
	if err == nil {
		var n int
		n, err = io.ReadFull(r.body, p)
		r.pos += int64(n)
	}
	if atEnd(err) {
		return tableMissing(extent{off, int64(len(p))}, r.body.url)
	}
	return err
}

func (r *partReader) close() {
	if r.body != nil {
		r.body.Close() //nolint:errcheck // nothing more is wanted from it
		r.body = nil
	}
}

// fetchMap reads the tables of a qcow2 image. The seals say what they were.
func (w *writer) fetchMap(ctx context.Context, url string, h *qcow2.Header, head []byte) (*qcow2.Map, []*seal, error) {
	r := &partReader{w: w, url: url, limit: maxFile(w.target.size)}
	defer r.close()
	m := &qcow2.Map{Header: h}
	first := head[:min(len(head), 4096)]
	l1 := make([]byte, h.L1Entries*8)
	if err := r.read(ctx, l1, h.L1Offset, h.L1Offset+int64(len(l1))); err != nil {
		return nil, nil, err
	}
	seals := []*seal{newSeal(0, first), newSeal(h.L1Offset, l1)}
	tables, err := m.Tables(l1)
	if err != nil {
		return nil, nil, qcowRefusal(err)
	}
	l2 := make([]byte, h.ClusterSize)
	for i, table := range tables {
		if i == 0 || table.Offset != tables[i-1].Offset {
			if err := r.read(ctx, l2, table.Offset, readAhead(tables[i:], h.ClusterSize)); err != nil {
				return nil, nil, err
			}
			seals = append(seals, newSeal(table.Offset, l2))
		}
		if err := m.Add(table.Guest, l2); err != nil {
			return nil, nil, qcowRefusal(err)
		}
	}
	m.Finish()
	return m, seals, nil
}

// readAhead returns where the tables end that are worth fetching in one request with the first of them.
func readAhead(tables []qcow2.Table, size int64) int64 {
	end := tables[0].Offset + size
	for _, table := range tables[1:] {
		if table.Offset-end > skipLimit {
			break
		}
		end = max(end, table.Offset+size)
	}
	return end
}

// seal remembers what a part of the file was when the tables were fetched. The checksum covers what passes later, so
// that has to be the same.
type seal struct {
	extent
	want [sha256.Size]byte
	sum  hash.Hash // while the part passes
	seen int64
	same bool
}

func newSeal(off int64, data []byte) *seal {
	return &seal{extent: extent{off, int64(len(data))}, want: sha256.Sum256(data)}
}

// pass looks at a piece of the file; pieces come in order.
func (s *seal) pass(off int64, data []byte) {
	from, to := max(s.off, off), min(s.end(), off+int64(len(data)))
	if from >= to {
		return
	}
	if s.sum == nil {
		s.sum = sha256.New()
	}
	s.sum.Write(data[from-off : to-off]) //nolint:errcheck // a hash never fails
	if s.seen += to - from; s.seen == s.len {
		s.same = [sha256.Size]byte(s.sum.Sum(nil)) == s.want
		s.sum = nil // there can be many tables
	}
}

// holds reports whether the part has passed in whole and was the same.
func (s *seal) holds() bool { return s.len == 0 || s.same }
