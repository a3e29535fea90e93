package mkfs

import (
	"context"
	"encoding/binary"
	"errors"
)

// Flags of a group descriptor. A bitmap that is not initialised stands for no used blocks or inodes.
const (
	inodesUninit = 1
	blocksUninit = 2
)

var errNoRoom = errors.New("the device is too small for what the file system itself needs")

// take marks n blocks as used, the first free ones.
func (e *ext) take(n int64) ([]span, error) {
	var got []span
	at := e.first
	for i := 0; n > 0 && at < e.blocks; i++ {
		next := span{start: e.blocks}
		if i < len(e.used) {
			next = e.used[i]
		}
		if free := min(next.start-at, n); free > 0 {
			got, n = append(got, span{at, free}), n-free
			e.used = append(e.used[:i], append([]span{{at, free}}, e.used[i:]...)...)
			i++
		}
		at = next.end()
	}
	if n > 0 {
		return nil, errNoRoom
	}
	return got, nil
}

// makeGroups writes the bitmaps and sets the descriptors. The kernel initialises the inode tables of ext4 after the
// first mount; ext2 and ext3 have no flag for that.
func (e *ext) makeGroups(ctx context.Context) error {
	e.desc = make([]byte, e.descBlocks*e.block)
	rest := e.used
	for g := range e.groups {
		if err := context.Cause(ctx); err != nil {
			return err
		}
		var own []span
		own, rest = cut(rest, e.start(g), e.end(g))
		if err := e.makeGroup(ctx, g, own); err != nil {
			return err
		}
	}
	return nil
}

// cut returns the parts of spans between two blocks, and the spans that do not end before the second.
func cut(spans []span, from, to int64) (within, rest []span) {
	for len(spans) > 0 && spans[0].start < to {
		start, end := max(from, spans[0].start), min(to, spans[0].end())
		within = append(within, span{start, end - start})
		if spans[0].end() > to {
			break
		}
		spans = spans[1:]
	}
	return within, spans
}

// makeGroup writes the metadata of a group; own are its used blocks.
func (e *ext) makeGroup(ctx context.Context, g int64, own []span) error {
	var inUse int64
	for _, s := range own {
		inUse += s.n
	}
	desc := e.desc[g*e.descSize:][:e.descSize]
	d := extDescriptor{flags: 0, freeBlocks: e.end(g) - e.start(g) - inUse, freeInodes: e.inodesGroup}
	if g == 0 {
		d.freeInodes -= firstFree
		d.folders = 2
	}
	// The kernel computes a bitmap that is not there from the superblock's copy alone; the end of the last group has to be
	// marked in one that is there.
	if e.modern && g%e.flex != 0 && g != e.groups-1 && inUse == e.superBlocks(g) {
		d.flags |= blocksUninit
	} else {
		bits := make([]byte, e.block)
		for _, s := range own {
			setBits(bits, s.start-e.start(g), s.end()-e.start(g))
		}
		setBits(bits, e.end(g)-e.start(g), 8*e.block)
		d.blockSum = checksum(e.seed, bits[:e.perGroup/8])
		if err := e.write(bits, e.blockBitmap(g)); err != nil {
			return err
		}
	}
	if e.modern && g != 0 {
		d.flags |= inodesUninit
	} else if err := e.makeInodeBitmap(ctx, g, &d); err != nil {
		return err
	}
	d.unused = d.freeInodes
	e.putDescriptor(desc, g, d)
	return nil
}

// makeInodeBitmap writes the bitmap of inodes, and zeros as the rest of the inode table where it is not to be left to
// the kernel.
func (e *ext) makeInodeBitmap(ctx context.Context, g int64, d *extDescriptor) error {
	bits, table := make([]byte, e.block), int64(0)
	if g == 0 {
		setBits(bits, 0, firstFree)
		table = int64(len(e.inodes)) / e.block
	}
	setBits(bits, e.inodesGroup, 8*e.block)
	d.inodeSum = checksum(e.seed, bits[:e.inodesGroup/8])
	if !e.modern {
		if err := e.d.Zero(ctx, (e.table(g)+table)*e.block, (e.tableBlocks-table)*e.block); err != nil {
			return err
		}
	}
	return e.write(bits, e.inodeBitmap(g))
}

// setBits sets the bits in [from, to).
func setBits(bits []byte, from, to int64) {
	for ; from < to && from%8 != 0; from++ {
		bits[from/8] |= 1 << (from % 8)
	}
	for ; from+8 <= to; from += 8 {
		bits[from/8] = 0xff
	}
	for ; from < to; from++ {
		bits[from/8] |= 1 << (from % 8)
	}
}

// extDescriptor is what differs between group descriptors, apart from places.
type extDescriptor struct {
	flags                  uint16
	freeBlocks, freeInodes int64
	folders                uint16
	unused                 int64 // inodes at the end of the table that were never used
	blockSum, inodeSum     uint32
}

// putDescriptor writes struct ext4_group_desc.
func (e *ext) putDescriptor(b []byte, g int64, d extDescriptor) {
	le := binary.LittleEndian
	for i, at := range []int64{e.blockBitmap(g), e.inodeBitmap(g), e.table(g)} {
		le.PutUint32(b[4*i:], uint32(at))
		if e.modern {
			le.PutUint32(b[32+4*i:], uint32(at>>32))
		}
	}
	le.PutUint16(b[12:], uint16(d.freeBlocks))
	le.PutUint16(b[14:], uint16(d.freeInodes))
	le.PutUint16(b[16:], d.folders)
	le.PutUint16(b[18:], d.flags)
	if !e.modern {
		return
	}
	le.PutUint16(b[24:], uint16(d.blockSum))
	le.PutUint16(b[56:], uint16(d.blockSum>>16))
	le.PutUint16(b[26:], uint16(d.inodeSum))
	le.PutUint16(b[58:], uint16(d.inodeSum>>16))
	le.PutUint16(b[28:], uint16(d.unused))
	number := le.AppendUint32(nil, uint32(g))
	le.PutUint16(b[30:], uint16(checksum(checksum(e.seed, number), b)))
}
