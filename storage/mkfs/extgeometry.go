package mkfs

import "math"

// extGeometry describes the layout of a file system. Offsets and lengths are in blocks unless stated otherwise.
type extGeometry struct {
	isExt4      bool  // not ext2 or ext3
	block       int64 // bytes
	blocks      int64 // number of blocks, from 0
	first       int64 // block of group 0
	perGroup    int64
	groups      int64
	inodesGroup int64 // inodes per group
	tableBlocks int64 // inode table of each group
	descSize    int64 // bytes
	descBlocks  int64 // all group descriptors
	flex        int64 // groups of a flex group, whose bitmaps and inode tables are in the first group
	journal     int64 // 0 for none
}

// geometry chooses a layout as mke2fs with Debian's mke2fs.conf does.
func geometry(size, sector int64, kind string) extGeometry {
	const mib, tib = 1 << 20, 1 << 40
	g := extGeometry{isExt4: kind == "ext4", block: 4096, descSize: 32, flex: 1}
	if g.isExt4 {
		g.descSize = 64
	}
	if size < 512*mib && sector <= 1024 {
		g.block, g.first = 1024, 1
	}
	ratio := int64(16384) // bytes per inode
	switch {
	case size < 3*mib:
		ratio = 8192
	case size < 512*mib:
		ratio = 4096
	case size >= 16*tib:
		ratio = 65536
	case size >= 4*tib:
		ratio = 32768
	}
	g.blocks, g.perGroup = size/g.block, 8*g.block
	if !g.isExt4 {
		g.blocks = min(g.blocks, math.MaxUint32)
	}
	for {
		g.divide(ratio)
		// The last group is omitted if it would contain little but its own metadata.
		last := (g.blocks - g.first) % g.perGroup
		if g.groups == 1 || last == 0 || last >= 1+g.descBlocks+2+g.tableBlocks+50 {
			break
		}
		g.blocks -= last
	}
	for g.isExt4 && g.flex < 16 && 1+g.descBlocks+2*g.flex*(2+g.tableBlocks) <= g.perGroup/2 {
		g.flex *= 2
	}
	if kind != "ext2" {
		g.journal = journalBlocks(g.blocks)
	}
	return g
}

// divide divides the blocks into groups and distributes the inodes over them.
func (g *extGeometry) divide(ratio int64) {
	g.groups = (g.blocks - g.first + g.perGroup - 1) / g.perGroup
	g.descBlocks = (g.groups*g.descSize + g.block - 1) / g.block
	inodes := max(firstFree+1, min(g.blocks*g.block/ratio, math.MaxUint32-g.groups*16))
	perBlock := g.block / inodeSize
	g.tableBlocks = ((inodes+g.groups-1)/g.groups + perBlock - 1) / perBlock
	if perBlock < 8 {
		g.tableBlocks &^= 1 // the bitmap of inodes ends with a whole byte
	}
	g.inodesGroup = g.tableBlocks * perBlock
}

// journalBlocks returns the length of the journal; 0 if the file system is too small for one.
func journalBlocks(blocks int64) int64 {
	for _, c := range []struct{ below, journal int64 }{
		{2048, 0},
		{32 << 10, 1024},
		{256 << 10, 4096},
		{512 << 10, 8192},
		{4 << 20, 16 << 10},
		{8 << 20, 32 << 10},
		{16 << 20, 64 << 10},
		{32 << 20, 128 << 10},
	} {
		if blocks < c.below {
			return c.journal
		}
	}
	return 256 << 10
}

// start returns the first block of a group.
func (g *extGeometry) start(group int64) int64 { return g.first + group*g.perGroup }

// end returns the first block after a group.
func (g *extGeometry) end(group int64) int64 { return min(g.start(group+1), g.blocks) }

// hasSuper reports whether a group starts with the superblock and the descriptors: 0, 1 and the powers of 3, 5 and 7
// (sparse_super).
func (g *extGeometry) hasSuper(group int64) bool {
	if group <= 1 {
		return true
	}
	for _, base := range []int64{3, 5, 7} {
		power := base
		for power < group {
			power *= base
		}
		if power == group {
			return true
		}
	}
	return false
}

// superBlocks returns the number of blocks of the superblock and the descriptors at the start of a group.
func (g *extGeometry) superBlocks(group int64) int64 {
	if g.hasSuper(group) {
		return 1 + g.descBlocks
	}
	return 0
}

// leader returns the group that contains the bitmaps and inode tables of a group, the first of its flex group.
func (g *extGeometry) leader(group int64) int64 { return group / g.flex * g.flex }

// members returns the number of groups whose bitmaps and inode tables are in a leader.
func (g *extGeometry) members(leader int64) int64 { return min(g.flex, g.groups-leader) }

// blockBitmap returns the block of a group's block bitmap.
func (g *extGeometry) blockBitmap(group int64) int64 {
	leader := g.leader(group)
	return g.start(leader) + g.superBlocks(leader) + group - leader
}

// inodeBitmap returns the block of a group's inode bitmap.
func (g *extGeometry) inodeBitmap(group int64) int64 {
	return g.blockBitmap(group) + g.members(g.leader(group))
}

// table returns the first block of a group's inode table.
func (g *extGeometry) table(group int64) int64 {
	leader := g.leader(group)
	return g.start(leader) + g.superBlocks(leader) + 2*g.members(leader) + (group-leader)*g.tableBlocks
}
