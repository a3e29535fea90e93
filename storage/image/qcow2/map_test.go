package qcow2

import (
	"bytes"
	"encoding/binary"
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

// header returns a header of version 3 with 512-byte clusters, a disk of 100 clusters and an L1 table at byte 512.
func header() []byte {
	b := make([]byte, 512)
	copy(b, Magic)
	b[7], b[23] = 3, 9
	binary.BigEndian.PutUint64(b[24:], 100*512)
	binary.BigEndian.PutUint32(b[36:], 2)
	binary.BigEndian.PutUint64(b[40:], 512)
	b[103] = 104
	return b
}

func TestMap(t *testing.T) {
	h, err := ParseHeader(header())
	if err != nil {
		t.Fatal(err)
	}
	if h.Size != 51200 || h.ClusterSize != 512 || h.L1Entries != 2 || h.tableSpan() != 64*512 {
		t.Fatalf("got header %+v", h)
	}
	m := &Map{Header: h}
	l1 := make([]byte, 16)
	binary.BigEndian.PutUint64(l1[8:], 1<<63|1024)
	tables, err := m.parseL1(l1)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]l2Table{{Offset: 1024, Guest: 64 * 512}}, tables); diff != "" {
		t.Error(diff)
	}
	l2 := make([]byte, 512)
	put := func(i int, entry uint64) { binary.BigEndian.PutUint64(l2[8*i:], entry) }
	put(0, 1<<63|8192)
	put(1, 1<<63|8192+512)
	put(2, 1<<62|1<<61|5000) // compressed, two sectors from byte 5000
	put(3, 8192+1024|1)      // zero cluster with room of its own
	put(4, 1<<63|4096)
	if err := m.parseL2(64*512, l2); err != nil {
		t.Fatal(err)
	}
	m.finish()
	want := []Run{
		{Host: 4096, Guest: 68 * 512, size: 1},
		{Host: 5000, Guest: 66 * 512, size: 2*512 - 5000%512, Compressed: true},
		{Host: 8192, Guest: 64 * 512, size: 2},
	}
	if diff := cmp.Diff(want, m.Runs, cmp.AllowUnexported(Run{})); diff != "" {
		t.Error(diff)
	}
	holes := []Range{{0, 64 * 512}, {67 * 512, 512}, {69 * 512, 31 * 512}}
	if diff := cmp.Diff(holes, m.Holes, cmpopts.EquateEmpty()); diff != "" {
		t.Error(diff)
	}
}

func TestEntriesRefused(t *testing.T) {
	for name, c := range map[string]struct {
		version byte
		entry   uint64
	}{
		"cluster not aligned":     {3, 1<<63 | 1<<9 | 1<<10},
		"zero flag in version 2":  {2, 1},
		"compressed at byte zero": {3, 1 << 62},
	} {
		b := header()
		b[7] = c.version
		if name == "cluster not aligned" {
			b[23] = 16
			binary.BigEndian.PutUint64(b[40:], 1<<16)
		}
		h, err := ParseHeader(b)
		if err != nil {
			t.Fatal(err)
		}
		l2 := make([]byte, h.ClusterSize)
		binary.BigEndian.PutUint64(l2, c.entry)
		var refusal *Error
		if err := (&Map{Header: h}).parseL2(0, l2); !errors.As(err, &refusal) {
			t.Errorf("%s: got error %v, want a refusal", name, err)
		}
	}
}

// FuzzTables reads arbitrary bytes as header, L1 table and L2 tables of one file.
func FuzzTables(f *testing.F) {
	b := append(header(), make([]byte, 4096)...)
	binary.BigEndian.PutUint64(b[512:], 1024)
	binary.BigEndian.PutUint64(b[1024:], 2048)
	binary.BigEndian.PutUint64(b[1032:], 1<<62|3000)
	f.Add(b)
	extended := append(header(), make([]byte, 3<<14)...)
	extended[23], extended[79] = 14, 1<<4
	binary.BigEndian.PutUint64(extended[24:], 100<<9)
	binary.BigEndian.PutUint64(extended[40:], 1<<14)
	binary.BigEndian.PutUint64(extended[1<<14:], 1<<15)
	binary.BigEndian.PutUint64(extended[1<<15:], 1<<14)
	binary.BigEndian.PutUint64(extended[1<<15+8:], 0xf0<<32|0x0f)
	f.Add(extended)
	f.Fuzz(func(t *testing.T, file []byte) {
		h, err := ParseHeader(file)
		if err != nil || h.L1Offset+int64(h.L1Entries)*8 > int64(len(file)) {
			return
		}
		m := &Map{Header: h}
		tables, err := m.parseL1(file[h.L1Offset:][:h.L1Entries*8])
		if err != nil {
			return
		}
		for _, table := range tables {
			if table.Offset+h.ClusterSize > int64(len(file)) ||
				m.parseL2(table.Guest, file[table.Offset:][:h.ClusterSize]) != nil {
				return
			}
		}
		m.finish()
		checkMap(t, m)
	})
}

// checkMap fails unless every byte of the disk is in exactly one run or hole.
func checkMap(t *testing.T, m *Map) {
	var covered int64
	for _, hole := range m.Holes {
		if hole.Len <= 0 || hole.Off < 0 || hole.Off+hole.Len > m.Header.Size {
			t.Fatalf("hole %+v outside a disk of %d bytes", hole, m.Header.Size)
		}
		covered += hole.Len
	}
	for _, r := range m.Runs {
		n := r.hostLen(m.Header)
		if r.Compressed {
			n = m.Header.ClusterSize
		}
		if r.hostLen(m.Header) <= 0 || r.Host < 0 || r.Guest < 0 || r.Guest >= m.Header.Size {
			t.Fatalf("run %+v outside a disk of %d bytes", r, m.Header.Size)
		}
		covered += min(n, m.Header.Size-r.Guest)
	}
	if covered != m.Header.Size {
		t.Fatalf("%d of %d bytes of the disk are in runs and holes", covered, m.Header.Size)
	}
}

func FuzzDecompress(f *testing.F) {
	f.Add([]byte{1, 2, 3}, false)
	f.Add([]byte("\x28\xb5\x2f\xfd"), true)
	f.Fuzz(func(t *testing.T, packed []byte, zstd bool) {
		h := &Header{ClusterSize: 4096}
		if zstd {
			h.Compression = Zstd
		}
		d, err := newDecompressor(h)
		if err != nil {
			t.Fatal(err)
		}
		defer d.close()
		one, two := make([]byte, h.ClusterSize), make([]byte, h.ClusterSize)
		if d.cluster(one, packed) != nil {
			return
		}
		if err := d.cluster(two, append(bytes.Clone(packed), 0, 1, 2)); err != nil || !bytes.Equal(one, two) {
			t.Errorf("padding behind the data changes what comes out: %v", err)
		}
	})
}
