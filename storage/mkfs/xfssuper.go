package mkfs

import (
	"encoding/binary"
	"math/bits"
)

// rootInode returns the number of the root directory's inode.
func (x *xfs) rootInode() int64 { return x.chunk * xfsPerBlock }

// super is the superblock (xfs_sb); free is the number of free blocks.
func (x *xfs) super(free int64) []byte {
	b := make([]byte, x.sector)
	be := binary.BigEndian
	root := uint64(x.rootInode())
	percent := byte(25) // of the space may be inodes
	switch {
	case x.blocks >= 50<<40/xfsBlock:
		percent = 1
	case x.blocks >= 1<<40/xfsBlock:
		percent = 5
	}
	copy(b, "XFSB")
	for at, value := range map[int]uint64{
		8:  uint64(x.blocks),
		48: uint64(x.logGroup())<<x.groupBits() | uint64(x.header+xfsTrees),
		56: root, 64: root + 1, 72: root + 2,
		128: xfsChunk, 136: xfsChunk - xfsUsedInodes, 144: uint64(free),
	} {
		be.PutUint64(b[at:], value)
	}
	for at, value := range map[int]uint32{
		4: xfsBlock, 80: 1, 84: uint32(x.group), 88: uint32(x.groups), 96: uint32(x.log),
		180: xfsChunkSpace, // alignment of inodes
		196: 1,             // unit of the log
		200: 0x18a, 204: 0x18a,
		212: 0xd, // features one may read without: free inode tree, shared extents, counted inode trees
		216: 0xb, // features that are needed: file types in folders, sparse chunks, bigtime
		228: 4,   // alignment of sparse chunks
	} {
		be.PutUint32(b[at:], value)
	}
	copy(b[32:], x.v.uuid)
	be.PutUint16(b[100:], 0xb4a5)
	be.PutUint16(b[102:], uint16(x.sector))
	be.PutUint16(b[104:], xfsInode)
	be.PutUint16(b[106:], xfsPerBlock)
	copy(b[108:120], x.v.label)
	copy(b[120:], []byte{12, log2(x.sector), 9, 3, byte(x.groupBits()), 0, 0, percent})
	if x.sector > 512 {
		be.PutUint16(b[100:], 0xbca5)
		b[193] = log2(x.sector)
		be.PutUint16(b[194:], uint16(x.sector))
		be.PutUint32(b[196:], uint32(x.sector))
	}
	xfsSeal(b, 224)
	return b
}

// log2 returns the exponent of a power of two.
func log2(n int64) byte { return byte(bits.TrailingZeros64(uint64(n))) }

// inodes is the chunk with the topmost folder, which is empty.
func (x *xfs) inodes() []byte {
	b := make([]byte, xfsChunk*xfsInode)
	be := binary.BigEndian
	for i := range xfsChunk {
		n := b[i*xfsInode:][:xfsInode]
		copy(n, "IN")
		n[4] = 3                      // version
		be.PutUint32(n[96:], xfsNull) // next without a name
		be.PutUint64(n[152:], uint64(x.rootInode())+uint64(i))
		copy(n[160:], x.v.uuid)
		if i < xfsUsedInodes {
			mode, format, links := uint16(modeFile), byte(2), uint32(1) // extents, of which there are none
			if i == 0 {
				mode, format, links = modeFolder|0o755, 1, 2 // in the inode itself
				be.PutUint64(n[56:], 6)                      // bytes of it
				be.PutUint32(n[178:], uint32(x.rootInode()))
			}
			if i == 1 {
				n[91] = 4 // the bitmap is of the newer kind
			}
			be.PutUint16(n[2:], mode)
			n[5], n[83] = format, 2
			be.PutUint32(n[16:], links)
			for _, at := range []int{32, 40, 48, 144} { // accessed, modified, changed, created
				be.PutUint64(n[at:], x.now)
			}
			be.PutUint64(n[104:], 2) // changes
			be.PutUint64(n[120:], 8) // bigtime
		}
		xfsSeal(n, 100)
	}
	return b
}

// logRecord is the only record of a log that is empty: it says that the file system was unmounted.
func (x *xfs) logRecord() []byte {
	const sector = 512
	b := make([]byte, max(2*sector, x.sector))
	be := binary.BigEndian
	copy(b, "\xfe\xed\xba\xbe")
	for at, value := range map[int]uint32{
		4: 1, 8: 2, 12: uint32(len(b) - sector), // cycle, version, length
		16: 1, 24: 1, // this place and the log's end: cycle 1, block 0
		36: xfsNull, 40: 1, // no record before; one operation
		44:  0xb0c0d0d0, // what the cycle number below took the place of
		300: 1,          // of a little-endian machine
		320: 32 << 10,   // bytes of a buffer
	} {
		be.PutUint32(b[at:], value)
	}
	copy(b[304:], x.v.uuid)
	for at := sector; at < len(b); at += sector {
		be.PutUint32(b[at:], 1) // cycle
	}
	copy(b[sector+4:], "\x00\x00\x00\x08\xaa\x20\x00\x00nU")
	return b
}
