package mkfs

import (
	"encoding/binary"
	"math/bits"

	"ironroot/internal/ondisk"
)

// rootInode returns the number of the root directory's inode.
func (x *xfs) rootInode() int64 { return x.chunk * xfsPerBlock }

// xfsSuper is the superblock (struct xfs_dsb).
type xfsSuper struct {
	Magic           [4]byte
	BlockSize       uint32
	Blocks          uint64
	RealtimeBlocks  uint64
	RealtimeExtents uint64
	UUID            [16]byte
	LogStart        uint64
	RootInode       uint64
	BitmapInode     uint64
	SummaryInode    uint64
	RealtimeExtent  uint32 // blocks
	GroupBlocks     uint32
	Groups          uint32
	BitmapBlocks    uint32
	LogBlocks       uint32
	Version         uint16
	SectorSize      uint16
	InodeSize       uint16
	InodesPerBlock  uint16
	Label           [12]byte
	BlockLog        uint8 // log2 of bytes
	SectorLog       uint8
	InodeLog        uint8
	InodesBlockLog  uint8
	GroupLog        uint8
	RealtimeLog     uint8
	InProgress      uint8
	InodePercent    uint8 // maximum percentage of the space for inodes
	Inodes          uint64
	FreeInodes      uint64
	FreeBlocks      uint64
	FreeRealtime    uint64
	UserQuota       uint64
	GroupQuota      uint64
	QuotaFlags      uint16
	Flags           uint8
	SharedVersion   uint8
	InodeAlignment  uint32
	StripeUnit      uint32
	StripeWidth     uint32
	DirectoryLog    uint8
	LogSectorLog    uint8
	LogSectorSize   uint16
	LogUnit         uint32
	Features2       uint32
	BadFeatures2    uint32 // must equal Features2
	Compatible      uint32
	ReadOnly        uint32 // features that allow to mount read-only
	Incompatible    uint32 // features that are required to mount
	LogIncompatible uint32
	Checksum        uint32
	SparseAlignment uint32 // of inode chunks
	ProjectQuota    uint64
	LastWrite       uint64
	MetadataUUID    [16]byte
}

const (
	xfsVersion       = 0xb4a5 // version 5 and the features of version 4 that it implies
	xfsVersionSector = 0x0800 // sectors are larger than 512 bytes
	xfsFeatures2     = 0x018a // lazy counters, attributes, project ids of 32 bits, checksums
	xfsReadOnly      = 0x000d // free inode tree, shared extents, counted inode trees
	xfsIncompatible  = 0x000b // file types in directories, sparse chunks, bigtime
)

// super returns the superblock; free is the number of free blocks.
func (x *xfs) super(free int64) []byte {
	root := uint64(x.rootInode())
	s := xfsSuper{
		Magic: [4]byte([]byte("XFSB")), BlockSize: xfsBlock, Blocks: uint64(x.blocks), UUID: [16]byte(x.v.uuid),
		LogStart:  uint64(x.logGroup())<<x.groupBits() | uint64(x.header+xfsTrees),
		RootInode: root, BitmapInode: root + 1, SummaryInode: root + 2, RealtimeExtent: 1,
		GroupBlocks: uint32(x.group), Groups: uint32(x.groups), LogBlocks: uint32(x.log),
		Version: xfsVersion, SectorSize: uint16(x.sector), InodeSize: xfsInode, InodesPerBlock: xfsPerBlock,
		BlockLog: log2(xfsBlock), SectorLog: log2(x.sector),
		InodeLog: log2(xfsInode), InodesBlockLog: log2(xfsPerBlock),
		GroupLog: byte(x.groupBits()), InodePercent: 25,
		Inodes: xfsChunk, FreeInodes: xfsChunk - xfsUsedInodes, FreeBlocks: uint64(free),
		InodeAlignment: xfsChunkSpace, LogUnit: 1, Features2: xfsFeatures2, BadFeatures2: xfsFeatures2,
		ReadOnly: xfsReadOnly, Incompatible: xfsIncompatible, SparseAlignment: 4,
	}
	copy(s.Label[:], x.v.label)
	switch {
	case x.blocks >= 50<<40/xfsBlock:
		s.InodePercent = 1
	case x.blocks >= 1<<40/xfsBlock:
		s.InodePercent = 5
	}
	if x.sector > 512 {
		s.Version |= xfsVersionSector
		s.LogSectorLog, s.LogSectorSize, s.LogUnit = log2(x.sector), uint16(x.sector), uint32(x.sector)
	}
	b := make([]byte, x.sector)
	ondisk.Encode(b, binary.BigEndian, s)
	putXFSChecksum(b, 224)
	return b
}

// log2 returns the exponent of a power of two.
func log2(n int64) byte { return byte(bits.TrailingZeros64(uint64(n))) }

// xfsInodeCore is the part of an inode before its data (struct xfs_dinode).
type xfsInodeCore struct {
	Magic          [2]byte
	Mode           uint16
	Version        uint8
	Format         uint8
	OldLinks       uint16
	User, Group    uint32
	Links          uint32
	Project        [2]uint16
	_              [6]byte
	FlushCount     uint16
	Accessed       uint64
	Modified       uint64
	Changed        uint64
	Size           uint64 // bytes
	Blocks         uint64
	ExtentSize     uint32
	Extents        uint32
	AttrExtents    uint16
	AttrOffset     uint8
	AttrFormat     uint8
	_              [6]byte // for DMAPI
	Flags          uint16
	Generation     uint32
	NextUnlinked   uint32
	Checksum       uint32
	Changes        uint64
	LastWrite      uint64
	Flags2         uint64
	CopyExtentSize uint32
	_              [12]byte
	Created        uint64
	Number         uint64
	UUID           [16]byte
}

// xfsShortDir is the header of a directory in its inode (struct xfs_dir2_sf_hdr).
type xfsShortDir struct {
	Count, LongCount uint8
	Parent           uint32
}

const (
	xfsInodeVersion  = 3
	xfsLocal         = 1 // format of data: in the inode
	xfsExtents       = 2
	xfsNewBitmap     = 4 // flag of a real-time bitmap in the newer format
	xfsBigTime       = 8 // flag: times are nanoseconds since 1901
	xfsInodeCoreSize = 176
)

// inodes returns the chunk with the inode of the root directory, which is empty.
func (x *xfs) inodes() []byte {
	b := make([]byte, xfsChunk*xfsInode)
	for i := range xfsChunk {
		n := b[i*xfsInode:][:xfsInode]
		core := xfsInodeCore{
			Magic: [2]byte([]byte("IN")), Version: xfsInodeVersion, NextUnlinked: xfsNull,
			Number: uint64(x.rootInode()) + uint64(i), UUID: [16]byte(x.v.uuid),
		}
		if i < xfsUsedInodes {
			core.Mode, core.Format, core.Links = modeFile, xfsExtents, 1
			core.AttrFormat, core.Changes, core.Flags2 = xfsExtents, 2, xfsBigTime
			core.Accessed, core.Modified, core.Changed, core.Created = x.now, x.now, x.now, x.now
		}
		switch i {
		case 0:
			core.Mode, core.Format, core.Links = modeDir|0o755, xfsLocal, 2
			directory := xfsShortDir{Parent: uint32(x.rootInode())}
			core.Size = uint64(binary.Size(directory))
			ondisk.Encode(n[xfsInodeCoreSize:], binary.BigEndian, directory)
		case 1:
			core.Flags = xfsNewBitmap
		}
		ondisk.Encode(n, binary.BigEndian, core)
		putXFSChecksum(n, 100)
	}
	return b
}

// xfsLogRecord is the header of a record in the log (struct xlog_rec_header).
type xfsLogRecord struct {
	Magic         uint32
	Cycle         uint32
	Version       uint32
	Length        uint32 // bytes
	LSN           uint64 // cycle and block of this record
	TailLSN       uint64 // cycle and block of the log's tail
	Checksum      uint32
	PreviousBlock uint32
	Operations    uint32
	CycleData     [64]uint32 // words that the cycle numbers at the start of sectors replace
	Format        uint32
	UUID          [16]byte
	BufferSize    uint32 // bytes
}

// logRecord returns the only record of an empty log: a mark that the file system was unmounted.
func (x *xfs) logRecord() []byte {
	const sector = 512
	b := make([]byte, max(2*sector, x.sector))
	const cycle = 1
	ondisk.Encode(b, binary.BigEndian, xfsLogRecord{
		Magic: 0xfeedbabe, Cycle: cycle, Version: 2, Length: uint32(len(b) - sector),
		LSN: cycle << 32, TailLSN: cycle << 32, PreviousBlock: xfsNull, Operations: 1,
		CycleData: [64]uint32{0xb0c0d0d0}, Format: 1, // of a little-endian machine
		UUID: [16]byte(x.v.uuid), BufferSize: 32 << 10,
	})
	for at := sector; at < len(b); at += sector {
		binary.BigEndian.PutUint32(b[at:], cycle)
	}
	copy(b[sector+4:], "\x00\x00\x00\x08\xaa\x20\x00\x00nU")
	return b
}
