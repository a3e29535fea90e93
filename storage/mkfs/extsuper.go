package mkfs

import (
	"crypto/rand"
	"encoding/binary"

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

// super is the superblock (struct ext4_super_block) as it stands in a group.
func (e *ext) super(g int64) []byte {
	b := make([]byte, 1024)
	le := binary.LittleEndian
	var used int64
	for _, s := range e.used {
		used += s.n
	}
	free, reserved := e.blocks-e.first-used, e.blocks/20
	for at, value := range map[int]uint32{
		0:  uint32(e.inodesGroup * e.groups),
		4:  uint32(e.blocks),
		8:  uint32(reserved),
		12: uint32(free),
		16: uint32(e.inodesGroup*e.groups - firstFree),
		20: uint32(e.first),
		24: uint32(e.block / 4096 * 2), // as a power of two, of KiB
		28: uint32(e.block / 4096 * 2),
		32: uint32(e.perGroup), 36: uint32(e.perGroup), 40: uint32(e.inodesGroup),
		48: e.time, 64: e.time, 264: e.time, // written, checked, made
		76: 1, // revision with features
		84: firstFree,
		92: extAttr | dirIndex, 96: fileType, 100: sparseSuper | largeFile,
		256: 0x000c, // mount options: extended attributes, access control lists
		352: 1,      // hashes of names take characters as signed
	} {
		le.PutUint32(b[at:], value)
	}
	for at, value := range map[int]uint16{
		54: 0xffff, // no check after a number of mounts
		56: 0xef53,
		58: 1, // clean
		60: 1, // errors: go on
		88: inodeSize, 90: uint16(g), 348: 32, 350: 32,
	} {
		le.PutUint16(b[at:], value)
	}
	copy(b[104:], e.v.uuid)
	copy(b[120:136], e.v.label)
	copy(b[236:], e.hashSeed[:])
	b[252] = 1 // half MD4
	if e.journal > 0 {
		le.PutUint32(b[92:], le.Uint32(b[92:])|hasJournal)
		le.PutUint32(b[224:], journalInode)
		b[253] = 1 // there is a copy of the journal's inode
		for i, value := range e.backup {
			le.PutUint32(b[268+4*i:], value)
		}
	}
	if e.modern {
		le.PutUint32(b[96:], fileType|extentTree|bits64|flexGroups)
		le.PutUint32(b[100:], sparseSuper|largeFile|hugeFile|dirNlink|extraIsize|metadataCsum)
		le.PutUint16(b[254:], uint16(e.descSize))
		le.PutUint32(b[336:], uint32(e.blocks>>32))
		le.PutUint32(b[340:], uint32(reserved>>32))
		le.PutUint32(b[344:], uint32(free>>32))
		b[372] = log2(e.flex)
		b[373] = 1 // checksums are CRC-32C
		le.PutUint32(b[1020:], checksum(0xffffffff, b[:1020]))
	}
	return b
}

// makeJournal makes an empty journal (JBD2). Its blocks are zeroed only where that costs nothing; so that no old
// transaction in them is ever taken for a new one, it counts from a random number, as e2fsck has it after it emptied a
// journal.
func (e *ext) makeJournal() error {
	content, err := e.take(e.journal)
	if err != nil {
		return err
	}
	for _, s := range content {
		if block.Punch(e.d.file, s.start*e.block, s.n*e.block) != nil {
			break
		}
	}
	b := make([]byte, e.block)
	be := binary.BigEndian
	be.PutUint32(b[0:], 0xc03b3998)
	be.PutUint32(b[4:], 4) // superblock, version 2
	be.PutUint32(b[12:], uint32(e.block))
	be.PutUint32(b[16:], uint32(e.journal))
	be.PutUint32(b[20:], 1) // first block of the log
	rand.Read(b[24:28])     //nolint:errcheck // never fails
	b[24] &= 0x7f
	copy(b[48:], e.v.uuid)
	be.PutUint32(b[64:], 1) // users
	if err := e.write(b, content[0].start); err != nil {
		return err
	}
	return e.putInode(journalInode, inode{mode: modeFile | 0o600, links: 1, content: content})
}
