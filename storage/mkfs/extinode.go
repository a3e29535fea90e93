package mkfs

import (
	"encoding/binary"

	"ironroot/internal/ondisk"
)

const (
	modeDir  = 0o040000
	modeFile = 0o100000

	flagExtents = 0x80000
	extentMagic = 0xf30a
	maxExtent   = 32768 // blocks
	direct      = 12    // block numbers in the inode itself
)

// inode holds the fields that differ between the inodes of a new file system.
type inode struct {
	mode, links uint16
	content     []span // blocks of the content
	index       []span // blocks that contain the numbers of other blocks
	root        [60]byte
}

// directories makes the root directory, and lost+found in it.
func (e *ext) directories() error {
	root, err := e.allocate(1)
	if err != nil {
		return err
	}
	// e2fsck needs free entries for lost files, so that it does not have to allocate blocks.
	lost, err := e.allocate(min(16<<10/e.block, direct))
	if err != nil {
		return err
	}
	for _, f := range []struct {
		number, parent uint32
		content        []span
		name           string
	}{{rootInode, rootInode, root, "lost+found"}, {lostInode, rootInode, lost, ""}} {
		i := inode{mode: modeDir | 0o755, links: 3, content: f.content}
		if f.number == lostInode {
			i.mode, i.links = modeDir|0o700, 2
		}
		if err := e.putInode(f.number, i); err != nil {
			return err
		}
		first := true
		for _, s := range f.content {
			for block := s.start; block < s.end(); block++ {
				if err := e.write(e.dirBlock(f.number, f.parent, f.name, first), block); err != nil {
					return err
				}
				first = false
			}
		}
	}
	return nil
}

// extEntry is a directory entry (struct ext4_dir_entry_2). The name follows.
type extEntry struct {
	Inode      uint32
	Length     uint16 // bytes
	NameLength uint8
	Kind       uint8
}

const (
	kindDir      = 2
	kindChecksum = 0xde // of the last entry, which has no inode and a checksum as its name
	entrySize    = 8    // bytes before the name
)

// dirBlock returns a block of a directory. The first one has the entries "." and "..", and lost+found if name is not
// "".
func (e *ext) dirBlock(number, parent uint32, name string, first bool) []byte {
	b := make([]byte, e.block)
	le := binary.LittleEndian
	end := int(e.block)
	if e.isExt4 { // the checksum is in an entry at the end that looks unused
		end -= entrySize + 4
		ondisk.Encode(b[end:], le, extEntry{Length: entrySize + 4, Kind: kindChecksum})
	}
	type entry struct {
		inode uint32
		name  string
	}
	entries := []entry{{}}
	if first {
		entries = []entry{{number, "."}, {parent, ".."}}
		if name != "" {
			entries = append(entries, entry{lostInode, name})
		}
	}
	at := 0
	for i, x := range entries {
		length := (entrySize + len(x.name) + 3) / 4 * 4
		if i == len(entries)-1 {
			length = end - at
		}
		header := extEntry{Inode: x.inode, Length: uint16(length), NameLength: uint8(len(x.name))}
		if x.inode != 0 {
			header.Kind = kindDir
		}
		ondisk.Encode(b[at:], le, header)
		copy(b[at+entrySize:], x.name)
		at += length
	}
	if e.isExt4 {
		le.PutUint32(b[end+entrySize:], checksum(e.inodeSeed(number), b[:end]))
	}
	return b
}

// inodeSeed returns the initial value of an inode's checksums; its generation is 0.
func (e *ext) inodeSeed(number uint32) uint32 {
	le := binary.LittleEndian
	return checksum(e.seed, le.AppendUint32(le.AppendUint32(nil, number), 0))
}

// extInode is an inode (struct ext4_inode).
type extInode struct {
	Mode           uint16
	User           uint16
	Size           uint32 // bytes
	Accessed       uint32
	Changed        uint32
	Modified       uint32
	Deleted        uint32
	Group          uint16
	Links          uint16
	Sectors        uint32 // of 512 bytes
	Flags          uint32
	Version        uint32
	Root           [60]byte // block map or extent tree
	Generation     uint32
	Attributes     uint32
	SizeHigh       uint32
	_              uint32
	SectorsHigh    uint16
	AttributesHigh uint16
	UserHigh       uint16
	GroupHigh      uint16
	Checksum       uint16
	_              uint16
	ExtraSize      uint16 // bytes used after the first 128
	ChecksumHigh   uint16
	ChangedExtra   uint32
	ModifiedExtra  uint32
	AccessedExtra  uint32
	Created        uint32
	CreatedExtra   uint32
	VersionHigh    uint32
	Project        uint32
	_              [inodeSize - 160]byte
}

// putInode adds an inode to the table and writes its index blocks.
func (e *ext) putInode(number uint32, i inode) error {
	if err := e.mapContent(number, &i); err != nil {
		return err
	}
	var blocks, index int64
	for _, s := range i.content {
		blocks += s.n
	}
	for _, s := range i.index {
		index += s.n
	}
	n := extInode{
		Mode: i.mode, Links: i.links, Size: uint32(blocks * e.block), SizeHigh: uint32(blocks * e.block >> 32),
		Accessed: e.time, Changed: e.time, Modified: e.time, Created: e.time,
		Sectors: uint32((blocks + index) * e.block / 512), Root: i.root, ExtraSize: extExtraSize,
	}
	if number == journalInode {
		for at := range 15 {
			e.backup[at] = binary.LittleEndian.Uint32(i.root[4*at:])
		}
		e.backup[15], e.backup[16] = n.SizeHigh, n.Size
	}
	b := e.inodes[(number-1)*inodeSize:][:inodeSize]
	if e.isExt4 {
		n.Flags = flagExtents
		ondisk.Encode(b, binary.LittleEndian, n)
		sum := checksum(e.inodeSeed(number), b)
		n.Checksum, n.ChecksumHigh = uint16(sum), uint16(sum>>16)
	}
	ondisk.Encode(b, binary.LittleEndian, n)
	return nil
}

// mapContent sets the block map or extent tree of an inode.
func (e *ext) mapContent(number uint32, i *inode) error {
	if e.isExt4 {
		return e.mapExtents(number, i)
	}
	return e.mapIndirect(i)
}

// extExtentHeader is the header of a node of an extent tree (struct ext4_extent_header).
type extExtentHeader struct {
	Magic      uint16
	Entries    uint16
	Max        uint16
	Depth      uint16
	Generation uint32
}

// extExtent is an entry of a leaf (struct ext4_extent).
type extExtent struct {
	Logical   uint32
	Length    uint16
	StartHigh uint16
	Start     uint32
}

// extIndex is an entry of an inner node (struct ext4_extent_idx).
type extIndex struct {
	Logical  uint32
	Leaf     uint32
	LeafHigh uint16
	_        uint16
}

const extentSize = 12 // bytes of each of the three structures

// mapExtents makes an extent tree. If the extents do not fit into the inode, it allocates one leaf block.
func (e *ext) mapExtents(number uint32, i *inode) error {
	le := binary.LittleEndian
	var extents []extExtent
	logical := int64(0)
	for _, s := range i.content {
		for s.n > 0 {
			n := min(s.n, maxExtent)
			extents = append(extents, extExtent{
				Logical: uint32(logical), Length: uint16(n), Start: uint32(s.start), StartHigh: uint16(s.start >> 32),
			})
			logical, s = logical+n, span{s.start + n, s.n - n}
		}
	}
	header := func(b []byte, entries, most, depth int) {
		ondisk.Encode(b, le, extExtentHeader{
			Magic: extentMagic, Entries: uint16(entries), Max: uint16(most), Depth: uint16(depth),
		})
	}
	const most = len(i.root)/extentSize - 1
	if len(extents) <= most {
		header(i.root[:], len(extents), most, 0)
		ondisk.Encode(i.root[extentSize:], le, extents)
		return nil
	}
	leaf := make([]byte, e.block)
	mostInLeaf := len(leaf)/extentSize - 1 // the remaining bytes hold the checksum
	if len(extents) > mostInLeaf {
		return errNoSpace
	}
	var err error
	if i.index, err = e.allocate(1); err != nil {
		return err
	}
	at := i.index[0].start
	header(leaf, len(extents), mostInLeaf, 0)
	ondisk.Encode(leaf[extentSize:], le, extents)
	tail := extentSize * (1 + mostInLeaf)
	le.PutUint32(leaf[tail:], checksum(e.inodeSeed(number), leaf[:tail]))
	header(i.root[:], 1, most, 1)
	ondisk.Encode(i.root[extentSize:], le, extIndex{Leaf: uint32(at), LeafHigh: uint16(at >> 32)})
	return e.write(leaf, at)
}

// mapIndirect lists blocks as ext2 does: the first ones in the inode, the next ones in an indirect block, and the
// others in the blocks of a double indirect block.
func (e *ext) mapIndirect(i *inode) error {
	var numbers []byte
	list := func(spans []span) (b []byte) {
		for _, s := range spans {
			for block := s.start; block < s.end(); block++ {
				b = binary.LittleEndian.AppendUint32(b, uint32(block))
			}
		}
		return b
	}
	numbers = list(i.content)
	numbers = numbers[copy(i.root[:4*direct], numbers):]
	if len(numbers) == 0 {
		return nil
	}
	// One indirect block, and if that is not enough, a double indirect block and as many as are needed.
	leaves := (int64(len(numbers)) + e.block - 1) / e.block
	need := leaves
	if leaves > 1 {
		need++
	}
	if leaves-1 > e.block/4 {
		return errNoSpace
	}
	var err error
	if i.index, err = e.allocate(need); err != nil {
		return err
	}
	places := list(i.index)
	blocks := make([]byte, leaves*e.block)
	copy(blocks, numbers)
	copy(i.root[4*direct:], places[:4])
	if leaves > 1 {
		copy(i.root[4*direct+4:], places[4:8])
		top := make([]byte, e.block)
		copy(top, places[8:])
		blocks = append(blocks[:e.block:e.block], append(top, blocks[e.block:]...)...)
	}
	for _, s := range i.index {
		n := s.n * e.block
		if err := e.write(blocks[:n], s.start); err != nil {
			return err
		}
		blocks = blocks[n:]
	}
	return nil
}
