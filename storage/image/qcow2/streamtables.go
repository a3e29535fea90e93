package qcow2

import (
	"fmt"

	"ironroot/storage/image/fetch"
)

// tableStream reads the tables of an image from the chunks of its file, which come in order.
type tableStream struct {
	header  *Header
	url     string // for errors
	limit   int64  // of the file's length
	total   int64  // length of the file, -1 unknown
	table   Range  // the next table; empty after the last one
	content []byte // of table, as far as it has arrived
	isL1    bool   // table is the L1 table
	ahead   []l2Table
}

// StreamLayout reads those tables that are in head, the beginning of the file that s reads. The others are read while
// the file arrives. A file of more than limit bytes is refused.
func StreamLayout(h *Header, s *fetch.Stream, head []byte, limit int64) (*Layout, error) {
	t := &tableStream{
		header: h, url: s.URL, limit: limit, total: s.Total,
		table: Range{h.L1Offset, int64(h.L1Entries) * 8}, isL1: true,
	}
	if err := t.check(t.table); err != nil {
		return nil, err
	}
	m, err := t.add(0, head, nil)
	if err != nil {
		return nil, err
	}
	m.finish()
	return &Layout{Map: m, stream: t}, nil
}

// check refuses a table that cannot be in the file.
func (t *tableStream) check(table Range) error {
	if table.end() > t.limit {
		return fileTooLong(t.limit)
	}
	if t.total >= 0 && table.end() > t.total {
		return tableMissing(table.Len, t.url)
	}
	return nil
}

// done reports whether all tables have been read.
func (t *tableStream) done() bool { return t.table.Len == 0 }

// add reads the tables that end in a chunk of the file, and returns what they describe. The first chunk may come
// twice. Tables that lie before the chunk arrived before it was known that they are tables: earlier reads them.
func (t *tableStream) add(off int64, data []byte, earlier readFunc) (*Map, error) {
	m := &Map{Header: t.header}
	for !t.done() {
		if t.table.Off < off && len(t.content) == 0 {
			t.content = make([]byte, min(t.table.Len, off-t.table.Off))
			if n, err := earlier(t.content, t.table.Off); err != nil {
				return nil, err
			} else if n < len(t.content) {
				return nil, fmt.Errorf("%w: the table at byte %d precedes the table that names it",
					ErrOnePass, t.table.Off)
			}
		}
		if missing := t.table.Len - int64(len(t.content)); missing > 0 {
			from := t.table.end() - missing - off
			if from >= int64(len(data)) {
				return m, nil
			}
			t.content = append(t.content, data[from:min(from+missing, int64(len(data)))]...)
			if int64(len(t.content)) < t.table.Len {
				return m, nil
			}
		}
		if err := t.parse(m); err != nil {
			return nil, err
		}
	}
	return m, nil
}

// parse adds what the table in content describes to m, and continues with the next table.
func (t *tableStream) parse(m *Map) (err error) {
	if t.isL1 {
		t.isL1 = false
		if t.ahead, err = m.parseL1(t.content); err != nil {
			return err
		}
		for _, table := range t.ahead {
			if err := t.check(Range{table.Offset, t.header.ClusterSize}); err != nil {
				return err
			}
		}
	} else {
		for ; len(t.ahead) > 0 && t.ahead[0].Offset == t.table.Off; t.ahead = t.ahead[1:] {
			if err := m.parseL2(t.ahead[0].Guest, t.content); err != nil {
				return err
			}
		}
	}
	t.content, t.table = t.content[:0], Range{}
	if len(t.ahead) > 0 {
		t.table = Range{t.ahead[0].Offset, t.header.ClusterSize}
	}
	return nil
}
