package qcow2

import (
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"hash"
	"io"
	"net/http"
	"slices"

	"ironroot/storage/image/fetch"
)

// maxSkip is the largest gap between two tables that is read over: a request of its own takes as long.
const maxSkip = 1 << 20

// FetchLayout reads the tables of the image at url. head is the beginning of the file. A file of more than limit
// bytes is refused.
func FetchLayout(
	ctx context.Context, f *fetch.Fetcher, url fetch.URL, h *Header, head []byte, limit int64,
) (*Layout, error) {
	r := &rangeReader{fetcher: f, url: url, limit: limit}
	defer r.close()
	m := &Map{Header: h}
	l1 := make([]byte, h.L1Entries*8)
	if err := r.read(ctx, l1, h.L1Offset, h.L1Offset+int64(len(l1))); err != nil {
		return nil, err
	}
	digests := []*tableDigest{newTableDigest(0, head[:min(len(head), 4096)]), newTableDigest(h.L1Offset, l1)}
	tables, err := m.parseL1(l1)
	if err != nil {
		return nil, err
	}
	l2 := make([]byte, h.ClusterSize)
	for i, table := range tables {
		if i == 0 || table.Offset != tables[i-1].Offset {
			if err := r.read(ctx, l2, table.Offset, readAhead(tables[i:], h.ClusterSize)); err != nil {
				return nil, err
			}
			digests = append(digests, newTableDigest(table.Offset, l2))
		}
		if err := m.parseL2(table.Guest, l2); err != nil {
			return nil, err
		}
	}
	m.finish()
	slices.SortFunc(digests, func(a, b *tableDigest) int { return cmp.Compare(a.Off, b.Off) })
	return &Layout{Map: m, digests: digests}, nil
}

// readAhead returns the end of the tables that are worth fetching in one request with the first of them.
func readAhead(tables []l2Table, size int64) int64 {
	end := tables[0].Offset + size
	for _, table := range tables[1:] {
		if table.Offset-end > maxSkip {
			break
		}
		end = max(end, table.Offset+size)
	}
	return end
}

// rangeReader reads parts of a file, in ascending order, by range requests. If the server ignores ranges, it reads the
// whole file and skips what lies between the parts.
type rangeReader struct {
	fetcher  *fetch.Fetcher
	url      fetch.URL
	limit    int64 // of the file's length
	response *fetch.Response
	pos      int64 // in the file, of the next byte of the response
	end      int64 // of the range that the response contains, -1 unknown
}

// read fills p from off. ahead is the end of what the caller will read in order, at least the end of p.
func (r *rangeReader) read(ctx context.Context, p []byte, off, ahead int64) error {
	if off+int64(len(p)) > r.limit {
		return fileTooLong(r.limit)
	}
	if r.response != nil && (off < r.pos || r.response.Partial && off+int64(len(p)) > r.end) {
		r.close()
	}
	if r.response == nil {
		resp, err := r.fetcher.Open(ctx, r.url, &fetch.Range{Off: off, Len: ahead - off})
		var down *fetch.DownloadError
		if errors.As(err, &down) && down.Status == http.StatusRequestedRangeNotSatisfiable {
			return tableMissing(int64(len(p)), down.URL)
		} else if err != nil {
			return err
		}
		r.response, r.pos, r.end = resp, 0, -1
		if resp.Partial {
			r.pos, r.end = off, ahead
		}
	}
	skipped, err := io.CopyN(io.Discard, r.response, off-r.pos)
	r.pos += skipped
	if err == nil {
		var n int
		n, err = io.ReadFull(r.response, p)
		r.pos += int64(n)
	}
	if fetch.AtEnd(err) {
		return tableMissing(int64(len(p)), r.response.URL)
	}
	return err
}

func (r *rangeReader) close() {
	if r.response != nil {
		r.response.Close() //nolint:errcheck // nothing more is read from it
		r.response = nil
	}
}

// fileTooLong returns the error of a file of more than limit bytes.
func fileTooLong(limit int64) error {
	return broken("the file is too long, for this disk %d bytes are accepted at most", limit)
}

// tableMissing returns the error of a file that ends before a table of n bytes does. The offset of the table is
// content of the file, which must not appear in errors.
func tableMissing(n int64, url string) error {
	return broken("a table of %d bytes lies beyond the end of the file %s", n, url)
}

// tableDigest is the digest of a part of the file at the time when the tables were fetched. The checksum of the image
// covers the bytes that arrive later, so the part must be the same then.
type tableDigest struct {
	Range
	want [sha256.Size]byte
	sum  hash.Hash // while the part arrives
	seen int64
	same bool
}

func newTableDigest(off int64, data []byte) *tableDigest {
	return &tableDigest{Range: Range{off, int64(len(data))}, want: sha256.Sum256(data)}
}

// add hashes what a chunk of the file contains of the part. Chunks come in order.
func (d *tableDigest) add(off int64, data []byte) {
	from, to := max(d.Off, off), min(d.end(), off+int64(len(data)))
	if from >= to {
		return
	}
	if d.sum == nil {
		d.sum = sha256.New()
	}
	d.sum.Write(data[from-off : to-off]) //nolint:errcheck // a hash never fails
	if d.seen += to - from; d.seen == d.Len {
		d.same = [sha256.Size]byte(d.sum.Sum(nil)) == d.want
		d.sum = nil // there can be many tables
	}
}

// matches reports whether the whole part has arrived and was the same.
func (d *tableDigest) matches() bool { return d.Len == 0 || d.same }
