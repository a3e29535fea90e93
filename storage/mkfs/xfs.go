package mkfs

import (
	"context"
	"encoding/binary"
	"hash/crc32"
	"math/bits"
	"slices"
	"time"
)

// The layout and the names follow "XFS Algorithms & Data Structures", third edition, version 5 of the format. Sizes and
// features are those that Debian 12's mkfs.xfs chooses for a device of the same size, except for the smaller log on
// large devices.

const (
	minXFS = 300 << 20 // bytes; as in mkfs.xfs, because smaller ones are slow and fail early
	maxXFS = 1 << 50

	xfsBlock      = 4096 // bytes
	xfsInode      = 512  // bytes
	xfsChunk      = 64   // inodes that are allocated together
	xfsPerBlock   = xfsBlock / xfsInode
	xfsChunkSpace = xfsChunk / xfsPerBlock // blocks of a chunk, which are aligned to this
	xfsMaxGroup   = 1<<28 - 1              // blocks
	xfsMinGroup   = 64 << 20 / xfsBlock
	xfsReserve    = 4        // blocks that each group reserves for the growth of its trees
	xfsTrees      = 5        // trees of a group, each with a root block
	xfsMinLog     = 16 << 10 // blocks
	// xfsMaxLog is a quarter of mkfs.xfs's maximum in blocks, because the log must be zeroed.
	xfsMaxLog = 128 << 10

	xfsUsedInodes = 3 // root directory; bitmap and summary of the missing real-time volume
	xfsNull       = 0xffffffff
)

// xfs is an XFS that is being made. Offsets and lengths are in blocks unless stated otherwise.
type xfs struct {
	d      *device
	v      volume
	sector int64 // bytes
	blocks int64
	group  int64 // length of an allocation group
	groups int64
	log    int64
	header int64 // superblock and the three other headers of a group
	chunk  int64 // start of the inodes of group 0
	now    uint64
}

// makeXFS makes XFS.
func makeXFS(ctx context.Context, d *device, v volume) error {
	x := newXFS(d, v)
	logStart := (x.logGroup()*x.group + x.header + xfsTrees) * xfsBlock
	if err := d.Zero(ctx, logStart, x.log*xfsBlock); err != nil {
		return err
	}
	if err := d.write(x.logRecord(), logStart); err != nil {
		return err
	}
	if err := d.write(x.inodes(), x.chunk*xfsBlock); err != nil {
		return err
	}
	var free int64
	for g := range x.groups {
		if err := context.Cause(ctx); err != nil {
			return err
		}
		for _, s := range x.free(g) {
			free += s.n
		}
		free += xfsReserve
		if err := d.write(x.headers(g), g*x.group*xfsBlock); err != nil {
			return err
		}
	}
	super := x.super(free)
	for g := int64(1); g < x.groups; g++ {
		if err := d.write(super, g*x.group*xfsBlock); err != nil {
			return err
		}
	}
	return d.finish(super, 0)
}

// newXFS computes the layout.
func newXFS(d *device, v volume) *xfs {
	const big = 4 << 40 / xfsBlock
	x := &xfs{d: d, v: v, sector: d.sector, blocks: d.size / xfsBlock}
	x.group = min((x.blocks+3)/4, xfsMaxGroup)
	if x.blocks >= big {
		x.group = xfsMaxGroup
	}
	if rest := x.blocks % x.group; rest < xfsMinGroup {
		x.blocks -= rest
	}
	x.groups = (x.blocks + x.group - 1) / x.group
	x.log = max(xfsMinLog, min(x.blocks/2048, xfsMaxLog))
	x.header = max(1, 4*x.sector/xfsBlock)
	x.chunk = (x.header + xfsTrees + xfsReserve + xfsChunkSpace - 1) / xfsChunkSpace * xfsChunkSpace
	// Nanoseconds since 13 December 1901 (bigtime).
	x.now = uint64(time.Now().UnixNano()) + 1<<31*1e9
	return x
}

// logGroup returns the group with the log, the middle one.
func (x *xfs) logGroup() int64 { return x.groups / 2 }

// reserve returns the first of the blocks that a group reserves for its trees.
func (x *xfs) reserve(g int64) int64 {
	at := x.header + xfsTrees
	if g == x.logGroup() {
		at += x.log
	}
	return at
}

// free returns the free ranges of a group, relative to its start.
func (x *xfs) free(g int64) []span {
	start, end := x.reserve(g)+xfsReserve, x.length(g)
	if g > 0 {
		return []span{{start, end - start}}
	}
	behind := x.chunk + xfsChunkSpace
	spans := []span{{start, x.chunk - start}, {behind, end - behind}}
	return slices.DeleteFunc(spans, func(s span) bool { return s.n == 0 })
}

// length returns the number of blocks of a group.
func (x *xfs) length(g int64) int64 { return min(x.group, x.blocks-g*x.group) }

// groupBits returns the number of bits of a block number that select the block in its group.
func (x *xfs) groupBits() int { return bits.Len64(uint64(x.group - 1)) }

// putXFSChecksum writes the checksum of b at an offset of b.
func putXFSChecksum(b []byte, at int) {
	binary.LittleEndian.PutUint32(b[at:], crc32.Checksum(b, crc32.MakeTable(crc32.Castagnoli)))
}
