package mkfs

import "encoding/binary"

const (
	modeFolder = 0o040000
	modeFile   = 0o100000

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

// folders makes the root folder and lost+found in it.
func (e *ext) folders() error {
	root, err := e.take(1)
	if err != nil {
		return err
	}
	// e2fsck wants room to link lost files into without allocating.
	lost, err := e.take(min(16<<10/e.block, direct))
	if err != nil {
		return err
	}
	for _, f := range []struct {
		number, parent uint32
		content        []span
		name           string
	}{{rootInode, rootInode, root, "lost+found"}, {lostInode, rootInode, lost, ""}} {
		i := inode{mode: modeFolder | 0o755, links: 3, content: f.content}
		if f.number == lostInode {
			i.mode, i.links = modeFolder|0o700, 2
		}
		if err := e.putInode(f.number, i); err != nil {
			return err
		}
		first := true
		for _, s := range f.content {
			for block := s.start; block < s.end(); block++ {
				if err := e.write(e.folderBlock(f.number, f.parent, f.name, first), block); err != nil {
					return err
				}
				first = false
			}
		}
	}
	return nil
}

// folderBlock is a block of a folder; the first one has the entries "." and ".." and, if it has a name, lost+found.
func (e *ext) folderBlock(number, parent uint32, name string, first bool) []byte {
	b := make([]byte, e.block)
	le := binary.LittleEndian
	end := int(e.block)
	if e.modern { // the end looks like an unused entry and holds the checksum
		end -= 12
		le.PutUint16(b[end+4:], 12)
		b[end+7] = 0xde
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
		length := (8 + len(x.name) + 3) / 4 * 4
		if i == len(entries)-1 {
			length = end - at
		}
		le.PutUint32(b[at:], x.inode)
		le.PutUint16(b[at+4:], uint16(length))
		if b[at+6] = byte(len(x.name)); x.inode != 0 {
			b[at+7] = 2 // a folder
		}
		copy(b[at+8:], x.name)
		at += length
	}
	if e.modern {
		le.PutUint32(b[end+8:], checksum(e.inodeSeed(number), b[:end]))
	}
	return b
}

// inodeSeed returns the initial value of an inode's checksums; its generation is 0.
func (e *ext) inodeSeed(number uint32) uint32 {
	le := binary.LittleEndian
	return checksum(e.seed, le.AppendUint32(le.AppendUint32(nil, number), 0))
}

// putInode puts an inode (struct ext4_inode) into the table and writes the blocks that hold the numbers of its blocks.
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
	b := e.inodes[(number-1)*inodeSize:][:inodeSize]
	le := binary.LittleEndian
	le.PutUint16(b[0:], i.mode)
	le.PutUint32(b[4:], uint32(blocks*e.block))
	le.PutUint32(b[108:], uint32(blocks*e.block>>32))
	for _, at := range []int{8, 12, 16, 144} { // accessed, changed, modified, created
		le.PutUint32(b[at:], e.time)
	}
	le.PutUint16(b[26:], i.links)
	le.PutUint32(b[28:], uint32((blocks+index)*e.block/512))
	copy(b[40:], i.root[:])
	le.PutUint16(b[128:], 32) // bytes used behind the first 128
	if number == journalInode {
		for n := range 15 {
			e.backup[n] = le.Uint32(i.root[4*n:])
		}
		e.backup[15], e.backup[16] = le.Uint32(b[108:]), le.Uint32(b[4:])
	}
	if e.modern {
		le.PutUint32(b[32:], flagExtents)
		sum := checksum(e.inodeSeed(number), b)
		le.PutUint16(b[124:], uint16(sum))
		le.PutUint16(b[130:], uint16(sum>>16))
	}
	return nil
}

// mapContent sets the block map or extent tree of an inode.
func (e *ext) mapContent(number uint32, i *inode) error {
	if e.modern {
		return e.mapExtents(number, i)
	}
	return e.mapIndirect(i)
}

// mapExtents makes an extent tree, of one further block where the inode has no room for the extents.
func (e *ext) mapExtents(number uint32, i *inode) error {
	le := binary.LittleEndian
	var extents []byte
	logical, count := int64(0), 0
	for _, s := range i.content {
		for s.n > 0 {
			n := min(s.n, maxExtent)
			extents = le.AppendUint32(extents, uint32(logical))
			extents = le.AppendUint16(extents, uint16(n))
			extents = le.AppendUint16(extents, uint16(s.start>>32))
			extents = le.AppendUint32(extents, uint32(s.start))
			logical, count, s = logical+n, count+1, span{s.start + n, s.n - n}
		}
	}
	header := func(b []byte, entries, room, depth int) {
		le.PutUint16(b, extentMagic)
		le.PutUint16(b[2:], uint16(entries))
		le.PutUint16(b[4:], uint16(room))
		le.PutUint16(b[6:], uint16(depth))
	}
	if count <= 4 {
		header(i.root[:], count, 4, 0)
		copy(i.root[12:], extents)
		return nil
	}
	leaf := make([]byte, e.block)
	room := (len(leaf) - 12) / 12 // what is over holds the checksum
	if count > room {
		return errNoRoom
	}
	var err error
	if i.index, err = e.take(1); err != nil {
		return err
	}
	at := i.index[0].start
	header(leaf, count, room, 0)
	copy(leaf[12:], extents)
	tail := 12 + 12*room
	le.PutUint32(leaf[tail:], checksum(e.inodeSeed(number), leaf[:tail]))
	header(i.root[:], 1, 4, 1)
	le.PutUint32(i.root[16:], uint32(at))
	le.PutUint16(i.root[20:], uint16(at>>32))
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
		return errNoRoom
	}
	var err error
	if i.index, err = e.take(need); err != nil {
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
