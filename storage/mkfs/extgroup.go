package mkfs

import (
	"context"
	"encoding/binary"
	"errors"

	"ironroot/internal/ondisk"
)

// Flags of a group descriptor. A bitmap that is not initialised stands for no used blocks or inodes.
const (
	inodesUninit = 1
	blocksUninit = 2
)

var errNoSpace = errors.New("device is too small for the metadata of the file system")

// allocate marks the first n free blocks as used and returns them.
func (e *ext) allocate(n int64) ([]span, error) {
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
		return nil, errNoSpace
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
	d := extUsage{freeBlocks: e.end(g) - e.start(g) - inUse, freeInodes: e.inodesGroup}
	if g == 0 {
		d.freeInodes -= firstFree
		d.directories = 2
	}
	// The kernel computes an uninitialised bitmap from the superblock's copy alone. The last group needs an
	// initialised one, in which the blocks after the end of the file system are marked.
	if e.isExt4 && g%e.flex != 0 && g != e.groups-1 && inUse == e.superBlocks(g) {
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
	if e.isExt4 && g != 0 {
		d.flags |= inodesUninit
	} else if err := e.makeInodeBitmap(ctx, g, &d); err != nil {
		return err
	}
	d.unused = d.freeInodes
	e.putDescriptor(desc, g, d)
	return nil
}

// makeInodeBitmap writes the inode bitmap. On ext2 and ext3 it also zeroes the rest of the inode table.
func (e *ext) makeInodeBitmap(ctx context.Context, g int64, d *extUsage) error {
	bits, table := make([]byte, e.block), int64(0)
	if g == 0 {
		setBits(bits, 0, firstFree)
		table = int64(len(e.inodes)) / e.block
	}
	setBits(bits, e.inodesGroup, 8*e.block)
	d.inodeSum = checksum(e.seed, bits[:e.inodesGroup/8])
	if !e.isExt4 {
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

// extUsage holds the fields that differ between group descriptors, except for positions.
type extUsage struct {
	flags                  uint16
	freeBlocks, freeInodes int64
	directories            uint16
	unused                 int64 // inodes at the end of the table that have never been used
	blockSum, inodeSum     uint32
}

// extDescriptor is a group descriptor (struct ext4_group_desc). Without the feature 64bit it ends before
// BlockBitmapHigh.
type extDescriptor struct {
	BlockBitmap     uint32
	InodeBitmap     uint32
	InodeTable      uint32
	FreeBlocks      uint16
	FreeInodes      uint16
	Directories     uint16
	Flags           uint16
	ExcludeBitmap   uint32
	BlockSum        uint16
	InodeSum        uint16
	UnusedInodes    uint16
	Checksum        uint16
	BlockBitmapHigh uint32
	InodeBitmapHigh uint32
	InodeTableHigh  uint32
	_               [12]byte
	BlockSumHigh    uint16
	InodeSumHigh    uint16
	_               [4]byte
}

// putDescriptor encodes a group descriptor.
func (e *ext) putDescriptor(b []byte, g int64, u extUsage) {
	blocks, inodes, table := e.blockBitmap(g), e.inodeBitmap(g), e.table(g)
	d := extDescriptor{
		BlockBitmap: uint32(blocks), InodeBitmap: uint32(inodes), InodeTable: uint32(table),
		FreeBlocks: uint16(u.freeBlocks), FreeInodes: uint16(u.freeInodes), Directories: u.directories, Flags: u.flags,
	}
	if e.isExt4 {
		d.BlockBitmapHigh, d.InodeBitmapHigh = uint32(blocks>>32), uint32(inodes>>32)
		d.InodeTableHigh = uint32(table >> 32)
		d.BlockSum, d.BlockSumHigh = uint16(u.blockSum), uint16(u.blockSum>>16)
		d.InodeSum, d.InodeSumHigh = uint16(u.inodeSum), uint16(u.inodeSum>>16)
		d.UnusedInodes = uint16(u.unused)
	}
	all := ondisk.Append(nil, binary.LittleEndian, d)
	if e.isExt4 {
		number := binary.LittleEndian.AppendUint32(nil, uint32(g))
		d.Checksum = uint16(checksum(checksum(e.seed, number), all))
		ondisk.Encode(all, binary.LittleEndian, d)
	}
	copy(b, all)
}
