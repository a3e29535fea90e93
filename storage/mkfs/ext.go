package mkfs

import (
	"context"
	"crypto/rand"
	"hash/crc32"
	"math"
	"time"
)

// The layout and the names follow the Linux kernel's Documentation/filesystems/ext4. Sizes and features are those that
// Debian 12's mke2fs chooses for a device of the same size.

const (
	minExt    = 1 << 20
	maxExt4   = 64 << 40 // bytes; on larger devices the group descriptors do not fit into a group
	maxExt3   = 16 << 40 // bytes; the limit of block numbers of 32 bits
	inodeSize = 256
	firstFree = 11 // first inode that is not reserved; used by lost+found

	rootInode    = 2
	journalInode = 8
	lostInode    = firstFree
)

// ext is a file system of the ext family that is being made. Offsets and lengths are in blocks unless stated
// otherwise.
type ext struct {
	extGeometry
	d    *device
	v    volume
	seed uint32 // of all checksums
	time uint32 // seconds since 1970

	used     []span     // used blocks, in ascending order
	desc     []byte     // the group descriptors
	inodes   []byte     // the part of the inode table with used inodes
	backup   [17]uint32 // the superblock's copy of the journal's inode
	hashSeed [16]byte
}

// span is a range of blocks.
type span struct{ start, n int64 }

func (s span) end() int64 { return s.start + s.n }

// makeExt makes ext2, ext3 or ext4.
func makeExt(ctx context.Context, d *device, v volume) error {
	e := &ext{extGeometry: geometry(d.size, d.sector, v.kind), d: d, v: v}
	e.seed = checksum(math.MaxUint32, v.uuid)
	e.time = uint32(max(0, min(time.Now().Unix(), math.MaxInt32)))
	rand.Read(e.hashSeed[:]) //nolint:errcheck // never fails
	e.markFixed()
	e.inodes = make([]byte, (firstFree*inodeSize+e.block-1)/e.block*e.block)
	if err := e.directories(); err != nil {
		return err
	}
	if e.journal > 0 {
		if err := e.makeJournal(); err != nil {
			return err
		}
	}
	if err := e.write(e.inodes, e.table(0)); err != nil {
		return err
	}
	if err := e.makeGroups(ctx); err != nil {
		return err
	}
	for g := range e.groups {
		if !e.hasSuper(g) {
			continue
		}
		if err := context.Cause(ctx); err != nil {
			return err
		}
		if err := e.write(e.desc, e.start(g)+1); err != nil {
			return err
		}
		if g > 0 {
			if err := e.write(e.super(g), e.start(g)); err != nil {
				return err
			}
		}
	}
	return d.finish(e.super(0), 1024)
}

// write writes p at a block.
func (e *ext) write(p []byte, block int64) error { return e.d.write(p, block*e.block) }

// markFixed marks the blocks as used whose position follows from the geometry.
func (e *ext) markFixed() {
	for g := range e.groups {
		n := e.superBlocks(g)
		if g%e.flex == 0 {
			n += e.members(g) * (2 + e.tableBlocks)
		}
		if n > 0 {
			e.used = append(e.used, span{e.start(g), n})
		}
	}
}

// checksum returns CRC-32C as the kernel computes it: without the inversions at both ends.
func checksum(seed uint32, p []byte) uint32 {
	return ^crc32.Update(^seed, crc32.MakeTable(crc32.Castagnoli), p)
}
