package partition

import (
	"context"
	"encoding/binary"
	"errors"
	"testing"

	"ironroot/internal/test/testenv"
)

// tableSector returns a sector with the table of an MBR or of an extended partition.
func tableSector(entries ...mbrEntry) []byte {
	sector := make([]byte, 512)
	for i, e := range entries {
		putMBREntry(sector, i, e)
	}
	binary.LittleEndian.PutUint16(sector[510:], 0xaa55)
	return sector
}

// putMBREntry writes an entry into a table's sector.
func putMBREntry(sector []byte, slot int, e mbrEntry) {
	raw := sector[mbrTable+16*slot:][:16]
	raw[0], raw[4] = e.boot, e.kind
	binary.LittleEndian.PutUint32(raw[8:], uint32(e.first))
	binary.LittleEndian.PutUint32(raw[12:], uint32(e.size))
}

// chainImage returns a disk of 32 MiB with an extended partition from sector 64 to its end. Table n of the chain is in
// sector 64+4n.
func chainImage(t *testing.T, tables ...[]byte) string {
	t.Helper()
	image := testenv.SparseFile(t, 32*mib)
	writeAt(t, image, 0, tableSector(mbrEntry{kind: 0x05, first: 64, size: 32*mib/512 - 64}))
	var chain []byte
	for _, table := range tables {
		chain = append(append(chain, table...), make([]byte, 3*512)...)
	}
	writeAt(t, image, 64*512, chain)
	return image
}

// links returns a chain of tables. Every table whose number is a multiple of every names a logical partition.
func links(count, every int) [][]byte {
	tables := make([][]byte, count)
	for n := range tables {
		var entries [2]mbrEntry
		if n%every == 0 {
			entries[0] = mbrEntry{kind: 0x83, first: 1, size: 3}
		}
		if n < count-1 {
			entries[1] = mbrEntry{kind: 0x05, first: int64(4 * (n + 1)), size: 4}
		}
		tables[n] = tableSector(entries[:]...)
	}
	return tables
}

// The chain of an extended partition is followed as Linux does (parse_extended in block/partitions/msdos.c), which
// limits the number of tables.
func TestLogicalPartitions(t *testing.T) {
	data := mbrEntry{kind: 0x83, first: 1, size: 1}
	link := func(n int) mbrEntry { return mbrEntry{kind: 0x0f, first: int64(4 * n), size: 4} }
	badStatus := tableSector(mbrEntry{boot: 0x55, kind: 0x83, first: 1, size: 1}, link(1))
	asFAT := tableSector(data, link(1))
	copy(asFAT[54:], "FAT16")
	for _, tt := range []struct {
		name              string
		tables            [][]byte
		partitions, chain int
	}{
		{"three", links(3, 1), 3, 3},
		{"255 partitions", links(260, 1), 251, 251},
		{"100 empty links", links(102, 101), 1, 101},
		{"99 empty links", links(102, 100), 2, 102},
		{"no partition at all", links(5000, 5000)[1:], 0, 100},
		{"link first", [][]byte{tableSector(link(1), data), tableSector(data)}, 2, 2},
		{"link last", [][]byte{tableSector(data, mbrEntry{}, data, link(1)), tableSector(data)}, 3, 2},
		{"two links", [][]byte{tableSector(data, link(2), link(1)), tableSector(data), tableSector(data, data)}, 3, 2},
		{"backwards", [][]byte{tableSector(data, link(2)), tableSector(data), tableSector(data, link(1))}, 3, 3},
		{"garbage", [][]byte{
			tableSector(data, link(1), mbrEntry{kind: 1, first: 1, size: 1 << 30}), tableSector(data),
		}, 2, 2},
		{
			"garbage in a link",
			[][]byte{tableSector(data, link(1)), tableSector(data, mbrEntry{}, mbrEntry{kind: 1, first: 1, size: 4})},
			2, 2,
		},
		{"type 0", [][]byte{tableSector(mbrEntry{first: 1, size: 1}, link(1)), tableSector(data)}, 2, 2},
		{"status", [][]byte{badStatus, tableSector(data)}, 2, 2},
		{"FAT", [][]byte{asFAT, tableSector(data)}, 2, 2},
		{"no signature", [][]byte{tableSector(data, link(1)), make([]byte, 512)}, 1, 1},
		{"beyond the disk", [][]byte{tableSector(data, link(1<<24))}, 1, 1},
	} {
		t.Run(tt.name, func(t *testing.T) {
			table := read(t, chainImage(t, tt.tables...))
			got := len(table.Partitions) - 1
			if got != tt.partitions || len(table.LogicalTables) != tt.chain {
				t.Errorf("got %d logical partitions of %d tables, want %d of %d",
					got, len(table.LogicalTables), tt.partitions, tt.chain)
			}
			for i, p := range table.Partitions[1:] {
				if p.Number != 5+i || (p.Start/512-64)%4 != 1 {
					t.Errorf("got %+v, want number %d one sector behind its table", p, 5+i)
				}
			}
		})
	}
}

// A chain that leads back to its start names its partitions once. In Linux, they repeat up to number 255.
func TestLogicalLoop(t *testing.T) {
	tables := links(3, 1)
	putMBREntry(tables[2], 1, mbrEntry{kind: 0x05, first: 0, size: 4})
	if table := read(t, chainImage(t, tables...)); len(table.Partitions) != 4 || len(table.LogicalTables) != 3 {
		t.Errorf("got %+v, want three logical partitions", table)
	}
}

// Reading logical partitions ends with the context.
func TestLogicalCancelled(t *testing.T) {
	d := shrunk(t, chainImage(t, links(3, 1)...), 32*mib)
	cancelled, cancel := context.WithCancel(t.Context())
	cancel()
	if table, err := d.read(cancelled); !errors.Is(err, context.Canceled) {
		t.Errorf("got %+v and %v, want %v", table, err, context.Canceled)
	}
}
