package qcow2

import (
	"cmp"
	"context"
	"encoding/binary"
	"slices"

	"ironroot/storage/image/device"
)

const (
	offsetMask     = 0x00fffffffffffe00 // bits 9 to 55 of an L1 or L2 entry
	flagCompressed = 1 << 62
	flagZero       = 1 << 0
)

// sectorSize is the unit in bytes of the length of a compressed cluster. The next cluster can begin in the last sector
// of another.
const sectorSize = 512

// maxRuns is the largest number of runs and of holes in a map. It limits the memory to 48 MiB for each. Two million
// compressed clusters of the usual size are a guest disk of 128 GiB without a hole.
const maxRuns = 2 << 20

var (
	errRuns  = broken("it is in more than %d pieces, which is more than is supported", maxRuns)
	errHoles = broken("it has more than %d holes, which is more than is supported", maxRuns)
)

// l2Table says where an L2 table lies, and what it describes.
type l2Table struct {
	Offset int64 // in the file; the table is one cluster long
	Guest  int64 // first byte of the guest's disk that it describes
}

// Run is a range of the file that holds content of the guest's disk. Its zero value is empty.
type Run struct {
	Host, Guest int64  // first byte in the file, and on the guest's disk
	size        uint32 // in bytes if compressed, otherwise in grains of the header
	Compressed  bool   // the range decompresses to one cluster
}

// hostLen returns the length of the run in the file. A compressed run has whole sectors: the last one can end behind
// the compressed data, and even behind the file.
func (r Run) hostLen(h *Header) int64 {
	if r.Compressed {
		return int64(r.size)
	}
	return int64(r.size) * h.grain()
}

// Range is a range of bytes, of the guest's disk or of the file.
type Range struct{ Off, Len int64 }

func (r Range) end() int64 { return r.Off + r.Len }

// Map says where the content of the guest's disk lies in the file.
type Map struct {
	Header *Header
	Runs   []Run   // sorted by Host after finish; a part of the file may be in several
	Holes  []Range // parts of the disk that read as zeros; sorted and merged after finish
}

// parseL1 parses an L1 table and returns its L2 tables, sorted by their offset in the file. Parts of the guest's disk
// without a table are added to the holes.
func (m *Map) parseL1(l1 []byte) ([]l2Table, error) {
	h := m.Header
	if len(l1) != h.L1Entries*8 {
		return nil, broken("L1 table: got %d bytes, want %d", len(l1), h.L1Entries*8)
	}
	var tables []l2Table
	for i := range h.L1Entries {
		entry := binary.BigEndian.Uint64(l1[i*8:])
		guest := int64(i) * h.tableSpan()
		offset := int64(entry & offsetMask)
		if offset == 0 {
			if err := m.hole(guest, h.tableSpan()); err != nil {
				return nil, err
			}
			continue
		}
		if offset%h.ClusterSize != 0 {
			return nil, broken("the offset of L2 table %d is not a multiple of the cluster size", i)
		}
		tables = append(tables, l2Table{Offset: offset, Guest: guest})
	}
	slices.SortFunc(tables, func(a, b l2Table) int {
		return cmp.Or(cmp.Compare(a.Offset, b.Offset), cmp.Compare(a.Guest, b.Guest))
	})
	return tables, nil
}

// parseL2 parses the L2 table that describes the disk from guest on.
func (m *Map) parseL2(guest int64, l2 []byte) error {
	h := m.Header
	if int64(len(l2)) != h.ClusterSize {
		return broken("L2 table: got %d bytes, want %d", len(l2), h.ClusterSize)
	}
	for ; len(l2) > 0 && guest < h.Size; l2, guest = l2[h.entrySize():], guest+h.ClusterSize {
		entry, bitmap := binary.BigEndian.Uint64(l2), uint64(0)
		if h.extended {
			bitmap = binary.BigEndian.Uint64(l2[8:])
		}
		if err := m.addEntry(guest, entry, bitmap); err != nil {
			return err
		}
	}
	return nil
}

func (m *Map) addEntry(guest int64, entry, bitmap uint64) error {
	h := m.Header
	if entry&flagCompressed != 0 {
		return m.addCompressed(guest, entry)
	}
	if h.extended {
		return m.addSubclusters(guest, int64(entry&offsetMask), bitmap)
	}
	if entry&flagZero != 0 && h.Version < 3 {
		return broken("the cluster at byte %d of the disk has the zero flag, which version 2 does not define", guest)
	}
	offset := int64(entry & offsetMask)
	if offset == 0 || entry&flagZero != 0 {
		return m.hole(guest, h.ClusterSize)
	}
	return m.plain(guest, offset)
}

// addSubclusters parses the bitmap of an extended entry. Its lower half marks the parts of the cluster that have
// content, its upper half those that read as zeros. Parts with neither mark belong to the backing file, which does
// not exist.
func (m *Map) addSubclusters(guest, offset int64, bitmap uint64) error {
	h := m.Header
	content, zeros := uint32(bitmap), uint32(bitmap>>32)
	if content&zeros != 0 || content != 0 && offset == 0 {
		return broken("the cluster at byte %d of the disk has an offset and a bitmap that contradict each other", guest)
	}
	for i := range subclusters {
		skip := int64(i) * h.grain()
		if guest+skip >= h.Size {
			return nil
		}
		var err error
		if content>>i&1 != 0 {
			err = m.plain(guest+skip, offset+skip)
		} else {
			err = m.hole(guest+skip, h.grain())
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// plain adds an uncompressed part of the disk.
func (m *Map) plain(guest, offset int64) error {
	h := m.Header
	if (offset-guest)%h.ClusterSize != 0 {
		return broken("the offset of the cluster at byte %d of the disk is not a multiple of the cluster size", guest)
	}
	if n := len(m.Runs); n > 0 && m.Runs[n-1].continues(h, guest, offset) {
		m.Runs[n-1].size++
		return nil
	}
	return m.run(Run{Host: offset, Guest: guest, size: 1})
}

// continues reports whether an uncompressed cluster follows r immediately, on the disk and in the file.
func (r Run) continues(h *Header, guest, host int64) bool {
	n := r.hostLen(h)
	return !r.Compressed && r.size < 1<<31 && r.Guest+n == guest && r.Host+n == host
}

func (m *Map) addCompressed(guest int64, entry uint64) error {
	// The lower bits are the offset, which need not be aligned. The bits above are the number of sectors after the
	// first.
	bits := 62 - (m.Header.clusterBits - 8)
	offset := int64(entry & (1<<bits - 1))
	sectors := int64(entry&(flagCompressed-1)>>bits) + 1
	if offset == 0 || offset > 1<<56 {
		return broken("the offset of the compressed cluster at byte %d of the disk is out of range", guest)
	}
	return m.run(Run{
		Host: offset, Guest: guest, size: uint32(sectors*sectorSize - offset%sectorSize), Compressed: true,
	})
}

func (m *Map) run(r Run) error {
	if len(m.Runs) >= maxRuns {
		return errRuns
	}
	m.Runs = append(m.Runs, r)
	return nil
}

func (m *Map) hole(guest, n int64) error {
	n = min(n, m.Header.Size-guest)
	if last := len(m.Holes) - 1; last >= 0 && m.Holes[last].Off+m.Holes[last].Len == guest {
		m.Holes[last].Len += n
		return nil
	}
	if len(m.Holes) >= maxRuns {
		return errHoles
	}
	m.Holes = append(m.Holes, Range{guest, n})
	return nil
}

// join adds another map of the same disk. Call finish afterwards.
func (m *Map) join(more *Map) error {
	if len(m.Runs)+len(more.Runs) > maxRuns {
		return errRuns
	}
	if len(m.Holes)+len(more.Holes) > maxRuns {
		return errHoles
	}
	m.Runs, m.Holes = append(m.Runs, more.Runs...), append(m.Holes, more.Holes...)
	return nil
}

// finish sorts the map after the last table.
func (m *Map) finish() {
	slices.SortFunc(m.Runs, func(a, b Run) int {
		return cmp.Or(cmp.Compare(a.Host, b.Host), cmp.Compare(a.Guest, b.Guest))
	})
	slices.SortFunc(m.Holes, func(a, b Range) int { return cmp.Compare(a.Off, b.Off) })
	merged := m.Holes[:0]
	for _, hole := range m.Holes {
		if last := len(merged) - 1; last >= 0 && merged[last].Off+merged[last].Len == hole.Off {
			merged[last].Len += hole.Len
			continue
		}
		merged = append(merged, hole)
	}
	m.Holes = merged
}

// Layout says where the content of an image lies in its file, before the file arrives.
type Layout struct {
	Map *Map // all of it, or what the tables at the beginning of the file describe

	digests []*tableDigest // of tables that were fetched, sorted by their place in the file
	stream  *tableStream   // of tables that arrive with the file; nil if all are known
}

// Streamed reports whether tables arrive with the file. Then the holes of the image are zeroed at its end.
func (l *Layout) Streamed() bool { return l.stream != nil }

// ZeroHoles zeroes what the image has no content for.
func (m *Map) ZeroHoles(ctx context.Context, t *device.Disk) error {
	for _, hole := range m.Holes {
		if err := t.Zero(ctx, hole.Off, hole.Len); err != nil {
			return err
		}
	}
	return nil
}
