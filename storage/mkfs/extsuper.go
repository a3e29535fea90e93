package mkfs

import (
	"crypto/rand"
	"encoding/binary"

	"ironroot/internal/ondisk"
	"ironroot/storage/block"
)

// Features of a file system in the superblock's three classes.
const (
	hasJournal = 0x4
	extAttr    = 0x8
	dirIndex   = 0x20

	fileType   = 0x2
	extentTree = 0x40
	bits64     = 0x80
	flexGroups = 0x200

	sparseSuper  = 0x1
	largeFile    = 0x2
	hugeFile     = 0x8
	dirNlink     = 0x20
	extraIsize   = 0x40
	metadataCsum = 0x400
)

// extSuper is the superblock (struct ext4_super_block).
type extSuper struct {
	Inodes              uint32
	Blocks              uint32
	Reserved            uint32 // blocks for the superuser
	FreeBlocks          uint32
	FreeInodes          uint32
	FirstBlock          uint32
	BlockLog            uint32 // log2 of KiB
	ClusterLog          uint32
	BlocksPerGroup      uint32
	ClustersPerGroup    uint32
	InodesPerGroup      uint32
	Mounted             uint32
	Written             uint32
	Mounts              uint16
	MaxMounts           uint16 // before a check
	Magic               uint16
	State               uint16
	Errors              uint16 // the kernel's behaviour after an error
	MinorRevision       uint16
	Checked             uint32
	CheckInterval       uint32
	Creator             uint32
	Revision            uint32
	ReservedUser        uint16
	ReservedGroup       uint16
	FirstInode          uint32
	InodeSize           uint16
	Group               uint16
	Compatible          uint32
	Incompatible        uint32
	ReadOnly            uint32 // features that allow to mount read-only
	UUID                [16]byte
	Label               [16]byte
	LastMounted         [64]byte
	Algorithm           uint32
	PreallocBlocks      uint8
	PreallocDirectories uint8
	ReservedDescriptors uint16
	JournalUUID         [16]byte
	JournalInode        uint32
	JournalDevice       uint32
	LastOrphan          uint32
	HashSeed            [16]byte
	HashVersion         uint8
	JournalBackup       uint8 // kind of JournalBlocks
	DescriptorSize      uint16
	MountOptions        uint32
	FirstMetaGroup      uint32
	Made                uint32
	JournalBlocks       [17]uint32
	BlocksHigh          uint32
	ReservedHigh        uint32
	FreeBlocksHigh      uint32
	MinExtraSize        uint16 // of inodes, bytes
	WantExtraSize       uint16
	Flags               uint32
	StripeUnit          uint16
	MultiMountInterval  uint16
	MultiMountBlock     uint64
	StripeWidth         uint32
	FlexLog             uint8
	ChecksumKind        uint8
	_                   [646]byte
	Checksum            uint32
}

const (
	extMagic       = 0xef53
	extClean       = 1
	extContinue    = 1
	extRevision    = 1      // with features
	extMountSet    = 0x000c // extended attributes, access control lists
	extSignedHash  = 1      // hashes of names use signed characters
	extHalfMD4     = 1
	extBackup      = 1 // JournalBlocks is a copy of the inode's content
	extCRC32C      = 1
	extNoMaxMounts = 0xffff
	extExtraSize   = 32
)

// super returns the superblock for a group.
func (e *ext) super(g int64) []byte {
	var used int64
	for _, s := range e.used {
		used += s.n
	}
	free, reserved, inodes := e.blocks-e.first-used, e.blocks/20, uint32(e.inodesGroup*e.groups)
	s := extSuper{
		Inodes: inodes, FreeInodes: inodes - firstFree,
		Blocks: uint32(e.blocks), Reserved: uint32(reserved), FreeBlocks: uint32(free), FirstBlock: uint32(e.first),
		BlockLog: uint32(log2(e.block / 1024)), ClusterLog: uint32(log2(e.block / 1024)),
		BlocksPerGroup: uint32(e.perGroup), ClustersPerGroup: uint32(e.perGroup),
		InodesPerGroup: uint32(e.inodesGroup),
		Written:        e.time, Checked: e.time, Made: e.time,
		MaxMounts: extNoMaxMounts, Magic: extMagic, State: extClean, Errors: extContinue, Revision: extRevision,
		FirstInode: firstFree, InodeSize: inodeSize, Group: uint16(g), Compatible: extAttr | dirIndex,
		Incompatible: fileType, ReadOnly: sparseSuper | largeFile, UUID: [16]byte(e.v.uuid),
		HashSeed: e.hashSeed, HashVersion: extHalfMD4, MountOptions: extMountSet,
		MinExtraSize: extExtraSize, WantExtraSize: extExtraSize, Flags: extSignedHash,
	}
	copy(s.Label[:], e.v.label)
	if e.journal > 0 {
		s.Compatible |= hasJournal
		s.JournalInode, s.JournalBackup, s.JournalBlocks = journalInode, extBackup, e.backup
	}
	if e.isExt4 {
		s.Incompatible |= extentTree | bits64 | flexGroups
		s.ReadOnly |= hugeFile | dirNlink | extraIsize | metadataCsum
		s.DescriptorSize, s.FlexLog, s.ChecksumKind = uint16(e.descSize), log2(e.flex), extCRC32C
		s.BlocksHigh, s.ReservedHigh, s.FreeBlocksHigh = uint32(e.blocks>>32), uint32(reserved>>32), uint32(free>>32)
	}
	b := ondisk.Append(nil, binary.LittleEndian, s)
	if e.isExt4 {
		s.Checksum = checksum(0xffffffff, b[:len(b)-4])
		ondisk.Encode(b, binary.LittleEndian, s)
	}
	return b
}

// extJournal is the start of a journal's superblock (struct journal_superblock). The rest is zero.
type extJournal struct {
	Magic        uint32
	BlockType    uint32
	Transaction  uint32
	BlockSize    uint32
	Blocks       uint32
	First        uint32 // first block of the log
	Sequence     [4]byte
	Start        uint32
	Error        uint32
	Compatible   uint32
	Incompatible uint32
	ReadOnly     uint32
	UUID         [16]byte
	Users        uint32
}

const (
	journalMagic = 0xc03b3998
	journalSuper = 4 // block type: superblock, version 2
)

// makeJournal makes an empty journal (JBD2). It zeroes its blocks only if the device can do so without writing. The
// first transaction has a random number, so that old transactions in the blocks are not taken for new ones. e2fsck
// does the same after it has cleared a journal.
func (e *ext) makeJournal() error {
	content, err := e.allocate(e.journal)
	if err != nil {
		return err
	}
	for _, s := range content {
		if block.Punch(e.d.file, s.start*e.block, s.n*e.block) != nil {
			break
		}
	}
	j := extJournal{
		Magic: journalMagic, BlockType: journalSuper, BlockSize: uint32(e.block), Blocks: uint32(e.journal), First: 1,
		UUID: [16]byte(e.v.uuid), Users: 1,
	}
	rand.Read(j.Sequence[:]) //nolint:errcheck // never fails
	j.Sequence[0] &= 0x7f
	b := make([]byte, e.block)
	ondisk.Encode(b, binary.BigEndian, j)
	if err := e.write(b, content[0].start); err != nil {
		return err
	}
	return e.putInode(journalInode, inode{mode: modeFile | 0o600, links: 1, content: content})
}
