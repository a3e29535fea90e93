package mkfs

import (
	"cmp"
	"encoding/binary"
	"slices"

	"ironroot/internal/ondisk"
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
	var byStart, byLength, inodes []byte
	for _, s := range free {
		byStart = be.AppendUint32(be.AppendUint32(byStart, uint32(s.start)), uint32(s.n))
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
		{"AB3B", byStart, 8},
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

// xfsTree is the header of a block of a tree (struct xfs_btree_sblock).
type xfsTree struct {
	Magic       [4]byte
	Level       uint16
	Records     uint16
	Left, Right uint32
	Block       uint64 // of 512 bytes
	LastWrite   uint64
	UUID        [16]byte
	Group       uint32
	Checksum    uint32
}

const xfsTreeSize = 56 // bytes

// putTree encodes the root block of a tree, which is its only one.
func (x *xfs) putTree(b []byte, g, block int64, magic string, records []byte, count int) {
	ondisk.Encode(b, binary.BigEndian, xfsTree{
		Magic: [4]byte([]byte(magic)), Records: uint16(count), Left: xfsNull, Right: xfsNull,
		Block: uint64((g*x.group + block) * xfsBlock / 512), UUID: [16]byte(x.v.uuid), Group: uint32(g),
	})
	copy(b[xfsTreeSize:], records)
	putXFSChecksum(b, 52)
}

// xfsSpace is the header of a group's free space (struct xfs_agf).
type xfsSpace struct {
	Magic                              [4]byte
	Version                            uint32
	Group                              uint32
	Length                             uint32
	ByStartRoot, ByLengthRoot          uint32
	OwnerRoot                          uint32
	ByStartLevels, ByLengthLevels      uint32
	OwnerLevels                        uint32
	ReserveFirst, ReserveLast, Reserve uint32 // entries of xfsReserveList
	FreeBlocks                         uint32
	Longest                            uint32
	TreeBlocks                         uint32
	UUID                               [16]byte
	OwnerBlocks                        uint32
	SharedBlocks                       uint32
	SharedRoot                         uint32
	SharedLevels                       uint32
	_                                  [14]uint64
	LastWrite                          uint64
	Checksum                           uint32
}

// putSpace encodes the header of free space.
func (x *xfs) putSpace(b []byte, g int64, free []span) {
	var sum, longest int64
	for _, s := range free {
		sum, longest = sum+s.n, max(longest, s.n)
	}
	ondisk.Encode(b, binary.BigEndian, xfsSpace{
		Magic: [4]byte([]byte("XAGF")), Version: 1, Group: uint32(g), Length: uint32(x.length(g)),
		ByStartRoot: uint32(x.header), ByLengthRoot: uint32(x.header + 1), ByStartLevels: 1, ByLengthLevels: 1,
		ReserveFirst: 1, ReserveLast: xfsReserve, Reserve: xfsReserve,
		FreeBlocks: uint32(sum), Longest: uint32(longest),
		UUID: [16]byte(x.v.uuid), SharedBlocks: 1, SharedRoot: uint32(x.header + 4), SharedLevels: 1,
	})
	putXFSChecksum(b, 216)
}

// xfsInodeHeader is the header of a group's inodes (struct xfs_agi).
type xfsInodeHeader struct {
	Magic                  [4]byte
	Version                uint32
	Group                  uint32
	Length                 uint32
	Inodes                 uint32
	Root, Levels           uint32
	FreeInodes             uint32
	Newest                 uint32
	Directory              uint32
	Unlinked               [64]uint32 // lists of unlinked inodes
	UUID                   [16]byte
	Checksum               uint32
	_                      uint32
	LastWrite              uint64
	FreeRoot, FreeLevels   uint32
	TreeBlocks, FreeBlocks uint32
}

// putInodeHeader encodes the header of inodes.
func (x *xfs) putInodeHeader(b []byte, g int64) {
	h := xfsInodeHeader{
		Magic: [4]byte([]byte("XAGI")), Version: 1, Group: uint32(g), Length: uint32(x.length(g)),
		Root: uint32(x.header + 2), Levels: 1, Newest: xfsNull, Directory: xfsNull, UUID: [16]byte(x.v.uuid),
		FreeRoot: uint32(x.header + 3), FreeLevels: 1, TreeBlocks: 1, FreeBlocks: 1,
	}
	if g == 0 {
		h.Inodes, h.FreeInodes, h.Newest = xfsChunk, xfsChunk-xfsUsedInodes, uint32(x.rootInode())
	}
	for i := range h.Unlinked {
		h.Unlinked[i] = xfsNull
	}
	ondisk.Encode(b, binary.BigEndian, h)
	putXFSChecksum(b, 312)
}

// xfsReserveList is the header of the list of a group's reserved blocks (struct xfs_agfl). Block numbers follow.
type xfsReserveList struct {
	Magic     [4]byte
	Group     uint32
	UUID      [16]byte
	LastWrite uint64
	Checksum  uint32
}

const xfsReserveListSize = 36 // bytes

// putReserve encodes the list of a group's reserved blocks, whose first entry is not used.
func (x *xfs) putReserve(b []byte, g int64) {
	ondisk.Encode(b, binary.BigEndian, xfsReserveList{
		Magic: [4]byte([]byte("XAFL")), Group: uint32(g), UUID: [16]byte(x.v.uuid),
	})
	list := make([]uint32, (len(b)-xfsReserveListSize)/4)
	for i := range list {
		list[i] = xfsNull
	}
	for i := range xfsReserve {
		list[1+i] = uint32(x.reserve(g)) + uint32(i)
	}
	ondisk.Encode(b[xfsReserveListSize:], binary.BigEndian, list)
	putXFSChecksum(b, 32)
}
