package mkfs

import (
	"cmp"
	"encoding/binary"
	"slices"
)

// headers returns the start of a group after the superblock: headers and trees of its free space and its inodes.
func (x *xfs) headers(g int64) []byte {
	b := make([]byte, (x.header+xfsTrees)*xfsBlock)
	sector := func(n int64) []byte { return b[n*x.sector:][:x.sector] }
	free := x.free(g)
	x.putSpace(sector(1), g, free)
	x.putInodeHeader(sector(2), g)
	x.putReserve(sector(3), g)

	be := binary.BigEndian
	var byPlace, byLength, inodes []byte
	for _, s := range free {
		byPlace = be.AppendUint32(be.AppendUint32(byPlace, uint32(s.start)), uint32(s.n))
	}
	slices.SortFunc(free, func(a, b span) int { return cmp.Compare(a.n, b.n) })
	for _, s := range free {
		byLength = be.AppendUint32(be.AppendUint32(byLength, uint32(s.start)), uint32(s.n))
	}
	if g == 0 {
		inodes = be.AppendUint32(inodes, uint32(x.rootInode()))
		inodes = append(inodes, 0, 0, xfsChunk, xfsChunk-xfsUsedInodes) // no holes
		inodes = be.AppendUint64(inodes, ^uint64(1<<xfsUsedInodes-1))
	}
	for i, tree := range []struct {
		magic   string
		records []byte
		size    int // bytes of a record
	}{
		{"AB3B", byPlace, 8},
		{"AB3C", byLength, 8},
		{"IAB3", inodes, 16},
		{"FIB3", inodes, 16}, // chunks with free inodes
		{"R3FC", nil, 12},    // shared extents
	} {
		block := x.header + int64(i)
		x.putTree(b[block*xfsBlock:][:xfsBlock], g, block, tree.magic, tree.records, len(tree.records)/tree.size)
	}
	return b
}

// putTree writes the root block of a tree (xfs_btree_sblock), which is its only one.
func (x *xfs) putTree(b []byte, g, block int64, magic string, records []byte, count int) {
	be := binary.BigEndian
	copy(b, magic)
	be.PutUint16(b[6:], uint16(count))
	be.PutUint32(b[8:], xfsNull)
	be.PutUint32(b[12:], xfsNull)
	be.PutUint64(b[16:], uint64((g*x.group+block)*xfsBlock/512))
	copy(b[32:], x.v.uuid)
	be.PutUint32(b[48:], uint32(g))
	copy(b[56:], records)
	xfsSeal(b, 52)
}

// putSpace encodes the header of free space.
func (x *xfs) putSpace(b []byte, g int64, free []span) {
	var sum, longest int64
	for _, s := range free {
		sum, longest = sum+s.n, max(longest, s.n)
	}
	be := binary.BigEndian
	copy(b, "XAGF")
	for at, value := range map[int]int64{
		4: 1, 8: g, 12: x.length(g),
		16: x.header, 20: x.header + 1, 28: 1, 32: 1, // the trees of free space and their heights
		40: 1, 44: xfsReserve, 48: xfsReserve, // first, last and number of the reserve's blocks
		52: sum, 56: longest,
		84: 1, 88: x.header + 4, 92: 1, // the tree of shared extents
	} {
		be.PutUint32(b[at:], uint32(value))
	}
	copy(b[64:], x.v.uuid)
	xfsSeal(b, 216)
}

// putInodeHeader writes the header of inodes (xfs_agi).
func (x *xfs) putInodeHeader(b []byte, g int64) {
	be := binary.BigEndian
	copy(b, "XAGI")
	count, free, newest := int64(0), int64(0), int64(xfsNull)
	if g == 0 {
		count, free, newest = xfsChunk, xfsChunk-xfsUsedInodes, x.rootInode()
	}
	for at, value := range map[int]int64{
		4: 1, 8: g, 12: x.length(g), 16: count, 20: x.header + 2, 24: 1, 28: free, 32: newest, 36: xfsNull,
		328: x.header + 3, 332: 1, 336: 1, 340: 1, // the tree of free inodes, blocks of both
	} {
		be.PutUint32(b[at:], uint32(value))
	}
	for at := 40; at < 296; at += 4 { // lists of inodes without a name
		be.PutUint32(b[at:], xfsNull)
	}
	copy(b[296:], x.v.uuid)
	xfsSeal(b, 312)
}

// putReserve writes the list of a group's reserve (xfs_agfl).
func (x *xfs) putReserve(b []byte, g int64) {
	be := binary.BigEndian
	copy(b, "XAFL")
	be.PutUint32(b[4:], uint32(g))
	copy(b[8:], x.v.uuid)
	for at := 36; at < len(b); at += 4 {
		be.PutUint32(b[at:], xfsNull)
	}
	for i := range xfsReserve {
		be.PutUint32(b[40+4*i:], uint32(x.reserve(g))+uint32(i))
	}
	xfsSeal(b, 32)
}
