package image

import (
	"fmt"

	"ironroot/storage/image/qcow2"
)

// passing reads the tables of a qcow2 image as they pass.
type passing struct {
	header *qcow2.Header
	url    string // for errors
	limit  int64  // of the file's length
	total  int64  // length of the file, -1 unknown
	table  extent // the next one
	have   []byte // of it
	first  bool   // it is the L1 table
	ahead  []qcow2.Table
}

// newPassing begins with the L1 table. The answer is the whole file.
func newPassing(h *qcow2.Header, b *stream, limit int64) (*passing, error) {
	p := &passing{header: h, url: b.url, limit: limit, total: b.total, table: extent{h.L1Offset, int64(h.L1Entries) * 8}, first: true}
	return p, p.check(p.table)
}

// check refuses a table that cannot be in the file.
func (p *passing) check(table extent) error {
	if table.end() > p.limit {
		return fileTooLong(formatQcow2, p.limit)
	}
	if p.total >= 0 && table.end() > p.total {
		return tableMissing(table, p.url)
	}
	return nil
}

// tableMissing returns the error of a file that ends before a table does. The offset of the table is content of the
// file, which must not appear in errors.
func tableMissing(table extent, url string) error {
	return &FormatError{Format: formatQcow2, Reason: fmt.Sprintf(
		"qcow2 image: a table of %d bytes lies beyond the end of the file %s", table.len, url)}
}

// done reports whether all tables have passed.
func (p *passing) done() bool { return p.table.len == 0 }

// pass looks at a piece of the file; pieces come in order, the first one may come twice. It returns what the tables that
// end in it say. Tables that lie before the piece were not known to be tables when they passed: earlier reads them.
func (p *passing) pass(off int64, data []byte, earlier func(p []byte, off int64) (int, error)) (*qcow2.Map, error) {
	m := &qcow2.Map{Header: p.header}
	for !p.done() {
		if p.table.off < off && len(p.have) == 0 {
			p.have = make([]byte, min(p.table.len, off-p.table.off))
			if n, err := earlier(p.have, p.table.off); err != nil {
				return nil, err
			} else if n < len(p.have) {
				return nil, fmt.Errorf("%w: the table at byte %d passed before it was known to be one", errOnePass, p.table.off)
			}
		}
		if missing := p.table.len - int64(len(p.have)); missing > 0 {
			from := p.table.end() - missing - off
			if from >= int64(len(data)) {
				return m, nil
			}
			p.have = append(p.have, data[from:min(from+missing, int64(len(data)))]...)
			if int64(len(p.have)) < p.table.len {
				return m, nil
			}
		}
		if err := p.take(m); err != nil {
			return nil, err
		}
	}
	return m, nil
}

// take reads the table that is there in whole, and goes on to the next one.
func (p *passing) take(m *qcow2.Map) (err error) {
	if p.first {
		p.first = false
		if p.ahead, err = m.Tables(p.have); err != nil {
			return qcowRefusal(err)
		}
		for _, table := range p.ahead {
			if err := p.check(extent{table.Offset, p.header.ClusterSize}); err != nil {
				return err
			}
		}
	} else {
		for ; len(p.ahead) > 0 && p.ahead[0].Offset == p.table.off; p.ahead = p.ahead[1:] {
			if err := m.Add(p.ahead[0].Guest, p.have); err != nil {
				return qcowRefusal(err)
			}
		}
	}
	p.have, p.table = p.have[:0], extent{}
	if len(p.ahead) > 0 {
		p.table = extent{p.ahead[0].Offset, p.header.ClusterSize}
	}
	return nil
}
